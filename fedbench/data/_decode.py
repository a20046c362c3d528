"""Decoding many image files into one array, with threads and without a second copy."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import numpy as np

from fedbench.data._archive import Tree
from fedbench.data.base import Allocate
from fedbench.errors import FedbenchError

# A batch of files goes to a thread at once, which bounds what is in memory to a few batches.
BATCH_FILES = 64
BATCH_BYTES = 8 << 20
# Below this mean file size, passing the interpreter's lock between threads costs more time than they save
# (32x32 WebP, about 1.7 kB: slower with two threads than without; 96x96 JPEG, about 3.6 kB: faster).
THREADED_BYTES = 2500


def decode_all(tree: Tree, paths: list[str], size: int | None, color: str, allocate: Allocate) -> np.ndarray:
    """Decode files into one array.

    Parameters
    ----------
    tree : where the files are
    paths : N different file names
    size : height and width to cut (centre square) and resize to; None where all images have one size already
    color : "rgb" or "gray"
    allocate : makes the array

    Returns
    -------
    uint8 [N, C, H, W] in the order of `paths`

    Raises
    ------
    FedbenchError
        Naming the first image that is empty, damaged, or of another size than the first one.
    """
    [(_, first)] = tree.read(paths[:1])
    with _placed(tree):
        shape = decode(first, paths[0], size, color).shape
    images = allocate((len(paths), *shape))
    index = {path: position for position, path in enumerate(paths)}

    def work(batch: list[tuple[str, bytes]]) -> None:
        for path, data in batch:
            image = decode(data, path, size, color)
            if image.shape != shape:
                raise FedbenchError(
                    f"{path}: {image.shape[2]}x{image.shape[1]} pixels, but {paths[0]} has {shape[2]}x{shape[1]}; "
                    "set 'size' to bring all images to one size"
                )
            images[index[path]] = image

    workers = min(8, len(os.sched_getaffinity(0)))
    pending: deque = deque()
    with _placed(tree), ThreadPoolExecutor(workers) as pool:  # PIL decodes and resizes without the interpreter's lock
        try:
            for batch in _batches(tree.read(paths)):
                if sum(len(data) for _, data in batch) < THREADED_BYTES * len(batch):
                    work(batch)
                    continue
                pending.append(pool.submit(work, batch))
                if len(pending) > 2 * workers:  # bounds what waits in memory
                    pending.popleft().result()
            while pending:
                pending.popleft().result()
        except FedbenchError:
            pool.shutdown(cancel_futures=True)
            raise
    return images


@contextmanager
def _placed(tree: Tree) -> Iterator[None]:
    """Say of which folder or archive an image is."""
    try:
        yield
    except FedbenchError as error:
        message = str(error)
        raise FedbenchError(message if str(tree.path) in message else f"{tree.path}: {message}") from None


def _batches(files: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    batch, held = [], 0
    for name, data in files:
        batch.append((name, data))
        held += len(data)
        if len(batch) == BATCH_FILES or held > BATCH_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def decode(data: bytes, name: str, size: int | None, color: str) -> np.ndarray:
    """Decode one file to uint8 [C, H, W].

    With `size`, the largest centred square is resized to size x size (bilinear with antialiasing), which is
    "shorter side to `size`, then centre crop" in one step. Orientation tags are not applied, as the public readers of
    these data sets do not either.
    """
    from PIL import Image

    if not data:
        raise FedbenchError(f"{name}: this image file is empty; replace or remove it")
    try:
        image = _open(data, name)
        if image.mode.startswith(("I", "F")):
            raise FedbenchError(f"{name}: more than 8 bits per channel (mode {image.mode}); convert it to 8 bits")
        mode = "L" if color == "gray" else "RGB"
        if image.mode != mode:
            image = image.convert(mode)
        if size is not None and image.size != (size, size):
            width, height = image.size
            side = min(width, height)
            left, top = (width - side) / 2, (height - side) / 2
            image = image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
        pixels = np.asarray(image)
    except FedbenchError:
        raise
    except Exception as error:  # decoders raise OSError, SyntaxError, ValueError, struct.error ... about damaged bytes
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = "unknown format" if "cannot identify" in reason else reason
        raise FedbenchError(f"{name}: not a readable image ({reason}); replace or remove it") from None
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _open(data: bytes, name: str):
    """Open with the format that the name says; trying every format in turn takes longer than decoding."""
    from PIL import Image, UnidentifiedImageError

    named = formats().get("." + name.rpartition(".")[2].lower())
    if named:
        try:
            return Image.open(io.BytesIO(data), formats=(named,))
        except UnidentifiedImageError:
            return Image.open(io.BytesIO(data))  # a PNG called .jpg is still an image
    return Image.open(io.BytesIO(data))


@cache
def formats() -> dict[str, str]:
    """File name endings of the image formats that data sets come in, and Pillow's names of them."""
    from PIL import Image

    wanted = {"JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM"}
    return {suffix: name for suffix, name in Image.registered_extensions().items() if name in wanted}
