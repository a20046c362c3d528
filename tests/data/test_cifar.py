"""The official files are not at hand in tests: small files of the same form stand in for them."""

import hashlib
import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torchvision

from fedbench.config.reading import parse_entry
from fedbench.data import _cifar
from fedbench.data.store import TEST, TRAIN, prepare
from fedbench.errors import FedbenchError
from fedbench.registry import DATA_SOURCES


def batch(count: int, offset: int) -> bytes:
    pixels = (np.arange(count * 3072).reshape(count, 3072) + offset) % 251
    labels = [(offset + number) % 10 for number in range(count)]
    return pickle.dumps({"data": pixels.astype(np.uint8), "labels": labels})


@pytest.fixture
def official(tmp_path, monkeypatch):
    """Write stand-ins for the official CIFAR-10 files and teach torchvision their MD5s."""
    reader = torchvision.datasets.CIFAR10
    folder = tmp_path / "root" / reader.base_folder
    folder.mkdir(parents=True)
    names = {f"data_batch_{number}": batch(10, number) for number in range(1, 6)} | {"test_batch": batch(10, 77)}
    names["batches.meta"] = pickle.dumps({"label_names": [f"class{number}" for number in range(10)]})
    sums = {}
    for name, data in names.items():
        (folder / name).write_bytes(data)
        sums[name] = hashlib.md5(data).hexdigest()
    monkeypatch.setattr(reader, "train_list", [[f"data_batch_{n}", sums[f"data_batch_{n}"]] for n in range(1, 6)])
    monkeypatch.setattr(reader, "test_list", [["test_batch", sums["test_batch"]]])
    monkeypatch.setattr(reader, "meta", {**reader.meta, "md5": sums["batches.meta"]})
    return folder


def cifar(root, out, **keys):
    return prepare(parse_entry("datasets", "c", {"source": "cifar10", **keys}), out, root)


def test_official_folder_is_read_with_its_split(official, tmp_path):
    store = cifar(official.parent, tmp_path / "out")
    assert store.images.shape == (60, 3, 32, 32)
    assert store.meta["test_split"] == "official"
    assert ((store.splits == TRAIN).sum(), (store.splits == TEST).sum()) == (50, 10)
    assert store.class_names[3] == "class3"
    assert store.images[0].ravel().tolist() == [(pixel + 1) % 251 for pixel in range(3072)]
    assert store.labels[:3].tolist() == [1, 2, 3]


def test_changed_files_are_never_unpickled(official, tmp_path):
    trap = tmp_path / "trap"

    class Trap:
        def __reduce__(self):
            return (open, (str(trap), "w"))

    (official / "data_batch_2").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(
        FedbenchError,
        match=r"data_batch_2: not the official file \(MD5 differs\); unpack cifar-10-python\.tar\.gz again",
    ):
        cifar(official.parent, tmp_path / "out")
    assert not trap.exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["data_batch_3", "test_batch", "batches.meta"])
def test_missing_and_cut_files_are_named(official, tmp_path, name):
    (official / name).write_bytes((official / name).read_bytes()[:-5])
    with pytest.raises(FedbenchError, match=rf"{name}: not the official file"):
        cifar(official.parent, tmp_path / "out")
    (official / name).unlink()
    with pytest.raises(FedbenchError, match=rf"{name}: no such file; put all of cifar-10-python\.tar\.gz there"):
        cifar(official.parent, tmp_path / "out")


def test_official_archive_is_unpacked_for_reading_only(official, tmp_path, monkeypatch):
    reader = torchvision.datasets.CIFAR10
    root = tmp_path / "archives"
    root.mkdir()
    with tarfile.open(root / reader.filename, "w:gz") as archive:
        archive.add(official, reader.base_folder)
    with pytest.raises(FedbenchError, match="not the official archive"):
        cifar(root, tmp_path / "out")
    monkeypatch.setattr(reader, "tgz_md5", hashlib.md5((root / reader.filename).read_bytes()).hexdigest())
    assert len(cifar(root, tmp_path / "out").images) == 60
    assert [path.name for path in root.iterdir()] == [reader.filename]


def test_missing_files_say_where_and_what(tmp_path):
    with pytest.raises(FedbenchError, match=r"neither cifar-10-batches-py/ nor cifar-10-python\.tar\.gz is here"):
        cifar(tmp_path, tmp_path / "out")


def test_a_failed_download_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    # A closed port of this machine: no network is needed to see a download fail.
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    with pytest.raises(FedbenchError, match=r"the download into .* failed") as caught:
        cifar(tmp_path / "root", tmp_path / "out", download=True)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "root").iterdir()) == []
    assert not (tmp_path / "out").exists()


def test_a_download_that_another_process_has_finished_first_is_not_put_inside_of_it(official, tmp_path, monkeypatch):
    reader = torchvision.datasets.CIFAR10
    root = tmp_path / "elsewhere"

    def download(temporary, download):
        shutil.copytree(official, Path(temporary) / reader.base_folder)
        shutil.copytree(official, root / reader.base_folder)  # meanwhile, by somebody else

    download.base_folder, download.url, download.filename = reader.base_folder, reader.url, reader.filename
    assert _cifar._download(download, root) == root
    assert [path.name for path in root.iterdir()] == [reader.base_folder]
    assert not (root / reader.base_folder / reader.base_folder).exists()


def test_sources_that_download_only_when_asked_say_so():
    """Their line in `fedbench list datasets` promises no more than their defaults keep."""
    asked = [entry for entry in DATA_SOURCES.values() if getattr(entry.options, "download", None) is False]
    assert {"cifar10", "cifar100"} <= {entry.name for entry in asked}
    assert all("only with `download: true`" in entry.summary for entry in asked)
