"""The only writer: every file appears whole or not at all, and arrays load without pickle."""

import csv
import errno
import hashlib
import io
import itertools
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedbench.errors import FedbenchError
from fedbench.files.products import Product
from fedbench.files.temporary import NEW, OLD, remove_leftovers, temporary_file, temporary_folder

ARRAY_BYTES = 4 << 30  # of one array in an NPZ: labels of half a billion samples


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Write a file through a temporary neighbour, fsync and rename."""
    path = Path(path)
    with writing_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent)
        with temporary_file(path) as (file, temporary):
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            os.replace(temporary, path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def writing_errors(path: Path) -> Iterator[None]:
    """Turn what the system says about an unwritable place into one line with the way out."""
    advice = {
        errno.ENOSPC: "free some space and run again",
        errno.EDQUOT: "the quota is used up; free some space and run again",
        errno.EACCES: "choose a writable folder",
        errno.EROFS: "choose a writable folder",
        errno.ENOTDIR: "a file stands where a folder is needed; remove it or choose another folder",
        errno.EEXIST: "a file stands where a folder is needed; remove it or choose another folder",
    }
    try:
        yield
    except OSError as error:
        hint = advice.get(error.errno, "check the folder and run again")
        raise FedbenchError(f"{path}: cannot write: {error.strerror or error}; {hint}") from error


@contextmanager
def writing_folder(path: Path, product: Product) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` when the block ends well, and vanishes when it does not.

    An earlier product is replaced whole. If someone else finished `path` meanwhile, theirs is replaced: both were made
    from the same spec. Where `path` is a link, it stays, and what it points to is replaced.

    Parameters
    ----------
    product : what the stage makes

    Raises
    ------
    FedbenchError
        If `path` holds anything but an earlier product of the stage, which is then left as it is, or is not writable.
    """
    product.check(path)
    path = Path(os.path.realpath(path))
    with writing_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, product.files)
        with temporary_folder(path, product.files) as place:
            (place / NEW).mkdir()
            yield place / NEW
            for number in itertools.count():
                product.check(path)
                with suppress(FileNotFoundError):
                    os.replace(path, place / f"{OLD}{number}")
                try:
                    os.replace(place / NEW, path)
                    break
                except OSError as error:  # someone else has just finished it
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, values: Any) -> None:
    """Write indented JSON; NaN and infinity become null, as JSON has neither."""
    write_text(path, _json(values) + "\n")


def _json(values: Any) -> str:
    return json.dumps(_finite(values), indent=2, default=_plain, allow_nan=False)


def _finite(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {str(key): _finite(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_finite(value) for value in values]
    if isinstance(values, float | np.floating) and not np.isfinite(values):
        return None
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


def read_json(path: Path, *keys: str) -> Any:
    """Read JSON, with `keys` an object that has them all; a missing or damaged file is one clear line."""
    return _parse(path, _read(path), keys)


def _read(path: Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FedbenchError(f"{path}: cannot read: {error.strerror}") from None


def _parse(path: Path, data: bytes, keys: Collection[str]) -> Any:
    try:
        values = json.loads(data.decode())
    except ValueError as error:
        raise FedbenchError(f"{path}: not valid JSON ({error}); delete it and run again") from None
    _require(path, values if isinstance(values, dict) else (), keys)
    return values


def _require(path: Path, found: Collection[str], keys: Iterable[str]) -> None:
    for key in keys:
        if key not in found:
            raise FedbenchError(f"{path}: damaged (no {key!r} in it); delete it and run again")


SEAL = re.compile(rb'(.*),\n  "sha256": "([0-9a-f]{64})"\n}\n', re.DOTALL)


def write_sealed(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object whose last key, ``sha256``, is the SHA-256 of all text before it."""
    body = _json(values).removesuffix("\n}").encode()
    write_bytes(path, body + f',\n  "sha256": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode())


def read_sealed(path: Path) -> dict[str, Any]:
    """Read what :func:`write_sealed` wrote; anything else is damaged."""
    data = _read(path)
    values = _parse(path, data, ("sha256",))
    del values["sha256"]
    seal = SEAL.fullmatch(data)
    if seal is None or hashlib.sha256(seal[1]).hexdigest() != seal[2].decode():
        raise FedbenchError(f"{path}: damaged (not the contents that were written); delete it and run again")
    return values


def write_csv(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Write rows as CSV; None and NaN become empty fields, floats keep every digit that matters.

    Returns
    -------
    SHA-256 of the file
    """
    columns = list(columns)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        unknown = set(row) - set(columns)
        if unknown:
            raise ValueError(f"columns {sorted(unknown)} are not in the table's header")
        writer.writerow([_cell(row.get(column)) for column in columns])
    data = buffer.getvalue().encode()
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def damage(folder: Path, files: Mapping[str, str]) -> str | None:
    """The first of `files` (names and their SHA-256) that is not what was written to `folder`, and why; or None."""
    for name, sha256 in files.items():
        try:
            data = (folder / name).read_bytes()
        except OSError as error:
            return f"{folder / name}: cannot read: {error.strerror or error}"
        if hashlib.sha256(data).hexdigest() != sha256:
            return f"{folder / name}: damaged (not the contents that were written)"
    return None


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else repr(float(value))
    return value


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write named arrays as a compressed NPZ (no pickle, whatever the dtype)."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_bytes(path, buffer.getbuffer())


def read_arrays(path: Path, *names: str) -> dict[str, np.ndarray]:
    """Read an NPZ that has (at least) the arrays `names`, without unpickling anything."""
    try:
        with np.load(path, allow_pickle=False) as file:
            large = next((info for info in file.zip.infolist() if info.file_size > ARRAY_BYTES), None)
            if large:
                raise ValueError(f"{large.filename} has {large.file_size:,} bytes")
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise FedbenchError(
            f"{path}: cannot read: {error.strerror or error}; delete its folder and run again"
        ) from None
    except Exception as error:  # zipfile, zlib and numpy each have their own complaint about a damaged file
        raise FedbenchError(f"{path}: damaged ({error}); delete it and run again") from None
    _require(path, arrays, names)
    return arrays
