"""What each stage writes, and what tells an earlier product of it from other people's files.

Whatever is replaced or removed is checked here first: nothing that fedbench did not make is ever touched, wherever
a results folder or ``--out`` points. An empty file is nobody's.
"""

import json
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

from fedbench.errors import FedbenchError
from fedbench.files.traces import STAMP, STARTED

# Whether a file is one that fedbench wrote.
Mark = Callable[[Path], bool]
ADVICE = "it is left as it is: move it away or choose another folder"
HEAD_BYTES = 16384


@dataclass(frozen=True)
class Product:
    """A folder that a stage makes.

    Attributes
    ----------
    what : in words
    files : names of all files that the stage may write
    marks : files by which an earlier product is known; one of them is enough
    alone : whether the folder is replaced whole, so that nothing else may lie in it
    """

    what: str
    files: tuple[str, ...]
    marks: Mapping[str, Mark]
    alone: bool = True

    def check(self, folder: Path, more: Iterable[str] = ()) -> None:
        """Make sure that writing this product to `folder` destroys nothing else.

        Parameters
        ----------
        more : names of further files that will be written

        Raises
        ------
        FedbenchError
            Naming the first file or folder there that is none of an earlier product.
        """
        found = _entries(folder)
        others = [name for name, is_folder in found.items() if is_folder or name not in self.files]
        if self.alone and others:
            raise FedbenchError(f"{Path(folder) / min(others)}: no part of {self.what}; {ADVICE}")
        self.check_files(folder, more)

    def check_files(self, folder: Path, more: Iterable[str] = ()) -> None:
        """The same for files of the product's names only, whatever else lies beside them."""
        found = _entries(folder)
        held = [name for name in (*self.files, *more) if name in found and _size(Path(folder) / name)]
        if held and not any(mark(Path(folder) / name) for name, mark in self.marks.items() if name in held):
            raise FedbenchError(f"{Path(folder) / held[0]}: not made by fedbench as part of {self.what}; {ADVICE}")


def check_files(paths: Iterable[Path | str]) -> None:
    """Make sure that tables, figures, summary.csv and report.html may be replaced or removed.

    Raises
    ------
    FedbenchError
        Naming the first that exists and was not made by fedbench.
    """
    for path in map(Path, paths):
        mark = FILES.get(path.name) or FILES[path.suffix]
        if _size(path) and not mark(path):
            raise FedbenchError(f"{path}: not made by fedbench; {ADVICE}")


def _entries(folder: Path) -> dict[str, bool]:
    """The names in a folder, and whether they are folders themselves; none where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except (FileNotFoundError, NotADirectoryError):  # writing itself says what stands in its way
        return {}
    except OSError as error:
        raise FedbenchError(f"{folder}: cannot read: {error.strerror}; choose another folder") from None


def _size(path: Path) -> int:
    """Bytes in a regular file; 0 where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0
    return found.st_size if S_ISREG(found.st_mode) else 0


def _read(path: Path, count: int = -1) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(count)
    except OSError:
        return b""


def _json(*keys: str) -> Mark:
    """A JSON object with these keys."""

    def marked(path: Path) -> bool:
        try:
            values = json.loads(_read(path))
        except ValueError:
            return False
        return isinstance(values, dict) and values.keys() >= set(keys)

    return marked


def _arrays(*names: str) -> Mark:
    """An NPZ with these arrays."""

    def marked(path: Path) -> bool:
        try:
            with zipfile.ZipFile(path) as file:
                return {f"{name}.npy" for name in names} <= set(file.namelist())
        except (OSError, ValueError, zipfile.BadZipFile):
            return False

    return marked


def _begins(pattern: bytes) -> Mark:
    """A file that begins like this."""
    compiled = re.compile(pattern, re.DOTALL)
    return lambda path: compiled.match(_read(path, HEAD_BYTES)) is not None


def _figure(path: Path) -> bool:
    """A figure says who drew it; one of an older version is known by its twin and by the date that it lacks."""
    png, pdf = _read(path.with_suffix(".png"), HEAD_BYTES), _read(path.with_suffix(".pdf"))
    if (b"Software\0fedbench" in png) if path.suffix == ".png" else (b"/Creator (fedbench)" in pdf):
        return True
    twins = re.search(rb"Software\0(Matplotlib|fedbench)", png) and re.search(rb"/Creator \((Matplotlib|fedbench)", pdf)
    return bool(twins) and b"/CreationDate" not in pdf


DATA = Product(
    "a prepared data set",
    ("dataset.json", "images.npy", "arrays.npz"),
    {
        "arrays.npz": _arrays("labels", "domains", "splits"),
        "dataset.json": _json("spec", "sha256", "class_names", "domain_names"),
    },
)
PARTITION = Product(
    "a partition",
    ("partition.npz", "partition.json", "partition.png"),
    {
        "partition.npz": _arrays("client_domains", "train", "validation", "test"),
        "partition.json": _json("spec", "sha256", "data_sha256"),
    },
)
BASE = Product("a base", ("base.safetensors", "base.json"), {"base.json": _json("spec", "origin", "sha256")})
# What a run's log begins with: a start, or what comes before it where there was a checkpoint.
LOG_BEGINS = rf"{STAMP.pattern}({STARTED.pattern}|continuing after round |(a )?checkpoint )".encode()
RUN = Product(
    "a run",
    ("rounds.csv", "clients.csv", "domains.csv", "summary.json", "log.txt"),
    {
        "log.txt": _begins(LOG_BEGINS),
        "summary.json": _json("cell", "digest", "spec", "selections"),
    },
    alone=False,
)
FILES: Mapping[str, Mark] = {
    "summary.csv": _begins(rb"dataset,partition,model,method,seed,"),
    "report.html": _begins(rb".*fedbench report</title>"),
    ".csv": _begins(rb"dataset,partition,model,method,label,n,|paper,table,dataset,partition,model,method,measure,"),
    ".md": _begins(rb"\*\*.*?\*\*\n\n\| Method \|"),
    ".tex": _begins(rb"\\begin\{table\}\[t\]\n\\centering\\small\n\\caption\{.*\n\\label\{tab:"),
    ".png": _figure,
    ".pdf": _figure,
}
