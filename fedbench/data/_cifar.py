"""Reading the official CIFAR files through torchvision."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedbench.data.store import TEST, TRAIN, Allocate, RawData
from fedbench.errors import FedbenchError
from fedbench.options import options

if TYPE_CHECKING:
    from collections.abc import Iterator


@options
class CifarOptions:
    """Options of `cifar10` and `cifar100`."""

    download: bool = False
    """Fetch the official archive into the data root where it is not there yet."""


def load_cifar(name: str, options: CifarOptions, data_root: Path, allocate: Allocate) -> RawData:
    """Read `CIFAR10` or `CIFAR100` (torchvision's class name) with its official split.

    The official batches are pickles, and unpickling runs code. torchvision compares each file's MD5 with the official
    one before it opens it, and refuses to read on a difference: only the published bytes are ever unpickled.
    """
    import torchvision

    reader = getattr(torchvision.datasets, name)
    with _official_files(reader, options, data_root) as root:
        _check_files(reader, root / reader.base_folder)
        try:
            parts = [reader(root, train=train) for train in (True, False)]
        except (RuntimeError, OSError) as error:
            raise FedbenchError(f"{root / reader.base_folder}: cannot read {name}: {_line(error)}") from None
        images = allocate((sum(len(part.data) for part in parts), 3, 32, 32))
        start = 0
        for part in parts:
            images[start : start + len(part.data)] = part.data.transpose(0, 3, 1, 2)
            start += len(part.data)
    labels = np.concatenate([np.asarray(part.targets, dtype=np.int64) for part in parts])
    splits = np.repeat(np.array([TRAIN, TEST], dtype=np.uint8), [len(part.data) for part in parts])
    return RawData(images, labels, tuple(parts[0].classes), splits=splits)


def _check_files(reader, folder: Path) -> None:
    """Name the file that is not the official one; torchvision only says to download, though something is there."""
    from torchvision.datasets.utils import check_integrity

    files = [*reader.train_list, *reader.test_list, (reader.meta["filename"], reader.meta["md5"])]
    for name, md5 in files:
        if not (folder / name).is_file():
            raise FedbenchError(f"{folder / name}: no such file; put all of {reader.filename} there")
        try:
            official = check_integrity(str(folder / name), md5)
        except OSError as error:
            raise FedbenchError(f"{folder / name}: cannot read: {error.strerror}") from None
        if not official:
            raise FedbenchError(f"{folder / name}: not the official file (MD5 differs); unpack {reader.filename} again")


@contextmanager
def _official_files(reader, options: CifarOptions, data_root: Path) -> Iterator[Path]:
    """Yield a folder that holds the extracted official files: found, unpacked for the moment, or downloaded."""
    for root in (data_root, data_root / reader.__name__.lower()):
        if (root / reader.base_folder).is_dir():
            yield root
            return
        if (root / reader.filename).is_file():
            # The data root may be read-only, so the archive is unpacked beside it, in a temporary folder.
            with tempfile.TemporaryDirectory(prefix="fedbench-") as temporary:
                _unpack(root / reader.filename, reader.tgz_md5, Path(temporary))
                yield Path(temporary)
            return
    if not options.download:
        raise FedbenchError(
            f"{data_root}: neither {reader.base_folder}/ nor {reader.filename} is here; "
            "copy the official files here, give another data root, or set 'download: true'"
        )
    yield _download(reader, data_root)


def _unpack(archive: Path, md5: str, folder: Path) -> None:
    from torchvision.datasets.utils import check_integrity, extract_archive

    if not check_integrity(str(archive), md5):
        raise FedbenchError(f"{archive}: not the official archive (MD5 differs); delete it and fetch it again")
    extract_archive(str(archive), str(folder))


def _download(reader, data_root: Path) -> Path:
    """Fetch and unpack below the data root; the finished folder appears there whole."""
    try:
        data_root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=data_root) as temporary:
            reader(temporary, download=True)
            _put(Path(temporary) / reader.base_folder, data_root / reader.base_folder)
    except (RuntimeError, OSError, EOFError) as error:  # urllib's errors are OSErrors
        raise FedbenchError(
            f"{reader.url}: the download into {data_root} failed: {_line(error)}; "
            f"fetch it by other means and put {reader.filename} into {data_root}"
        ) from None
    return data_root


def _put(folder: Path, place: Path) -> None:
    """Rename a folder to its place, unless another process has put the same files there meanwhile."""
    try:
        folder.rename(place)
    except OSError:
        if not place.is_dir():
            raise


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
