"""Decoding many image files into one array, with threads and without a second copy."""

from __future__ import annotations

import io
import os
import re
import threading
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedbench.data._tree import Tree
from fedbench.data.store import Allocate
from fedbench.errors import FedbenchError

if TYPE_CHECKING:
    from PIL import Image

# Only these are ever opened, whatever a file's name or content says.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
# Of one image, and of all that are decoded at a time; a pixel takes up to some ten bytes meanwhile.
PIXELS = 1 << 26
WAITING_BYTES = 256 << 20  # of files that are read but not decoded yet
TIFF_BITS = 258  # the tag BitsPerSample

# A batch of files goes to a thread at once, which bounds what is in memory to a few batches.
BATCH_FILES = 64
BATCH_BYTES = 8 << 20
# Below this mean file size, passing the interpreter's lock between threads costs more time than they save
# (32x32 WebP, about 1.7 kB: slower with two threads than without; 96x96 JPEG, about 3.6 kB: faster).
THREADED_BYTES = 2500


def decode_all(
    tree: Tree, paths: list[str], size: int | None, color: str, allocate: Allocate
) -> tuple[np.ndarray, int]:
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
    uint8 [N, C, H, W] in the order of `paths`, and how many of the images had transparent pixels (now white)

    Raises
    ------
    FedbenchError
        Naming the first image that is empty, damaged, too large, or of another size than the first one.
    """
    [(_, first)] = tree.read(paths[:1])
    room = Room(PIXELS)
    with _placed(tree), quiet():
        shape = decode(first, paths[0], size, color)[0].shape
    del first
    images = allocate((len(paths), *shape))
    transparent = np.zeros(len(paths), dtype=bool)
    index = {path: position for position, path in enumerate(paths)}

    def work(batch: list[tuple[str, bytes]]) -> None:
        for path, data in batch:
            image, transparent[index[path]] = decode(data, path, size, color, room)
            if image.shape != shape:
                raise FedbenchError(
                    f"{path}: {image.shape[2]}x{image.shape[1]} pixels, but {paths[0]} has {shape[2]}x{shape[1]}; "
                    "set 'size' to bring all images to one size"
                )
            images[index[path]] = image

    workers = min(8, len(os.sched_getaffinity(0)))
    pending: deque = deque()
    held = 0
    # PIL decodes and resizes without the interpreter's lock
    with _placed(tree), quiet(), ThreadPoolExecutor(workers) as pool:
        try:
            for batch in _batches(tree.read(paths)):
                weight = sum(len(data) for _, data in batch)
                if weight < THREADED_BYTES * len(batch):
                    work(batch)
                    continue
                pending.append((weight, pool.submit(work, batch)))
                held += weight
                while len(pending) > 2 * workers or held > WAITING_BYTES:  # bounds what waits in memory
                    weight, oldest = pending.popleft()
                    oldest.result()
                    held -= weight
            while pending:
                pending.popleft()[1].result()
        except FedbenchError:
            pool.shutdown(cancel_futures=True)
            raise
    return images, int(transparent.sum())


class Room:
    """How many pixels may be decoded at a time, by all threads together.

    Parameters
    ----------
    pixels : as many as a single image may have, so that every image gets its turn
    """

    def __init__(self, pixels: int):
        self._free = pixels
        self._changed = threading.Condition()

    @contextmanager
    def take(self, pixels: int) -> Iterator[None]:
        """Wait until there is room for an image, and hold it."""
        with self._changed:
            self._changed.wait_for(lambda: self._free >= pixels)
            self._free -= pixels
        try:
            yield
        finally:
            with self._changed:
                self._free += pixels
                self._changed.notify_all()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Pillow's own limit of pixels, and what it finds odd about metadata, which is not used, off the terminal.

    Set from outside of the threads that decode: both belong to the whole process.
    """
    from PIL import Image

    own, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = own


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


def decode(data: bytes, name: str, size: int | None, color: str, room: Room | None = None) -> tuple[np.ndarray, bool]:
    """Decode one file to uint8 [C, H, W]; also says whether it had transparent pixels, which become white.

    With `size`, the largest centred square is resized to size x size (bilinear with antialiasing), which is
    "shorter side to `size`, then centre crop" in one step. Orientation tags are not applied, as the public readers of
    these data sets do not either.
    """
    if not data:
        raise FedbenchError(f"{name}: this image file is empty; replace or remove it")
    try:
        image = _open(data, name)
        _check_header(image, name)
        with room.take(image.width * image.height) if room else nullcontext():
            flat, transparent = _flat(image)
            pixels = np.asarray(_cut(flat, size, "L" if color == "gray" else "RGB"))
    except FedbenchError:
        raise
    except Exception as error:  # decoders raise OSError, SyntaxError, ValueError, struct.error ... about damaged bytes
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = "unknown format" if "cannot identify" in reason else reason
        raise FedbenchError(f"{name}: not a readable image ({reason}); replace or remove it") from None
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1), transparent


def _open(data: bytes, name: str) -> Image.Image:
    """Open with the format that the name says; trying every format in turn takes longer than decoding."""
    from PIL import Image, UnidentifiedImageError

    named = formats().get("." + name.rpartition(".")[2].lower())
    if named:
        with suppress(UnidentifiedImageError):
            return Image.open(io.BytesIO(data), formats=(named,))
    # A PNG called .jpg is still an image. But only these formats: some that Pillow knows start other programs.
    return Image.open(io.BytesIO(data), formats=FORMATS)


def _check_header(image: Image.Image, name: str) -> None:
    """Refuse what is too large to decode, or would be cut to 8 bits; nothing is decoded yet."""
    if image.width * image.height > PIXELS:
        raise FedbenchError(
            f"{name}: {image.width}x{image.height} pixels, but at most {PIXELS:,} of one image are decoded; shrink it"
        )
    if image.mode.startswith(("I", "F")) or _deep(image):
        raise FedbenchError(f"{name}: more than 8 bits per channel (mode {image.mode}); convert it to 8 bits")


def _deep(image: Image.Image) -> bool:
    """Whether a file has more than 8 bits per channel, which Pillow passes over in silence for colours."""
    if any(bits > 8 for bits in getattr(image, "tag_v2", {}).get(TIFF_BITS, ())):
        return True
    for tile in getattr(image, "tile", ()):  # of images that come from files
        arguments = tile[3] if isinstance(tile[3], tuple) else (tile[3],)
        if any(re.search(r";16[BLNS]", str(argument)) for argument in arguments):
            return True
        if tile[0] in ("ppm", "ppm_plain") and max((n for n in arguments if isinstance(n, int)), default=0) > 255:
            return True
    return False


def _flat(image: Image.Image) -> tuple[Image.Image, bool]:
    """The image without transparency, on white, and whether any pixel was transparent."""
    from PIL import Image

    if not image.has_transparency_data:
        return image, False
    image = image.convert("RGBA")
    alpha = image.getchannel("A")
    if alpha.getextrema()[0] == 255:
        return image, False
    ground = Image.new("RGB", image.size, "white")
    ground.paste(image, mask=alpha)
    return ground, True


def _cut(image: Image.Image, size: int | None, mode: str) -> Image.Image:
    from PIL import Image

    if image.mode != mode:
        image = image.convert(mode)
    if size is None or image.size == (size, size):
        return image
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))


@cache
def formats() -> dict[str, str]:
    """File name endings of the image formats that data sets come in, and Pillow's names of them."""
    from PIL import Image

    return {suffix: name for suffix, name in Image.registered_extensions().items() if name in FORMATS}
