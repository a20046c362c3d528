"""What papers have published, and the settings that they say their numbers belong to.

A paper is two files here: ``NAME.csv`` has its numbers, each beside the names of the cell (data set, partition, model,
method, as in the benchmark's config) that answers the same question; ``NAME.yaml`` has its title, its number of seeds,
what it leaves unsaid, and its settings as paths into a run's spec. An experiment names it with ``paper: NAME``.

Nothing here is a result of this benchmark, and whether a setting matches is computed from the run's own spec.
"""

import csv
import hashlib
import importlib.resources
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from fedbench.errors import FedbenchError, nearest
from fedbench.plain_yaml import plain_yaml

MISSING = object()
AXES = ("table", "dataset", "partition", "model", "method")


@dataclass(frozen=True)
class Published:
    """One published number, or the same number of several tables.

    Attributes
    ----------
    table : where the paper says it
    dataset, partition, model, method : the cell that answers the same question
    measure : ``personal_mean``, ``personal_p10``, ..., or ``global``
    value, std : shares in 0..1; `std` is None where the paper gives none
    bytes : of one client's message, up; None where the paper gives none
    """

    table: str
    dataset: str
    partition: str
    model: str
    method: str
    measure: str
    value: float
    std: float | None
    bytes: float | None


@dataclass(frozen=True)
class Paper:
    """A paper's numbers and settings."""

    name: str
    title: str
    seeds: int | None
    unstated: tuple[str, ...]
    settings: tuple[Mapping[str, Any], ...]
    numbers: tuple[Published, ...]

    def declared(self, number: Published) -> dict[str, Any]:
        """The settings behind a number, by path into a run's spec."""
        found: dict[str, Any] = {}
        for block in self.settings:
            where = block.get("where", {})
            if all(_matches(getattr(number, axis), patterns) for axis, patterns in where.items()):
                found |= block["are"]
        return found

    def deviations(self, number: Published, spec: Mapping[str, Any]) -> list[str]:
        """Where a run's spec (``RunSpec.full``) departs from what the paper says, in words; [] if nowhere."""
        return [
            f"{path} {_text(ours)} (paper: {_text(theirs)})"
            for path, theirs in self.declared(number).items()
            if (ours := _look_up(spec, path)) != theirs
        ]


def names() -> list[str]:
    """Papers that an experiment can name."""
    folder = importlib.resources.files(__name__)
    return sorted(entry.name.removesuffix(".csv") for entry in folder.iterdir() if entry.name.endswith(".csv"))


def find(name: str, path: str) -> Paper:
    """The paper of that name; a wrong name (at `path` in a config) ends in a message with the nearest right one."""
    if name not in names():
        raise FedbenchError(f"{path}: unknown paper {name!r}; {nearest(name, names())}")
    return read(name)


@cache
def read(name: str) -> Paper:
    """Read a paper's two files."""
    facts = plain_yaml(_file(f"{name}.yaml"), f"{name}.yaml")
    numbers = [
        Published(
            **{axis: row[axis] for axis in (*AXES, "measure")},
            value=float(row["value"]) / 100,
            std=float(row["std"]) / 100 if row["std"] else None,
            bytes=float(row["bytes"]) if row["bytes"] else None,
        )
        for row in csv.DictReader(_file(f"{name}.csv").splitlines())
    ]
    return Paper(
        name, facts["title"], facts["seeds"], tuple(facts["unstated"]), tuple(facts["settings"]), tuple(numbers)
    )


@cache
def digest(name: str) -> str:
    """Identity of a paper's files."""
    return hashlib.sha256((_file(f"{name}.csv") + _file(f"{name}.yaml")).encode()).hexdigest()[:16]


def merged(numbers: Iterable[Published]) -> list[Published]:
    """Numbers with those that several tables repeat, all alike, as one."""
    tables: dict[tuple, dict[str, Published]] = {}
    for number in numbers:
        key = (*(getattr(number, axis) for axis in AXES[1:]), number.measure, number.value, number.std)
        tables.setdefault(key, {}).setdefault(number.table, number)
    return [_joined(list(same.values())) for same in tables.values()]


def _joined(same: list[Published]) -> Published:
    sizes = [number.bytes for number in same if number.bytes is not None]
    return replace(same[0], table=", ".join(number.table for number in same), bytes=sizes[0] if sizes else None)


def _matches(name: str, patterns: str | list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in ([patterns] if isinstance(patterns, str) else patterns))


def _file(name: str) -> str:
    return importlib.resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _look_up(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return MISSING
        value = value[key]
    return value


def _text(value: Any) -> str:
    if value is MISSING or value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
