"""The stages of the benchmark as functions of names: what the commands, and through them the rules, call.

`prepare`, `partition` and `pretrain` make one thing; `train` and its inputs are made on demand, each saying
so in one line. An input that was made from another spec is an error that names it, never silently used.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbench.config.places import checkpoint_of
from fedbench.config.plan import Plan
from fedbench.config.spec import RunSpec, digest
from fedbench.errors import FedbenchError
from fedbench.site.gpus import resolve
from fedbench.site.locking import alone
from fedbench.status.outdated import raw_changed, weights_changed


@dataclass(frozen=True)
class Workspace:
    """A plan, where its raw data lie, and what to compute with."""

    plan: Plan
    data_root: Path
    device: str
    threads: int
    say: Callable[[str], None]
    verified: dict[tuple, Any] = field(default_factory=dict)
    """Data sets that this process has read whole, by the file that describes them."""

    def make_store(self, spec: RunSpec) -> Any:
        """Prepare a data set afresh; returns the store."""
        from fedbench.data._summary import lines
        from fedbench.data.store import prepare

        folder = self.plan.paths.data(spec.cell.dataset)
        self.say(f"preparing data set {spec.cell.dataset} -> {folder}")
        store = prepare(spec.dataset, folder, self.data_root)
        for line in lines(store.meta):
            self.say(f"  {line}")
        return store

    def get_store(self, spec: RunSpec) -> Any:
        """The prepared data set, prepared first if it is missing."""
        from fedbench.data.store import load_store

        folder = self.plan.paths.data(spec.cell.dataset)
        made = folder / "dataset.json"
        if not made.exists():
            return self.make_store(spec)
        status = made.stat()
        key = (made, digest(spec.data_spec), status.st_ino, status.st_mtime_ns)
        if key in self.verified:
            return self.verified[key]
        store = load_store(folder, spec.data_spec)
        if raw_changed(spec, store.meta, made, self.data_root):
            raise FedbenchError(
                f"{folder}: the raw data below {self.data_root} changed since they were prepared; run `fedbench "
                "prepare` again, or give the --data-root of what was prepared"
            )
        self.verified[key] = store
        return store

    def make_partition(self, spec: RunSpec) -> Any:
        """Divide a data set over clients afresh; returns the partition."""
        from fedbench.partition.make_partition import make_partition, write
        from fedbench.partition.partition import repair_text

        store = self.get_store(spec)
        folder = self.plan.paths.partition(spec.cell.dataset, spec.cell.partition, spec.seed)
        self.say(f"partitioning {spec.cell.dataset} by {spec.cell.partition}, seed {spec.seed} -> {folder}")
        partition = make_partition(spec.partition, store, spec.seed)
        write(partition, folder)
        if moved := repair_text(partition.meta):
            self.say(f"{spec.cell.partition}: {moved}, to give every client {spec.partition.common.min_samples}")
        return partition

    def get_partition(self, spec: RunSpec) -> Any:
        """The partition, made first if it is missing."""
        from fedbench.partition.partition import load_partition

        store = self.get_store(spec)
        folder = self.plan.paths.partition(spec.cell.dataset, spec.cell.partition, spec.seed)
        exists = (folder / "partition.json").exists()
        return load_partition(folder, spec.partition_spec, store.sha256) if exists else self.make_partition(spec)

    def make_base(self, spec: RunSpec, checkpoints: Path) -> None:
        """Make a base model afresh, or continue its central training."""
        folder = self.plan.paths.base(spec.cell.dataset, spec.cell.model)
        with alone(folder, checkpoint_of(folder, checkpoints), self.say):
            self._make_base(spec, folder, checkpoints)

    def _make_base(self, spec: RunSpec, folder: Path, checkpoints: Path) -> None:
        from fedbench.bases.base import make_base
        from fedbench.site.progress import Progress

        device = choose_device(self.device)
        store = self.get_store(spec)
        self.say(f"making the base of {spec.cell.model} on {spec.cell.dataset} -> {folder}")
        set_threads(self.threads)
        make_base(
            spec,
            store,
            folder,
            self.data_root,
            device=device,
            threads=self.threads,
            progress=Progress(),
            # named by the spec, so that an edited recipe starts anew beside what an older one left behind
            checkpoint=checkpoint_of(folder, checkpoints) / digest(spec.base_spec),
        )

    def get_base(self, spec: RunSpec, checkpoints: Path) -> Any:
        """The base model, made first if it is missing."""
        from fedbench.bases.base import load_base
        from fedbench.files.io import read_json

        folder = self.plan.paths.base(spec.cell.dataset, spec.cell.model)
        made = folder / "base.json"
        if not made.exists():
            with alone(folder, checkpoint_of(folder, checkpoints), self.say):
                if not made.exists():  # no other process made it meanwhile
                    self._make_base(spec, folder, checkpoints)
        base = load_base(folder, spec.base_spec, self.get_store(spec).sha256)
        if weights_changed(spec, read_json(made), made, self.data_root):
            raise FedbenchError(
                f"{folder}: {spec.base.path} below {self.data_root} changed since it was taken; run `fedbench "
                "pretrain` again, or give the --data-root of what was taken"
            )
        return base

    def train(
        self,
        spec: RunSpec,
        out: Path | None,
        checkpoints: Path,
        chunk: int | None = None,
        overwrite: bool = False,
        time_limit: float | None = None,
    ) -> Path:
        """Run one cell, or continue it from its checkpoint; returns its folder.

        Parameters
        ----------
        spec : any combination of the config's entries, in an experiment or not
        out : the run's folder; below the results folder where not given
        checkpoints : folder of all checkpoints
        chunk : clients trained at once; None lets the engine choose
        overwrite : replace what another spec left in `out`
        time_limit : seconds after which to save and stop; shortly before the SLURM job around it ends where not given

        Raises
        ------
        fedbench.engine.interrupt.Interrupted
            If the run was told to stop before its last round.
        """
        from fedbench.engine.federation import Compute
        from fedbench.engine.run import RunFolder, run
        from fedbench.site import allocation
        from fedbench.site.progress import Progress

        device = choose_device(self.device)
        store, partition, base = self.get_store(spec), self.get_partition(spec), self.get_base(spec, checkpoints)
        folder = out or self.plan.paths.run(spec.cell)
        keep_freed_memory()
        run(
            spec,
            store,
            partition,
            base,
            RunFolder(folder, checkpoint_of(folder, checkpoints), overwrite),
            Compute(device, self.threads, chunk),
            progress=Progress(),
            time_limit=allocation.time_limit() if time_limit is None else time_limit,
            say=self.say,
        )
        return folder


def choose_device(name: str) -> Any:
    """``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or ``cuda:1`` as a torch device.

    Raises
    ------
    FedbenchError
        If there is no such device here.
    """
    import torch

    return torch.device(resolve(name, torch.cuda.device_count()))


def set_threads(count: int) -> None:
    """Bound torch's threads before it computes anything."""
    import torch

    torch.set_num_threads(count)


def keep_freed_memory() -> None:
    """Let the C library reuse freed memory instead of giving it back to the system, where it can be told so (glibc).

    Every step of local training frees its gradients and asks for as many bytes again. By default large ones go back
    to the system, and to get them again page by page was seen to take a tenth of a small CNN's step.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        m_trim_threshold, m_mmap_threshold = -1, -3  # malloc.h
        mallopt(m_mmap_threshold, 32 << 20)  # the largest that glibc takes
        mallopt(m_trim_threshold, 1 << 30)
