"""Small stores without pixels worth looking at, and partitions of them."""

import numpy as np

from fedbench.config.reading import parse_entry
from fedbench.data.store import PUBLIC, PUBLIC_TEST, TEST, TRAIN, Store
from fedbench.partition.make_partition import make_partition
from fedbench.partition.partition import Partition


def small_store(
    train: int = 1200, test: int = 300, classes: int = 10, domains: int = 4, groups: int = 0, public: int = 60
) -> Store:
    """Classes and domains in turn, one after another, so that every (domain, class) has both splits."""
    sizes = {TRAIN: train, TEST: test, PUBLIC: public, PUBLIC_TEST: public // 2}
    splits = np.concatenate([np.full(size, split, dtype=np.uint8) for split, size in sizes.items()])
    number = np.concatenate([np.arange(size) for size in sizes.values()])
    return Store(
        images=np.zeros((len(splits), 1, 1, 1), dtype=np.uint8),
        labels=(number % classes).astype(np.int64),
        domains=(number // classes % domains).astype(np.int64),
        splits=splits,
        class_names=tuple(f"class{label}" for label in range(classes)),
        domain_names=tuple(f"domain{domain}" for domain in range(domains)),
        groups=(number % groups).astype(np.int64) if groups else None,
        meta={"spec": {"source": "test"}, "sha256": {"all": "0" * 64}},
    )


def partition_of(store: Store, seed: int = 0, **keys) -> Partition:
    """Make a partition from config keys."""
    return make_partition(parse_entry("partitions", "mine", keys), store, seed)
