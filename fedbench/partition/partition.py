"""Partitions: which client holds which samples, as an artifact with its statistics and picture.

A scheme file only assigns training samples to clients. What every scheme shares is here and in the helpers beside it:
bounded draws and repair, test samples in the same proportions, validation samples, and the checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench.data.artifact import check_data, check_spec, hashes
from fedbench.data.store import TEST, TRAIN, Store
from fedbench.errors import FedbenchError
from fedbench.files import io
from fedbench.files.products import PARTITION
from fedbench.partition._draw import Draw as Draw
from fedbench.partition._draw import Pool as Pool
from fedbench.partition._draw import draw
from fedbench.partition._follow import assign_tests, natural_tests, split_validation
from fedbench.partition._statistics import skew

if TYPE_CHECKING:
    from fedbench.config.reading import Entry

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


def make_partition(partition: Entry, store: Store, seed: int) -> Partition:
    """Divide a store's training and test samples among clients.

    Parameters
    ----------
    partition : the config's entry
    store : public samples are left out
    seed : another seed is another partition; the same seed is the same one, everywhere

    Raises
    ------
    FedbenchError
        If a constraint cannot be met; never a silent fallback to another scheme.
    """
    from fedbench.config.spec import plain as plain
    from fedbench.registry import PARTITION_SCHEMES

    entry, where = partition.common, f"partitions.{partition.name}"
    train, test = (np.flatnonzero(store.splits == split) for split in (TRAIN, TEST))
    groups = None if store.groups is None else store.groups[train]
    names = (store.class_names, store.domain_names, where, store.group_names)
    pool = Pool(store.labels[train], store.domains[train], groups, *names)
    scheme = PARTITION_SCHEMES[entry.scheme].target
    least, most = entry.min_samples, entry.max_moved
    drawn, draws, moved = draw(scheme, partition.options, pool, entry.clients, least, seed, entry.scheme, most)
    counts = np.zeros((entry.clients, store.classes), dtype=np.int64)
    np.add.at(counts, (drawn.clients, pool.labels), 1)
    if drawn.movable:
        of_tests = (store.labels[test], store.domains[test])
        owners = assign_tests(counts, *of_tests, drawn.domains, seed, where, store.domain_names)
    else:
        owners = natural_tests(pool.groups, drawn.clients, store.groups[test], pool.group_names, where)
    parts = [split_validation(train[drawn.clients == k], entry.validation, seed, k) for k in range(entry.clients)]
    result = Partition(
        train=[part[0] for part in parts],
        validation=[part[1] for part in parts],
        test=[test[owners == k] for k in range(entry.clients)],
        client_domains=np.array([_majority(pool.domains[drawn.clients == k]) for k in range(entry.clients)]),
        meta={},
    )
    check(result, where, store)
    result.meta = {
        "spec": {"dataset": store.meta["spec"], "partition": plain(partition), "seed": seed},
        "scheme": entry.scheme,
        "clients": entry.clients,
        "seed": seed,
        "draws": draws,
        "moved_by_repair": moved,
        "duplicates": store.meta.get("duplicates", 0),
        "statistics": skew(counts),
        "single_domain_clients": all(
            len(np.unique(pool.domains[drawn.clients == client])) == 1 for client in range(entry.clients)
        ),
        "sizes": {split: [len(part) for part in getattr(result, split)] for split in SPLITS},
        "counts": counts,
        "client_names": drawn.names,
        "class_names": list(store.class_names),
        "domain_names": list(store.domain_names),
        "data_sha256": store.sha256,
        "sha256": hashes(_flat(result))["all"],
    }
    return result


def repair_text(meta: Mapping[str, Any]) -> str:
    """What partition.json says about samples that repair moved, as half a sentence; nothing if it moved none."""
    moved, total = meta.get("moved_by_repair", 0), int(np.sum(meta["counts"]))
    return f"repair moved {moved:,} of {total:,} training samples ({moved / total:.1%})" if moved else ""


def _majority(values: np.ndarray) -> int:
    return int(np.bincount(values).argmax())


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


def write(partition: Partition, out: Path) -> None:
    """Write ``out/{partition.npz,partition.json,partition.png}``; the folder appears whole or not at all."""
    from fedbench.partition._picture import picture

    with io.writing_folder(out, PARTITION) as folder:
        io.write_arrays(folder / "partition.npz", **_flat(partition))
        io.write_json(folder / "partition.json", partition.meta)
        io.write_bytes(folder / "partition.png", picture(partition))


def _flat(partition: Partition) -> dict[str, np.ndarray]:
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
