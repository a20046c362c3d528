"""Damaged and hostile input: one clear line, nothing written."""

import io
import random
import tarfile
import zipfile

import pytest

from fedbench.data._archive import open_tree
from fedbench.errors import FedbenchError

NAMES = [f"{s}/{c}/{n}.png" for s in ("train", "test") for c in "ab" for n in range(3)]


@pytest.fixture
def refused(builder):
    """Prepare, expecting a one-line message and no output."""

    def check(path: str, message: str, **keys):
        with pytest.raises(FedbenchError, match=message) as caught:
            builder.prepare(path, **keys)
        assert "\n" not in str(caught.value)
        left = [entry.name for entry in builder.root.iterdir() if not entry.name.startswith("set")]
        assert left == []

    return check


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "tar.gz"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"train/b/1\.png: this image file is empty"),
        (b"not an image", r"train/b/1\.png: not a readable image \(unknown format\)"),
        ("truncated", r"train/b/1\.png: not a readable image"),
    ],
)
def test_bad_image_is_named(builder, refused, kind, data, message):
    files = builder.files(NAMES, size=(40, 40))
    files["train/b/1.png"] = files["train/b/1.png"][:-30] if data == "truncated" else data
    refused(builder.write(kind, files), message)


def test_first_image_bad(builder, refused):
    files = builder.files(NAMES)
    files["test/a/0.png"] = b""
    refused(builder.write("zip", files), r"set\.zip: test/a/0\.png: this image file is empty")


def test_bad_image_of_a_large_file_is_named_from_its_thread(builder, refused):
    import numpy as np
    from PIL import Image

    noise = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(noise, "PNG")
    files = dict.fromkeys(NAMES, noise.getvalue())
    files["test/b/2.png"] = noise.getvalue()[:9000]
    refused(builder.write("zip", files), r"set\.zip: test/b/2\.png: not a readable image")


def test_sixteen_bit_images_are_refused_not_clipped(builder, refused, make_image):
    files = builder.files(NAMES) | {"train/a/0.png": make_image(700, mode="I;16")}
    refused(builder.write("zip", files), "more than 8 bits per channel")


def test_sizes_that_differ(builder, refused, make_image):
    files = builder.files(NAMES) | {"train/b/0.png": make_image(1, size=(7, 5))}
    path = builder.write("zip", files)
    refused(path, r"train/b/0\.png: 7x5 pixels, but train/a/0\.png has 6x6; set 'size'")
    assert builder.prepare(path, size=4).shape == (3, 4, 4)


@pytest.mark.parametrize("name", ["../escape.png", "/etc/escape.png", "train/../../escape.png", "C:\\escape.png"])
@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_paths_that_climb_out(builder, refused, kind, name):
    files = builder.files(NAMES) | {name: b"x"}
    refused(builder.write(kind, files), "points outside of the archive")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_in_a_tar(builder, refused, kind):
    name = builder.write("tar", builder.files(NAMES))
    with tarfile.open(builder.root / name, "a") as archive:
        member = tarfile.TarInfo("train/a/link.png")
        member.type, member.linkname = kind, "train/a/0.png"
        archive.addfile(member)
    refused(name, "train/a/link.png is a link")


def test_pipes_in_a_tar(builder, refused):
    name = builder.write("tar", builder.files(NAMES))
    with tarfile.open(builder.root / name, "a") as archive:
        member = tarfile.TarInfo("train/a/pipe.png")
        member.type = tarfile.FIFOTYPE
        archive.addfile(member)
    refused(name, "is a device or pipe")


def test_links_in_a_zip(builder, refused):
    name = builder.write("zip", builder.files(NAMES))
    with zipfile.ZipFile(builder.root / name, "a") as archive:
        member = zipfile.ZipInfo("train/a/link.png")
        member.external_attr = 0o120777 << 16
        archive.writestr(member, "0.png")
    refused(name, "train/a/link.png is a link")


def test_encrypted_members(builder, refused):
    path = builder.root / builder.write("zip", builder.files(NAMES))
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1  # flag of the first entry of the central directory
    path.write_bytes(data)
    refused(path.name, "is encrypted")


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_truncated_archives(builder, refused, kind, share):
    path = builder.root / builder.write(kind, builder.files(NAMES, size=(60, 60)))
    if kind == "tar":
        # Python pads tars to 10 kB; cut inside what is used.
        used = path.read_bytes().rstrip(b"\0")
        path.write_bytes(used[: int(share * len(used))])
    else:
        path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    refused(path.name, "truncated or damaged|neither a folder nor a readable")


def test_tar_cut_between_two_members(builder, refused):
    path = builder.root / builder.write("tar", builder.files(NAMES))
    with tarfile.open(path) as archive:
        third = archive.getmembers()[2].offset
    path.write_bytes(path.read_bytes()[:third])
    refused(path.name, "the end-of-archive mark is missing")


