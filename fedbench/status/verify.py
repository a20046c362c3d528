"""Whether files are still those that were written: every byte of a config's data, partitions, bases and runs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench.config.identity import Present, mismatch
from fedbench.config.plan import Plan
from fedbench.config.spec import Cell
from fedbench.errors import FedbenchError
from fedbench.files.io import damage, read_json, read_sealed


@dataclass(frozen=True)
class Checked:
    """One product that is there.

    Attributes
    ----------
    kind : "data set", "partition", "base" or "run"
    damaged : what is wrong with its files, in one line
    outdated : what it is, if not what the config asks for
    """

    kind: str
    folder: Path
    damaged: str | None = None
    outdated: str | None = None


def verify(plan: Plan) -> Iterator[Checked]:
    """Check all products of a plan's cells that are there, each once; those that are not there are passed over."""
    paths, present = plan.paths, Present(plan.paths)
    for kind, folder, facts, check in dict.fromkeys(_products(plan)):
        if not (folder / facts).exists():
            continue
        found = Checked(kind, folder)
        try:
            check(folder)
        except FedbenchError as error:
            found = replace(found, damaged=str(error))
        yield found
    for cell in plan.cells:
        folder = paths.run(cell)
        if (folder / "summary.json").exists():
            yield _run(plan, present, cell, folder)


def _products(plan: Plan) -> Iterator[tuple[str, Path, str, Callable[[Path], Any]]]:
    for cell in plan.cells:
        yield "data set", plan.paths.data(cell.dataset), "dataset.json", _data
        partition = plan.paths.partition(cell.dataset, cell.partition, cell.seed)
        yield "partition", partition, "partition.json", _partition
        yield "base", plan.paths.base(cell.dataset, cell.model), "base.json", _base


def _data(folder: Path) -> None:
    from fedbench.data.store import load_store

    load_store(folder, limit=None)


def _partition(folder: Path) -> None:
    from fedbench.partition.partition import load_partition

    load_partition(folder)


def _base(folder: Path) -> None:
    # without torch, which reads weights only to train or test them
    recorded = read_json(folder / "base.json", "sha256")["sha256"]
    found = damage(folder, {"base.safetensors": recorded})
    if found:
        raise FedbenchError(f"{found}; delete the folder and run `fedbench pretrain` again")


def _run(plan: Plan, present: Present, cell: Cell, folder: Path) -> Checked:
    try:
        summary = read_sealed(folder / "summary.json")
        found = damage(folder, summary["files"])
        if found:
            return Checked("run", folder, f"{found}; delete the folder and run it again")
        return Checked("run", folder, outdated=mismatch(summary, present.identity(cell, plan.run_digest(cell))))
    except FedbenchError as error:  # of the summary, or of an input's facts
        return Checked("run", folder, str(error))
