"""Partitions: which client holds which samples, as an artifact that is checked whenever it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.data.artifact import check_data, check_spec, hashes
from fedbench.data.store import TEST, TRAIN, Store
from fedbench.errors import FedbenchError
from fedbench.files import io

SPLITS = ("train", "validation", "test")


@dataclass
class Partition:
    """The samples of each client.

    Attributes
    ----------
    train, validation, test : one array per client, int64, sorted indices into the store
    client_domains : int64 [K], domain of most of each client's training samples
    meta : what partition.json says (spec, statistics, counts [K, C], sha256, ...)
    """

    train: list[np.ndarray]
    validation: list[np.ndarray]
    test: list[np.ndarray]
    client_domains: np.ndarray
    meta: dict[str, Any]

    @property
    def clients(self) -> int:
        return len(self.train)

    @property
    def sha256(self) -> str:
        """One hash over all clients' indices."""
        return self.meta["sha256"]


def check(partition: Partition, where: str, store: Store | None = None) -> None:
    """Make sure that no sample is in two splits or two clients, and (given the store) that none is left out.

    Raises
    ------
    FedbenchError
        Naming the first sample or client that is wrong.
    """
    owner: dict[int, str] = {}
    for split in SPLITS:
        for client, samples in enumerate(getattr(partition, split)):
            place = f"client {client}'s {split} samples"
            for sample in samples.tolist():
                if sample in owner:
                    raise FedbenchError(f"{where}: sample {sample} is in {owner[sample]} and in {place}; make it again")
                owner[sample] = place
            if not len(samples) and split != "validation":
                raise FedbenchError(f"{where}: client {client} has no {split} samples; ask for fewer clients")
    if store is None:
        return
    for kind, splits in ((TRAIN, ("train", "validation")), (TEST, ("test",))):
        held = np.sort(np.concatenate([part for split in splits for part in getattr(partition, split)]))
        if not np.array_equal(held, np.flatnonzero(store.splits == kind)):
            name = "training" if kind == TRAIN else "test"
            raise FedbenchError(f"{where}: clients do not hold exactly the data set's {name} samples; make it again")


def flat(partition: Partition) -> dict[str, np.ndarray]:
    """Lists of arrays as plain arrays: the clients' indices one after another, and their lengths."""
    arrays = {"client_domains": np.asarray(partition.client_domains, dtype=np.int64)}
    for split in SPLITS:
        parts = getattr(partition, split)
        arrays[split] = np.concatenate(parts).astype(np.int64)
        arrays[f"{split}_sizes"] = np.array([len(part) for part in parts], dtype=np.int64)
    return arrays


def load_partition(path: Path, spec: dict[str, Any] | None = None, data_sha256: str | None = None) -> Partition:
    """Read a partition and check it again.

    Raises
    ------
    FedbenchError
        If nothing (or something damaged) is there, or `spec` or the data set's hash is given and is not what it was
        made from.
    """
    path = Path(path)
    if not (path / "partition.json").is_file():
        raise FedbenchError(f"{path}: no partition here; run `fedbench partition` for it first")
    meta = io.read_json(path / "partition.json", "spec", "sha256", "data_sha256")
    check_spec(path, meta["spec"], spec, "fedbench partition")
    check_data(path, meta["data_sha256"], data_sha256, "fedbench partition")
    arrays = io.read_arrays(path / "partition.npz")
    if hashes(arrays)["all"] != meta["sha256"]:
        raise FedbenchError(f"{path}: indices and their SHA-256 differ; delete this folder and make it again")
    parts = {split: np.split(arrays[split], np.cumsum(arrays[f"{split}_sizes"])[:-1]) for split in SPLITS}
    partition = Partition(**parts, client_domains=arrays["client_domains"], meta=meta)
    check(partition, str(path))
    return partition


def repair_text(meta: Mapping[str, Any]) -> str:
    """What partition.json says about samples that repair moved, as half a sentence; nothing if it moved none."""
    moved, total = meta.get("moved_by_repair", 0), int(np.sum(meta["counts"]))
    return f"repair moved {moved:,} of {total:,} training samples ({moved / total:.1%})" if moved else ""
