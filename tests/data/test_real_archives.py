"""The real archives, where they are at hand."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from fedbench.config.reading import parse_entry
from fedbench.data.store import TEST, TRAIN, prepare

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("FEDBENCH_TEST_DATA", ROOT / "../shared/data"))


def timed(name: str, out: Path):
    if not (DATA / f"{name}.zip").is_file():
        pytest.skip(f"{name}.zip is not in {DATA}; set FEDBENCH_TEST_DATA to the folder that holds it")
    start = time.perf_counter()
    store = prepare(parse_entry("datasets", name, {"source": "image-folder", "path": f"{name}.zip"}), out, DATA)
    assert time.perf_counter() - start < 120
    return store


def test_cifar100(tmp_path):
    store = timed("cifar100", tmp_path / "out")
    assert store.shape == (3, 32, 32)
    assert store.classes == 100
    assert store.meta["test_split"] == "official"
    assert set(np.bincount(store.labels[store.splits == TRAIN])) == {500}
    assert set(np.bincount(store.labels[store.splits == TEST])) == {100}
    assert store.meta["duplicates"] == 10
    mean = np.asarray(store.images[store.splits == TRAIN]).mean(axis=(0, 2, 3)) / 255
    assert mean == pytest.approx([0.5071, 0.4865, 0.4409], abs=1e-4)


def test_pacs(tmp_path):
    store = timed("pacs", tmp_path / "out")
    assert len(store.images) == 9991
    assert store.shape == (3, 96, 96)
    assert store.domain_names == ("art_painting", "cartoon", "photo", "sketch")
    assert store.class_names == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    assert store.meta["test_split"] == "stratified"
    assert (store.splits == TEST).sum() == round(0.2 * 9991)
    house = (store.labels == 5) & (store.domains == 3)
    assert house.sum() == 80
    assert (store.splits[house] == TEST).sum() == 16
