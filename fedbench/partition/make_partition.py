"""Making a partition: a scheme assigns training samples to clients, everything else is the same for all schemes.

Shared are bounded draws and repair, test samples in the same proportions, validation samples, statistics, the checks
and the picture.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedbench.data.artifact import hashes
from fedbench.data.store import TEST, TRAIN, Store
from fedbench.files import io
from fedbench.files.products import PARTITION
from fedbench.partition._follow import assign_tests, natural_tests, split_validation
from fedbench.partition._picture import picture
from fedbench.partition._statistics import skew
from fedbench.partition.partition import SPLITS, Partition, check, flat
from fedbench.partition.scheme import Pool, draw

if TYPE_CHECKING:
    from fedbench.config.reading import Entry


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
        "sha256": hashes(flat(result))["all"],
    }
    return result


def _majority(values: np.ndarray) -> int:
    return int(np.bincount(values).argmax())


def write(partition: Partition, out: Path) -> None:
    """Write ``out/{partition.npz,partition.json,partition.png}``; the folder appears whole or not at all."""
    with io.writing_folder(out, PARTITION) as folder:
        io.write_arrays(folder / "partition.npz", **flat(partition))
        io.write_json(folder / "partition.json", partition.meta)
        io.write_bytes(folder / "partition.png", picture(partition))
