"""Identity of a run: its spec, and the contents of the data, the partition and the base that it was made from.

A spec names its inputs; what lies under these names can be replaced. A finished run therefore records hashes of their
contents, and whoever reads it compares them with what lies in the results folder now. Inputs that are no longer there,
to save space, are not compared. Nothing here imports torch or numpy: thousands of runs are looked at when a workflow
is planned.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from fedbench.config.spec import Cell, Paths, digest
from fedbench.errors import FedbenchError
from fedbench.files.io import read_json

# Keys of summary.json, and what a difference means.
REASONS = {
    "digest": "made by another spec than the config's",
    "data_sha256": "made from other data",
    "partition_sha256": "made from another partition",
    "base_sha256": "made with another base",
}
# What runs that share these names have to share, too.
SHARED = {
    "data_sha256": ("dataset",),
    "partition_sha256": ("dataset", "partition", "seed"),
    "base_sha256": ("dataset", "model"),
}


def identity(spec_digest: str, data: Any, partition: str | None, base: str | None) -> dict[str, Any]:
    """What identifies a run, under its keys of summary.json.

    Parameters
    ----------
    spec_digest : ``RunSpec.digest``
    data : ``sha256`` of dataset.json, a mapping with the key ``all``
    partition, base : ``sha256`` of partition.json and base.json
    """
    return dict(zip(REASONS, (spec_digest, data, partition, base), strict=True))


def identity_digest(values: Mapping[str, Any]) -> str:
    """An identity as one short text, for checkpoints."""
    return digest([_comparable(values, key) for key in REASONS])


def mismatch(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """In which way a run is not the wanted one, in words; None if it is.

    Parameters
    ----------
    recorded : contents of a summary.json; without ``base_sha256`` where an earlier version wrote it
    wanted : an :func:`identity`; None in it is not compared
    """
    for key, reason in REASONS.items():
        unknown = wanted[key] is None or (key == "base_sha256" and recorded.get(key) is None)
        if not unknown and _comparable(recorded, key) != _comparable(wanted, key):
            return reason
    return None


def _comparable(values: Mapping[str, Any], key: str) -> Any:
    value = values.get(key)
    return value.get("all") if isinstance(value, Mapping) else value


def unrecorded(records: Iterable[Mapping[str, Any]]) -> str | None:
    """One line on runs whose base is not known, or None if there are none."""
    count = sum(record.get("base_sha256") is None for record in records)
    return unrecorded_line(count) if count else None


def unrecorded_line(count: int) -> str:
    """What to say of `count` runs whose base is not known."""
    return f"{count} {'run' if count == 1 else 'runs'} made before bases were recorded: not checked for another base"


def require_agreement(runs: Iterable[tuple[Cell, Mapping[str, Any]]], paths: Paths) -> None:
    """Refuse runs of the same data set, partition or model that were made from different contents of it.

    Their inputs may no longer be there to be compared with.

    Raises
    ------
    FedbenchError
        Naming the first two that differ.
    """
    first: dict[tuple, tuple[Cell, Any]] = {}
    for cell, record in runs:
        for key, names in SHARED.items():
            value = _comparable(record, key)
            if value is None:
                continue
            other, others = first.setdefault((key, *(getattr(cell, name) for name in names)), (cell, value))
            if value != others:
                raise FedbenchError(
                    f"{paths.run(cell)}: {REASONS[key]} than {paths.run(other)} was; they cannot be compared: delete "
                    "the older one and run it again"
                )


class Present:
    """What lies in a results folder now, read once.

    A file that is not there is an empty mapping; a damaged one is an error that names it.
    """

    def __init__(self, paths: Paths):
        self.paths = paths
        self.data = cache(lambda dataset: _facts(paths.data(dataset) / "dataset.json"))
        self.partition = cache(lambda *names: _facts(paths.partition(*names) / "partition.json"))
        self.base = cache(lambda *names: _facts(paths.base(*names) / "base.json"))

    def identity(self, cell: Cell, spec_digest: str) -> dict[str, Any]:
        """The identity that a run has to have today."""
        return identity(
            spec_digest,
            self.data(cell.dataset).get("sha256"),
            self.partition(cell.dataset, cell.partition, cell.seed).get("sha256"),
            self.base(cell.dataset, cell.model).get("sha256"),
        )


def _facts(path: Any) -> Mapping[str, Any]:
    return read_json(path, "sha256") if path.exists() else {}
