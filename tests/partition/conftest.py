"""Fixtures of the partition tests."""

import numpy as np
import pytest
from small_partitions import partition_of, small_store

from fedbench.data.store import Store
from fedbench.partition.partition import Partition


@pytest.fixture
def make_store():
    return small_store


@pytest.fixture
def make():
    return partition_of


@pytest.fixture
def counts_of():
    """Training and validation samples of each client and class, int [K, C]."""

    def counts(partition: Partition, store: Store) -> np.ndarray:
        parts = zip(partition.train, partition.validation, strict=True)
        return np.array([np.bincount(store.labels[np.concatenate(p)], minlength=store.classes) for p in parts])

    return counts
