"""Raw data, results and checkpoints lie apart: no stage may write where raw data are, or read what a stage wrote."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.config.spec import digest
from fedbench.errors import FedbenchError

if TYPE_CHECKING:
    from fedbench.config.plan import Plan

# Folders below the results folder that stages write to; a run may be put anywhere below the first two.
RUNS = ("runs", "trials")
PRODUCTS = (*RUNS, "data", "partitions", "bases", "tables", "figures", "logs", "benchmarks")


@dataclass(frozen=True)
class Place:
    """A file or folder, there or not, and what it is called."""

    name: str
    path: Path

    @cached_property
    def real(self) -> Path:
        return Path(os.path.realpath(self.path))

    @cached_property
    def identities(self) -> list[tuple[int, int] | None]:
        """What the file system takes the place and the folders above it for; None for what is not there."""
        return [_identity(path) for path in (self.real, *self.real.parents)]

    def within(self, other: Place) -> bool:
        """Whether this place is the other one or lies in it, by names or by what the file system says."""
        identity = other.identities[0]
        return self.real.is_relative_to(other.real) or (identity is not None and identity in self.identities)

    def relation(self, other: Place) -> str | None:
        """How this place overlaps the other one; None where they lie apart."""
        inside, around = self.within(other), other.within(self)
        return "is also" if inside and around else "lies in" if inside else "contains" if around else None


def check(plan: Plan, data_root: Path | None = None, checkpoints: Path | None = None, out: Path | None = None) -> None:
    """Refuse places that overlap, however they are spelt and whatever links lead to them.

    Side by side, or results and data below one folder's different subfolders, is fine.

    Parameters
    ----------
    data_root : folder of raw data sets and weights; what the environment or the default says where not given
    checkpoints : folder of all checkpoints; the default where not given
    out : a run's own folder

    Raises
    ------
    FedbenchError
        Naming the first two places that overlap.
    """
    root = Path(os.environ.get("FEDBENCH_DATA") or "data") if data_root is None else data_root
    saved = Place("the checkpoints folder", checkpoints or Path("checkpoints"))
    products = [Place(f"the results' {name}/", plan.paths.root / name) for name in PRODUCTS]
    raw, weights = [Place("the data root", root), *_sources(plan, root)], _weights(plan, root)
    for first in (*products, saved):
        for second in (*raw, *(weights if first is not saved else ())):
            _apart(first, second, "give other --results, --checkpoints or --data-root (FEDBENCH_DATA)")
    for product in products:
        _apart(product, saved, "give other --results or --checkpoints")
    if out is None:
        return
    run = Place("--out", out)
    for other in (*raw, *products[len(RUNS) :], saved):
        if run.within(other):
            _apart(run, other, "give another --out")


def _sources(plan: Plan, root: Path) -> list[Place]:
    """What data sets are read from; those without a path lie below the data root."""
    paths = {name: getattr(dataset.options, "path", None) for name, dataset in plan.config.datasets.items()}
    return [Place(f"the source of data set {name}", root / path) for name, path in paths.items() if path]


def _weights(plan: Plan, root: Path) -> list[Place]:
    return [
        Place(f"the weights of base {name}", root / base.path) for name, base in plan.config.bases.items() if base.path
    ]


def _apart(first: Place, second: Place, advice: str) -> None:
    relation = first.relation(second)
    if relation:
        raise FedbenchError(f"{first.name} ({first.path}) {relation} {second.name} ({second.path}); {advice}")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def checkpoint_of(folder: Path, checkpoints: Path) -> Path:
    """Where a run or base keeps its checkpoint and lock: below the checkpoints folder, named after its own place.

    Outside the results, because Snakemake deletes the outputs of a job that failed. However a place is spelt, and
    from wherever, its checkpoint is the same, and no two places share one: a place beside the checkpoints folder, or
    below what lies beside it, goes by its path from there, any other by its name and a digest of its path.
    """
    beside = _folder_of(checkpoints, os.getcwd())
    place = os.path.realpath(folder)
    if place.startswith(beside):
        return checkpoints / place[len(beside) :]
    return checkpoints / "elsewhere" / f"{os.path.basename(place)}-{digest(place)}"


@cache  # status asks for thousands
def _folder_of(place: Path, _cwd: str) -> str:
    """The folder that a place really lies in, with a slash at its end."""
    return os.path.join(os.path.dirname(os.path.realpath(place)), "")
