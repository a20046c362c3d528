"""Image folders and archives built on the fly."""

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedbench.config.reading import parse_entry
from fedbench.data.store import Store, prepare


def image_bytes(value: int, size: tuple[int, int] = (6, 6), kind: str = "PNG", mode: str = "RGB") -> bytes:
    """One flat image of a grey value."""
    buffer = io.BytesIO()
    colour = value if mode in ("L", "I;16") else (value,) * len(mode)
    Image.new(mode, size, colour).save(buffer, kind)
    return buffer.getvalue()


class Builder:
    """Writes the same files as a folder, zip or tar."""

    def __init__(self, root: Path):
        self.root = root

    def files(self, names: list[str], **options) -> dict[str, bytes]:
        """A different flat image under each name."""
        return {name: image_bytes(number * 3 % 256, **options) for number, name in enumerate(names)}

    def write(self, kind: str, files: dict[str, bytes]) -> str:
        """Write `files` as kind "folder", "zip", "tar" or "tar.gz"; returns the name below the data root."""
        if kind == "folder":
            for name, data in files.items():
                path = self.root / "set" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            return "set"
        path = self.root / f"set.{kind}"
        if kind == "zip":
            with zipfile.ZipFile(path, "w") as archive:
                for name, data in files.items():
                    archive.writestr(name, data)
        else:
            with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as archive:
                for name, data in files.items():
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
        return path.name

    def prepare(self, path: str, out: str = "out", **keys) -> Store:
        """Prepare an image folder with the given config keys."""
        entry = parse_entry("datasets", "mine", {"source": "image-folder", "path": path, **keys})
        return prepare(entry, self.root / out, self.root)


@pytest.fixture
def builder(tmp_path) -> Builder:
    return Builder(tmp_path)


@pytest.fixture
def make_image():
    return image_bytes


@pytest.fixture
def flat_values():
    """The grey value of each (flat) image of a store, by sample."""

    def values(store: Store) -> np.ndarray:
        return np.asarray(store.images).reshape(len(store.images), -1).mean(axis=1).round().astype(int)

    return values
