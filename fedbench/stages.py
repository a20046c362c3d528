"""The stages of the benchmark as functions of names: what the commands, and through them the rules, call.

`prepare`, `partition` and `pretrain` make one thing; `train` and its inputs are made on demand, each saying
so in one line. An input that was made from another spec is an error that names it, never silently used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbench.gpus import resolve
from fedbench.locking import alone
from fedbench.plan import Plan
from fedbench.spec import RunSpec, digest


@dataclass(frozen=True)
class Workspace:
    """A plan, where its raw data lie, and what to compute with."""

    plan: Plan
    data_root: Path
    device: str
    threads: int
    say: Callable[[str], None]

    def prepare(self, spec: RunSpec) -> Any:
        """Prepare a data set afresh; returns the store."""
        from fedbench.data.base import prepare

        folder = self.plan.paths.data(spec.cell.dataset)
        self.say(f"preparing data set {spec.cell.dataset} -> {folder}")
        store = prepare(spec.dataset, folder, self.data_root)
        if same := store.meta["duplicates"]:
            self.say(f"{spec.cell.dataset}: {same:,} test images are training images as well (all pixels equal)")
        return store

    def store(self, spec: RunSpec) -> Any:
        """The prepared data set, prepared first if it is missing."""
        from fedbench.data.base import load_store

        folder = self.plan.paths.data(spec.cell.dataset)
        return load_store(folder, spec.data_spec) if (folder / "dataset.json").exists() else self.prepare(spec)

    def partition(self, spec: RunSpec) -> Any:
        """Divide a data set over clients afresh; returns the partition."""
        from fedbench.partition.base import make_partition, repair_text, write

        store = self.store(spec)
        folder = self.plan.paths.partition(spec.cell.dataset, spec.cell.partition, spec.seed)
        self.say(f"partitioning {spec.cell.dataset} by {spec.cell.partition}, seed {spec.seed} -> {folder}")
        partition = make_partition(spec.partition, store, spec.seed)
        write(partition, folder)
        if moved := repair_text(partition.meta):
            self.say(f"{spec.cell.partition}: {moved}, to give every client {spec.partition.entry.min_samples}")
        return partition

    def clients(self, spec: RunSpec) -> Any:
        """The partition, made first if it is missing."""
        from fedbench.partition.base import load_partition

        store = self.store(spec)
        folder = self.plan.paths.partition(spec.cell.dataset, spec.cell.partition, spec.seed)
        exists = (folder / "partition.json").exists()
        return load_partition(folder, spec.partition_spec, store.sha256) if exists else self.partition(spec)

    def pretrain(self, spec: RunSpec, checkpoints: Path) -> None:
        """Make a base model afresh, or continue its central training."""
        folder = self.plan.paths.base(spec.cell.dataset, spec.cell.model)
        with alone(folder, checkpoint_of(folder, checkpoints), self.say):
            self._pretrain(spec, folder, checkpoints)

    def _pretrain(self, spec: RunSpec, folder: Path, checkpoints: Path) -> None:
        from fedbench.pretrain import make_base
        from fedbench.progress import Progress

        device = choose_device(self.device)
        store = self.store(spec)
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

    def base(self, spec: RunSpec, checkpoints: Path) -> Any:
        """The base model's weights, made first if they are missing."""
        from fedbench.models.build import load_base

        folder = self.plan.paths.base(spec.cell.dataset, spec.cell.model)
        if not (folder / "base.json").exists():
            with alone(folder, checkpoint_of(folder, checkpoints), self.say):
                if not (folder / "base.json").exists():  # no other process made it meanwhile
                    self._pretrain(spec, folder, checkpoints)
        return load_base(folder, spec.base_spec, self.store(spec).sha256)

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
        from fedbench import allocation
        from fedbench.engine.rounds import run
        from fedbench.progress import Progress

        device = choose_device(self.device)
        store, partition, base = self.store(spec), self.clients(spec), self.base(spec, checkpoints)
        folder = out or self.plan.paths.run(spec.cell)
        set_threads(self.threads)
        keep_freed_memory()
        run(
            spec,
            store,
            partition,
            base,
            folder,
            checkpoint_of(folder, checkpoints),
            device=device,
            threads=self.threads,
            chunk=chunk,
            progress=Progress(),
            overwrite=overwrite,
            time_limit=allocation.time_limit() if time_limit is None else time_limit,
            say=self.say,
        )
        return folder


def checkpoint_of(folder: Path, checkpoints: Path) -> Path:
    """Where a run keeps its checkpoint: the output folder's path, below the checkpoints folder.

    Outside the results, because Snakemake deletes the outputs of a job that failed.
    """
    return checkpoints / Path(*[part for part in folder.parts if part not in (folder.anchor, "..", ".")])


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
