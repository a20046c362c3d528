"""Values out of resolved specs, and the runs of an experiment ordered by them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from fedbench.config.spec import Cell, resolve
from fedbench.errors import FedbenchError, nearest

if TYPE_CHECKING:
    import pandas as pd

    from fedbench.analysis.collect import ExperimentData

# Sections of a resolved spec whose values belong to an axis of cells: points along it share a panel.
AXES = {"dataset": "dataset", "partition": "partition", "model": "model", "base": "model"}
VARIANT = ["dataset", "partition", "model", "method"]


@dataclass(frozen=True)
class Variant:
    """The seeds of one method on one task, with its place in a sweep.

    Attributes
    ----------
    x : value of the swept key; None if the spec has none
    series : values of the keys that tell lines apart, by key; those that the spec lacks are left out
    """

    method: str
    x: Any
    series: Mapping[str, Any]
    spec: Mapping[str, Any]
    runs: pd.DataFrame | None


def spec_of(data: ExperimentData, cell: Mapping[str, Any]) -> dict[str, Any]:
    """The resolved spec, as plain data without the seed, of a run's dataset, partition, model and method."""
    names = {axis: cell[axis] for axis in VARIANT}
    full = resolve(data.config, Cell(**names, seed=0)).full
    return {key: value for key, value in full.items() if key != "seed"}


def look_up(spec: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path, None where there is none; IID clients are Dirichlet's limit of infinite alpha."""
    if path == "partition.alpha" and spec["partition"]["scheme"] == "iid":
        return inf
    for key in path.split("."):
        if not isinstance(spec, Mapping) or key not in spec:
            return None
        spec = spec[key]
    if isinstance(spec, Mapping):
        return None
    return tuple(spec) if isinstance(spec, list) else spec


def variants(data: ExperimentData, runs: pd.DataFrame, x: str, *series: str) -> list[Variant]:
    """The variants among `runs`, in the order of the experiment."""
    found = []
    for names, part in runs.groupby(VARIANT, sort=False):
        spec = spec_of(data, dict(zip(VARIANT, names, strict=True)))
        found.append(variant(names[-1], spec, part, x, *series))
    return found


def variant(method: str, spec: Mapping[str, Any], runs: pd.DataFrame | None, x: str, *series: str) -> Variant:
    """One variant from its spec; without runs while nothing has run."""
    told = {key: value for key in series if (value := look_up(spec, key)) is not None}
    return Variant(method, look_up(spec, x), told, spec, runs)


def check_key(data: ExperimentData, key: str, where: str) -> None:
    """Raise if no run of the experiment has a value at `key`."""
    specs = [spec_of(data, row) for row in data.runs.drop_duplicates(VARIANT).to_dict("records")]
    if unknown := unknown_key(specs, key):
        raise FedbenchError(f"{where}: {unknown}")


def unknown_key(specs: Collection[Mapping[str, Any]], key: str) -> str | None:
    """What is wrong with a key at which no spec has a value; None if one has."""
    if any(look_up(spec, key) is not None for spec in specs):
        return None
    known = dict.fromkeys(path for spec in specs for path, _ in leaves(spec))
    return f"no run's resolved spec has a value at {key!r}; {nearest(key, known)}"


def leaves(spec: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted paths and values of a spec, without those that are none."""
    for key, value in spec.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """The first key at which two specs differ."""
    left, right = dict(leaves(one)), dict(leaves(other))
    return next((key for key in {**left, **right} if left.get(key) != right.get(key)), None)
