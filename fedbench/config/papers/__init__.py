"""What papers have published, and the settings that they say their numbers belong to.

A paper is two files here: ``NAME.csv`` has its numbers, each beside the names of the cell (data set, partition, model,
method, as in the benchmark's config) that answers the same question; ``NAME.yaml`` has its title, its number of seeds,
what it leaves unsaid, and its settings as paths into a run's spec. An experiment names it with ``paper: NAME``.

Nothing here is a result of this benchmark, and whether a setting matches is computed from the run's own spec, of which
every setting is either what the paper says, or what config.yaml has where it says nothing, or declared to be free.
"""

import csv
import hashlib
import importlib.resources
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from fedbench.config.plain_yaml import plain_yaml
from fedbench.errors import FedbenchError, nearest

MISSING = object()
AXES = ("table", "dataset", "partition", "model", "method")
SOURCES = {"are": "paper", "ours": "config.yaml"}
# Sections of a spec, and the key of each that names its plug-in.
KINDS = {
    "dataset": "source",
    "partition": "scheme",
    "model": "backbone",
    "base": "kind",
    "method": "method",
    "channel": "codec",
}


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
    unset: Mapping[str, Any] = field(default_factory=dict)
    """What a spec's null stands for, by path."""

    def declared(self, number: Published) -> dict[str, Any]:
        """The settings behind a number, by path into a run's spec: the paper's, and ours where it has none."""
        return {path: setting.value for path, setting in self._declared(number).items()}

    def deviations(self, number: Published, spec: Mapping[str, Any]) -> list[str]:
        """Where a run's spec (``RunSpec.full``) departs from what is declared, in words; [] if nowhere.

        A setting of the spec that is neither declared nor free is a departure, too.
        """
        declared = self._declared(number)
        free = [pattern for block in self._blocks(number) for pattern in block.get("free", ())]
        ours = {path: self._look_up(spec, path) for path in declared}
        # Options that only one of two plug-ins has say no more than that they are two.
        kinds = {section: f"{section}.{key}" for section, key in KINDS.items()}
        other = {section for section, path in kinds.items() if path in ours and ours[path] != declared[path].value}
        moot = {path for path, value in ours.items() if value is MISSING and _section(path) in other}
        moot -= set(kinds.values())
        found = [
            f"{path} {_text(ours[path])} ({setting.source}: {_text(setting.value)})"
            for path, setting in declared.items()
            if ours[path] != setting.value and path not in moot
        ]
        return found + [
            f"{path} {_text(value)} (unknown to this comparison)"
            for path, value in _leaves(spec)
            if not (_within(path, declared) or _matches(path, free) or _section(path) in other)
        ]

    def _look_up(self, spec: Mapping[str, Any], path: str) -> Any:
        value: Any = spec
        for key in path.split("."):
            if not isinstance(value, Mapping) or key not in value:
                return MISSING
            value = value[key]
        return self.unset.get(path) if value is None else _plain(value)

    def _blocks(self, number: Published) -> list[Mapping[str, Any]]:
        return [
            block
            for block in self.settings
            if all(_matches(getattr(number, axis), patterns) for axis, patterns in block.get("where", {}).items())
        ]

    def _declared(self, number: Published) -> dict[str, "Setting"]:
        found: dict[str, Setting] = {}
        for block in self._blocks(number):
            for key, source in SOURCES.items():
                found |= {path: Setting(_plain(value), source) for path, value in block.get(key, {}).items()}
        return found


@dataclass(frozen=True)
class Setting:
    """A value and who says it."""

    value: Any
    source: str


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
        name,
        facts["title"],
        facts["seeds"],
        tuple(facts["unstated"]),
        tuple(facts["settings"]),
        tuple(numbers),
        facts["unset"],
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


def _leaves(spec: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in spec.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _plain(value)


def _within(path: str, declared: Iterable[str]) -> bool:
    """Whether a path is declared, or one above or below it."""
    return any(f"{path}.".startswith(f"{known}.") or known.startswith(f"{path}.") for known in declared)


def _section(path: str) -> str:
    return path.partition(".")[0]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    if value is MISSING or value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items() if part is not None)
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
