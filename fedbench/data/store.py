"""The prepared data store: one array of images, with labels, domains and splits beside it.

A source reads whatever form a data set comes in; everything after it sees only a :class:`Store`.
Images stay uint8 (normalising is the model's business) and are memory-mapped, so that a data set larger
than memory works, and several runs on one machine share its pages.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedbench.data import raw as raw_files
from fedbench.data._splits import PUBLIC as PUBLIC
from fedbench.data._splits import PUBLIC_TEST as PUBLIC_TEST
from fedbench.data._splits import TEST as TEST
from fedbench.data._splits import TRAIN as TRAIN
from fedbench.data._splits import check_labels, duplicates, public_share, test_split
from fedbench.data.artifact import check_spec, hashes
from fedbench.errors import FedbenchError
from fedbench.files import io
from fedbench.files.products import DATA

if TYPE_CHECKING:
    from fedbench.config.reading import Entry

# Larger images are not read once more by every job; `fedbench verify` reads them all the same.
VERIFIED_BYTES = 4 << 30

# Makes room for uint8 images [N, C, H, W] and returns it; sources fill it in place.
Allocate = Callable[[tuple[int, int, int, int]], np.ndarray]


@dataclass
class RawData:
    """What a source hands over.

    Attributes
    ----------
    images : uint8 [N, C, H, W], the array that the source asked `allocate` for
    labels : int64 [N], indices into `class_names`
    class_names : tuple of str
    domains : int64 [N], indices into `domain_names`; None where the data set has one domain
    domain_names : tuple of str
    splits : uint8 [N] of TRAIN and TEST; None where the data set has no official split
    groups : int64 [N], the natural client of each sample, or None
    meta : plain values worth keeping (where the data came from, group names)
    """

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    domains: np.ndarray | None = None
    domain_names: tuple[str, ...] = ("all",)
    splits: np.ndarray | None = None
    groups: np.ndarray | None = None
    meta: dict[str, Any] = field(default_factory=dict)


class Source(Protocol):
    """What ``DATA_SOURCES`` registers: a class that is made without arguments."""

    def load(self, options: Any, data_root: Path, allocate: Allocate) -> RawData:
        """Read the data set, in the same order every time; user mistakes are FedbenchErrors."""
        ...

    # A source of files that a user may replace also has the method `inputs(options, data_root)`, which names them
    # (folders count with all that is in them), so that a change of them is noticed. It must be cheap: it is asked
    # whenever a workflow is planned.


@dataclass
class Store:
    """A prepared data set.

    Attributes
    ----------
    images : uint8 [N, C, H, W], possibly a read-only memory map
    labels, domains : int64 [N]
    splits : uint8 [N] of TRAIN, TEST, PUBLIC (train samples that no client holds) and PUBLIC_TEST
        (test samples of public classes or domains)
    class_names, domain_names : tuple of str
    groups : int64 [N], natural client of each sample, or None
    meta : what dataset.json says (spec, counts, duplicates, sha256, ...)
    """

    images: np.ndarray
    labels: np.ndarray
    domains: np.ndarray
    splits: np.ndarray
    class_names: tuple[str, ...]
    domain_names: tuple[str, ...]
    groups: np.ndarray | None
    meta: dict[str, Any]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        return self.images.shape[1:]

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the natural clients, by their numbers in `groups`; the numbers where the source has no names."""
        numbers = 0 if self.groups is None else int(self.groups.max()) + 1
        return tuple(self.meta.get("source", {}).get("clients") or map(str, range(numbers)))

    @property
    def sha256(self) -> str:
        """One hash over images, labels, domains, splits and groups."""
        return self.meta["sha256"]["all"]


def inputs(dataset: Entry, data_root: Path) -> Iterable[Path]:
    """The raw files and folders of a data set; none where its source has no files or checks them by itself."""
    from fedbench.registry import DATA_SOURCES

    source = DATA_SOURCES[dataset.common.source].target()
    return source.inputs(dataset.options, Path(data_root)) if hasattr(source, "inputs") else ()


def prepare(dataset: Entry, out: Path, data_root: Path) -> Store:
    """Read a data set, fix its splits and write it as ``out/{images.npy,arrays.npz,dataset.json}``.

    The test split (where the source has none) and the public share are drawn from streams with a fixed seed:
    they belong to the data set and are the same for every partition seed.

    Parameters
    ----------
    dataset : the config's entry
    out : folder to make; it appears whole or not at all
    data_root : folder below which sources look for their files

    Raises
    ------
    FedbenchError
        If the source's files are missing or damaged, labels do not fit, or `out` cannot be written.
    """
    from fedbench.config.spec import plain as plain
    from fedbench.registry import DATA_SOURCES

    entry, where = dataset.common, f"datasets.{dataset.name}"
    with io.writing_folder(out, DATA) as folder:
        source = DATA_SOURCES[entry.source].target()
        raw = source.load(dataset.options, Path(data_root), lambda shape: _make_room(folder / "images.npy", shape))
        arrays = _finish(raw, entry, where)
        meta = {
            "spec": plain(dataset),
            "classes": len(raw.class_names),
            "shape": list(raw.images.shape[1:]),
            "counts": _counts(arrays, raw),
            "test_split": "stratified" if raw.splits is None else "official",
            "duplicates": duplicates(raw.images, arrays["splits"]),
            "sha256": hashes({"images": raw.images, **arrays}),
            "class_names": list(raw.class_names),
            "domain_names": list(raw.domain_names),
            "source": raw.meta,
        }
        files = raw_files.record(inputs(dataset, data_root))
        if files:
            meta["raw"] = files
        raw.images.flush()
        io.write_arrays(folder / "arrays.npz", **arrays)
        io.write_json(folder / "dataset.json", meta)
    return load_store(out)