def test_tar_with_a_damaged_header_inside(builder, refused):
    path = builder.root / builder.write("tar", builder.files(NAMES))
    with tarfile.open(path) as archive:
        third = archive.getmembers()[2].offset
    data = bytearray(path.read_bytes())
    data[third + 150] ^= 0xFF
    path.write_bytes(data)
    refused(path.name, "truncated or damaged")


def test_zip_member_with_wrong_checksum(builder, refused):
    files = builder.files(NAMES)
    path = builder.root / builder.write("zip", files)
    data = bytearray(path.read_bytes())
    place = data.index(files["train/b/1.png"]) + len(files["train/b/1.png"]) - 20
    data[place] ^= 0xFF
    path.write_bytes(data)
    refused(path.name, r"train/b/1\.png: truncated or damaged \(Bad CRC-32")


def pack(kind: str, files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
    else:
        with tarfile.open(fileobj=packed, mode=f"w:{kind.removeprefix('tar').removeprefix('-')}") as archive:
            for name, data in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


@pytest.mark.parametrize("kind", ["zip", "tar", "tar-gz", "tar-bz2", "tar-xz"])
def test_any_damaged_byte_is_one_line_or_harmless(tmp_path, kind):
    files = {f"train/ä{name}/0.txt": bytes(range(name, name + 60)) for name in (1, 2)}
    whole, path, draw = pack(kind, files), tmp_path / "archive", random.Random(0)
    refusals = []
    for _ in range(150):
        data = bytearray(whole)
        data[draw.randrange(len(data))] ^= draw.randrange(1, 256)
        path.write_bytes(data)
        try:
            with open_tree(path) as tree:
                list(tree.read(tree.files))
        except FedbenchError as error:
            refusals.append(str(error))
    assert len(refusals) > 5
    assert all(text.startswith(str(path)) and len(text.splitlines()) == 1 for text in refusals)


def test_member_that_is_there_twice(builder, refused):
    name = builder.write("tar", builder.files(NAMES))
    with tarfile.open(builder.root / name, "a") as archive:
        archive.addfile(tarfile.TarInfo("train/a/0.png"), io.BytesIO())
    refused(name, "is in the archive twice")


def test_neither_folder_nor_archive(builder, refused):
    (builder.root / "set.bin").write_bytes(b"x" * 5000)
    refused("set.bin", "neither a folder nor a readable zip or tar")
    (builder.root / "set.empty").write_bytes(b"")
    refused("set.empty", "neither a folder nor a readable zip or tar")
    refused("set.nothing", "cannot read: No such file")


def test_no_images(builder, refused):
    refused(builder.write("zip", {"readme.txt": b"hello"}), "no images found")
    refused(builder.write("zip", {}), "no images found")
    (builder.root / "set").mkdir()
    refused("set", "no images found")


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_class_in_test_but_not_in_train(builder, refused, kind):
    files = builder.files([*NAMES, "test/c/0.png", "test/c/1.png"])
    refused(builder.write(kind, files), "no training images of class 'c'")


def test_no_test_images(builder, refused):
    refused(builder.write("zip", builder.files([n for n in NAMES if n.startswith("train")])), "the test split is empty")


def test_empty_class_folder(builder, refused):
    path = builder.write("folder", builder.files(NAMES))
    (builder.root / path / "train" / "c").mkdir()
    refused(path, "folder train/c has no images")


def test_images_at_different_depths(builder, refused):
    refused(builder.write("zip", builder.files([*NAMES, "stray.png"])), "images lie at different depths .*stray.png")


def test_layout_that_does_not_fit(builder, refused):
    path = builder.write("zip", builder.files(NAMES))
    refused(path, "lies 2 folders deep, but the layout 'split/domain/class' has 3", layout="split/domain/class")
    refused(path, "no val/val_annotations.txt", layout="tiny-imagenet")
    refused(path, "no list files", layout="lists")
    path = builder.write("zip", builder.files([f"x/y/z/{n}" for n in NAMES] + ["w/y/z/train/a/1.png"]))
    refused(path, "cannot tell what the 5 folders above")


def test_unknown_keys_and_values():
    from fedbench.config.reading import parse_entry

    with pytest.raises(FedbenchError, match=r"datasets\.mine\.siez: unknown key; did you mean 'size'"):
        parse_entry("datasets", "mine", {"source": "image-folder", "path": "x", "siez": 3})
    with pytest.raises(FedbenchError, match=r"datasets\.mine\.size"):
        parse_entry("datasets", "mine", {"source": "image-folder", "path": "x", "size": 0})
    with pytest.raises(FedbenchError, match=r"datasets\.mine\.path: this key is required"):
        parse_entry("datasets", "mine", {"source": "image-folder"})
    with pytest.raises(FedbenchError, match=r"datasets\.mine\.path: .*at least 1 character"):
        parse_entry("datasets", "mine", {"source": "image-folder", "path": ""})
