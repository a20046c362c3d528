"""Files that claim or are more than memory holds, or are no files: one line, and little is read."""

import io
import os
import socket
import struct
import tarfile
import threading
import time
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from fedbench.data import _archive, _decode
from fedbench.data._archive import open_tree
from fedbench.errors import FedbenchError

NAMES = [f"{s}/{c}/{n}.png" for s in ("train", "test") for c in "ab" for n in range(3)]
GIB = 1 << 30


@pytest.fixture
def refused(builder):
    """Prepare, expecting a one-line message, no output, and no more than 64 MiB of memory on the way."""

    def check(path: str, message: str, **keys):
        tracemalloc.start()
        try:
            with pytest.raises(FedbenchError, match=message) as caught:
                builder.prepare(path, **keys)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert "\n" not in str(caught.value)
        assert peak < 64 << 20
        assert [entry.name for entry in builder.root.iterdir() if not entry.name.startswith("set")] == []

    return check


def sparse(path, size: int) -> None:
    with open(path, "ab") as file:
        file.truncate(size)


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, colour: int, pixels: bytes) -> bytes:
    """A PNG of any header, whatever pixels follow."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", zlib.compress(pixels)) + png_chunk(b"IEND", b"")


def test_sparse_file_in_a_folder(builder, refused):
    path = builder.write("folder", builder.files(NAMES))
    sparse(builder.root / path / "train/a/z.png", 5 * GIB)
    refused(path, r"train/a/z\.png: 5,368,709,120 bytes, but at most 268,435,456 of one file are read")


def test_list_of_gigabytes(builder, refused):
    path = builder.write("folder", builder.files(NAMES))
    sparse(builder.root / path / "photo_train.txt", 3 * GIB)
    refused(path, r"photo_train\.txt: 3,221,225,472 bytes, but at most 134,217,728 of one file are read")


@pytest.mark.parametrize(
    ("name", "most"),
    [("train/a/z.png", "268,435,456"), ("photo_train.txt", "134,217,728"), ("clients.csv", "134,217,728")],
)
def test_zip_member_of_gigabytes(builder, refused, name, most):
    path = builder.root / builder.write("zip", builder.files(NAMES) | {name: bytes(12345)})
    data, size = path.read_bytes(), struct.pack("<I", 12345)
    path.write_bytes(data.replace(size, struct.pack("<I", 3 * GIB)))
    keys = {"clients": name} if name.endswith("csv") else {}
    refused(path.name, rf"{name}: 3,221,225,472 bytes, but at most {most} of one file are read", **keys)


def test_member_that_inflates_to_more_than_its_header_says(builder, refused):
    path = builder.root / "set.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in builder.files(NAMES).items():
            archive.writestr(name, data)
        archive.writestr("train/a/z.png", bytes(80 << 20))
    data, claimed = path.read_bytes(), struct.pack("<I", 80 << 20)
    assert data.count(claimed) == 2  # in the member's own header and in the table of contents
    path.write_bytes(data.replace(claimed, struct.pack("<I", 100)))
    refused(path.name, r"train/a/z\.png: truncated or damaged \(Bad CRC-32")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_that_inflate_without_bounds(builder, refused, method):
    with zipfile.ZipFile(builder.root / "set.zip", "w", method) as archive:
        archive.writestr("train/a/0.png", b"x")
    refused("set.zip", r"train/a/0\.png is compressed by (bzip2|lzma); pack the archive again with deflate")


def test_tar_member_of_gigabytes(builder, refused):
    member = tarfile.TarInfo("train/a/z.png")
    member.size = 5 * GIB
    path = builder.root / builder.write("tar", builder.files(NAMES))
    with tarfile.open(path) as archive:
        end = archive.getmembers()[-1].offset_data + 512
    with open(path, "r+b") as file:
        file.truncate(end)
        file.seek(end)
        file.write(member.tobuf())
    sparse(path, end + 512 + 5 * GIB + 1024)
    refused(path.name, r"train/a/z\.png: 5,368,709,120 bytes, but at most")


def test_tar_whose_header_is_longer_than_any(builder, refused):
    path = builder.root / "set.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("train/a/0.png")
        member.pax_headers = {"comment": "x" * (2 << 20)}
        archive.addfile(member)
    refused(path.name, "headers of more than 1,048,576 bytes before one member")


def test_sparse_tar_member(builder, refused):
    path = builder.root / "set.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("train/a/0.png")
        member.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(100 * GIB)}
        archive.addfile(member)
    refused(path.name, "train/a/0.png is a sparse file")


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_more_members_than_memory_holds(builder, refused, monkeypatch, kind):
    path = builder.write(kind, builder.files(NAMES))
    monkeypatch.setattr(_archive, "MEMBERS", 11)
    monkeypatch.setattr(_archive, "CHUNK", 64)
    refused(path, "more than 11 files in one archive; unpack it")


def test_zip_with_a_table_of_contents_of_gigabytes(builder, refused, monkeypatch):
    path = builder.write("zip", builder.files(NAMES))
    monkeypatch.setattr(_archive, "DIRECTORY_BYTES", 100)
    refused(path, r"a table of contents of [0-9,]+ bytes; unpack this archive")


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_names_longer_than_any_path(builder, refused, kind):
    refused(builder.write(kind, {"x" * 5000 + ".png": b"x"}), "name of 5,004 characters")


@pytest.mark.parametrize("name", ["PK/{}.bmp", "BZh/{}.bmp"])
def test_a_tar_is_not_taken_for_what_its_first_name_looks_like(builder, name, make_image):
    files = {name.format(f"{c}/{n}"): make_image(9, kind="BMP") for c in "ab" for n in range(3)}
    assert len(builder.prepare(builder.write("tar", files)).images) == 6


@pytest.mark.parametrize("side", [8200, 13000, 60000])  # Pillow has nothing to say, a warning, an error of its own
def test_pixels_are_counted_before_they_are_decoded(builder, refused, recwarn, side):
    files = builder.files(NAMES) | {f"train/a/{n}.png": png(side, side, 8, 2, b"") for n in range(3)}
    message = rf"train/a/0\.png: {side}x{side} pixels, but at most 67,108,864"
    refused(builder.write("zip", files), message, size=8)
    assert not recwarn.list


def test_all_threads_together_decode_only_so_many_pixels(builder, monkeypatch):
    noise = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(noise, "PNG")
    monkeypatch.setattr(_decode, "PIXELS", 5000)  # one image, not two
    monkeypatch.setattr(_decode, "BATCH_FILES", 1)
    monkeypatch.setattr(_decode.os, "sched_getaffinity", lambda _: range(4))
    lock, inside, most = threading.Lock(), 0, 0
    flat = _decode._flat

    def watched(image):
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.005)
        with lock:
            inside -= 1
        return flat(image)

    monkeypatch.setattr(_decode, "_flat", watched)
    builder.prepare(builder.write("zip", dict.fromkeys(NAMES, noise.getvalue())))
    assert most == 1


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_what_is_no_file_in_a_folder(builder, refused, kind):
    path = builder.write("folder", builder.files(NAMES))
    place = builder.root / path / "train/a/z.png"
    if kind == "fifo":
        os.mkfifo(place)
    else:
        here = os.getcwd()
        os.chdir(place.parent)  # a socket's path has to be short
        with socket.socket(socket.AF_UNIX) as endpoint:
            endpoint.bind("z.png")
        os.chdir(here)
    refused(path, r"train/a/z\.png is a device, pipe or socket, not a file")


def test_what_is_no_file_as_the_data_set(builder, refused):
    os.mkfifo(builder.root / "set.pipe")
    for path in ("/dev/zero", "set.pipe"):
        refused(path, "a device, pipe or socket, not a file; give a folder, zip or tar")


def test_devices_in_a_zip(builder, refused):
    name = builder.write("zip", builder.files(NAMES))
    with zipfile.ZipFile(builder.root / name, "a") as archive:
        member = zipfile.ZipInfo("train/a/pipe.png")
        member.external_attr = 0o010666 << 16
        archive.writestr(member, "")
    refused(name, "train/a/pipe.png is a device or pipe")


def test_links_that_loop_are_followed_once_and_said(builder):
    root = builder.root / builder.write("folder", builder.files(NAMES))
    for name in ("l1", "l2"):
        (root / "train" / "a" / name).symlink_to("..")
    (root / "train" / "0").symlink_to(root / "train" / "b")
    store = builder.prepare("set")
    assert len(store.images) == len(NAMES)
    assert store.class_names == ("a", "b")  # real folders keep their names
    assert store.meta["source"]["repeated_links"] == ["train/0", "train/a/l1", "train/a/l2"]


def test_links_to_folders_elsewhere_are_followed(builder):
    root = builder.root / builder.write("folder", builder.files(NAMES))
    (root / "train" / "b").rename(builder.root / "elsewhere")
    (root / "train" / "b").symlink_to(builder.root / "elsewhere")
    store = builder.prepare("set")
    assert (len(store.images), store.meta["source"]["repeated_links"]) == (len(NAMES), [])


def test_compressed_stream_that_fails_its_checksum(builder, refused, make_image):
    files = {name.replace("png", "bmp"): make_image(7, kind="BMP") for name in NAMES}
    path = builder.root / "set.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=0) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    data = bytearray(path.read_bytes())
    data[data.index(b"BM") + 100] ^= 0xFF
    path.write_bytes(data)
    refused(path.name, r"truncated or damaged \(CRC check failed")


def test_only_raster_formats_are_opened_whatever_a_name_says(builder, refused, monkeypatch):
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: started.append(1))
    buffer = io.BytesIO()
    Image.new("RGB", (6, 6)).save(buffer, "EPS")
    files = builder.files(NAMES) | {"train/a/0.png": buffer.getvalue()}
    refused(builder.write("zip", files), r"train/a/0\.png: not a readable image \(unknown format\)")
    assert not started


def tiff(mode: str) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, (6, 6)).save(buffer, "TIFF")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        png(6, 6, 16, 2, bytes(6 * (1 + 6 * 6))),
        png(6, 6, 16, 4, bytes(6 * (1 + 6 * 4))),
        png(6, 6, 16, 6, bytes(6 * (1 + 6 * 8))),
        b"P6 6 6 65535\n" + bytes(6 * 6 * 6),
        b"P3 6 6 1000\n" + b"1 " * 108,
        tiff("I;16"),
        tiff("F"),
    ],
)
def test_more_than_eight_bits_in_any_form_are_refused(builder, refused, data):
    refused(builder.write("zip", builder.files(NAMES) | {"train/a/1.png": data}), "more than 8 bits per channel")


def test_bad_sizes_and_empty_things_are_one_line(tmp_path):
    for number, data in enumerate((b"PK\3\4", b"PK\5\6", b"\x1f\x8b", b"BZh91AY&SY", b"\xfd7zXZ\0", b"\0" * 511)):
        path = tmp_path / str(number)
        path.write_bytes(data)
        with pytest.raises(FedbenchError, match=r"truncated or damaged|neither a folder nor"):
            open_tree(path)


def test_an_xz_stream_that_asks_for_much_memory_is_refused(tmp_path, monkeypatch, builder):
    path = tmp_path / "data.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        for name, data in builder.files(NAMES).items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    open_tree(path).close()
    monkeypatch.setattr(_archive, "DICTIONARY_BYTES", 1 << 20)  # level 6, tarfile's, has a dictionary of 8 MiB
    with pytest.raises(FedbenchError, match=r"data\.tar\.xz: unpacking needs more than 1,048,576 bytes of memory"):
        open_tree(path)