def load_store(path: Path, spec: dict[str, Any] | None = None, limit: int | None = VERIFIED_BYTES) -> Store:
    """Open a prepared data set; images are memory-mapped read-only.

    Parameters
    ----------
    spec : where given, it must be what was prepared
    limit : compare the images with their SHA-256 if they have no more bytes than that; None compares any

    Raises
    ------
    FedbenchError
        If nothing (or something damaged) is there, or it was made from another spec.
    """
    path = Path(path)
    if not (path / "dataset.json").is_file():
        raise FedbenchError(f"{path}: no prepared data set here; run `fedbench prepare` for it first")
    meta = io.read_json(path / "dataset.json", "spec", "sha256", "shape", "class_names", "domain_names")
    check_spec(path, meta["spec"], spec, "fedbench prepare")
    arrays = io.read_arrays(path / "arrays.npz", "labels", "domains", "splits")
    try:
        with open(path / "images.npy", "rb") as file:  # other versions may claim headers of gigabytes
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError("not a version 1.0 NPY file")
        images = np.lib.format.open_memmap(path / "images.npy", mode="r")  # NPY and nothing else, no pickles
    except Exception as error:  # the header is Python source, which can be damaged in many ways
        raise FedbenchError(f"{path / 'images.npy'}: damaged ({error}); delete the folder and prepare again") from None
    as_recorded = images.dtype == np.uint8 and [*images.shape[1:]] == meta["shape"]
    if not as_recorded or any(len(images) != len(array) for array in arrays.values()):
        raise FedbenchError(f"{path}: images and labels do not fit together; delete the folder and prepare again")
    _verify(path, meta["sha256"], images, arrays, limit)
    return Store(
        images=images,
        labels=arrays["labels"],
        domains=arrays["domains"],
        splits=arrays["splits"],
        class_names=tuple(meta["class_names"]),
        domain_names=tuple(meta["domain_names"]),
        groups=arrays.get("groups"),
        meta=meta,
    )


def _verify(
    path: Path, recorded: dict[str, str], images: np.memmap, arrays: dict[str, np.ndarray], limit: int | None
) -> None:
    """Compare contents with what dataset.json says of them."""
    found = hashes(arrays)
    if limit is None or images.nbytes <= limit:
        with open(path / "images.npy", "rb") as file:  # mapped pages would count as this process's memory
            file.seek(images.offset)
            found["images"] = hashlib.file_digest(file, "sha256").hexdigest()
    for name in (*arrays, "images"):
        if name in found and found[name] != recorded.get(name):
            damaged = "images.npy" if name == "images" else "arrays.npz"
            raise FedbenchError(
                f"{path / damaged}: damaged ({name} and their SHA-256 differ); delete the folder and prepare again"
            )


def _make_room(path: Path, shape: tuple[int, int, int, int]) -> np.ndarray:
    """Create images.npy on disk and map it for writing."""
    images = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    # Claim the blocks now: on a full disk, writing to a hole in a mapped file kills the process,
    # while this is an ordinary error with a message.
    with open(path, "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
    return images


def _finish(raw: RawData, entry: Any, where: str) -> dict[str, np.ndarray]:
    """Complete domains and splits, and check that labels fit."""
    labels = np.asarray(raw.labels, dtype=np.int64)
    domains = np.zeros_like(labels) if raw.domains is None else np.asarray(raw.domains, dtype=np.int64)
    if raw.splits is None:
        splits = test_split(labels, domains, raw.groups, entry.test_fraction, where)
    else:
        splits = np.asarray(raw.splits, dtype=np.uint8)
    check_labels(labels, splits, raw.class_names, where)
    if entry.public is not None:
        splits = public_share(labels, domains, splits, entry.public, raw.class_names, raw.domain_names, where)
    arrays = {"labels": labels, "domains": domains, "splits": splits}
    if raw.groups is not None:
        arrays["groups"] = np.asarray(raw.groups, dtype=np.int64)
    return arrays


def _counts(arrays: dict[str, np.ndarray], raw: RawData) -> dict[str, Any]:
    sizes = np.bincount(arrays["splits"], minlength=4)
    return {
        **{name: int(sizes[split]) for split, name in enumerate(("train", "test", "public", "public_test"))},
        "classes": np.bincount(arrays["labels"], minlength=len(raw.class_names)),
        "domains": np.bincount(arrays["domains"], minlength=len(raw.domain_names)),
    }
