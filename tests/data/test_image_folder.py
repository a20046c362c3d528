"""Every layout, from folders and archives alike."""

import numpy as np
import pytest

from fedbench.data.store import TEST, TRAIN
from fedbench.errors import FedbenchError

KINDS = ("folder", "zip", "tar", "tar.gz")
SPLIT = [f"{s}/{c}/{n}.png" for s, n_images in (("train", 3), ("test", 2)) for c in "ab" for n in range(n_images)]
DOMAIN = [f"{d}/{c}/{n}.png" for d in ("photo", "art") for c in "ab" for n in range(5)]


def by_path(store, files, flat_values):
    """(label, domain, split) of each file, found again by its grey value."""
    found = {}
    names = {value: name for name, value in zip(files, range(0, 3 * len(files), 3), strict=True)}
    for index, value in enumerate(flat_values(store)):
        found[names[value]] = (
            store.class_names[store.labels[index]],
            store.domain_names[store.domains[index]],
            int(store.splits[index]),
        )
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_split_and_class(builder, flat_values, kind):
    store = builder.prepare(builder.write(kind, builder.files(SPLIT)))
    assert store.meta["source"]["layout"] == "split/class"
    assert store.meta["test_split"] == "official"
    for path, (label, domain, split) in by_path(store, SPLIT, flat_values).items():
        assert (label, domain) == (path.split("/")[1], "all")
        assert split == (TRAIN if path.startswith("train") else TEST)


def test_folder_zip_and_tar_give_the_same_bytes(builder):
    files = builder.files(SPLIT)
    hashes = {builder.prepare(builder.write(kind, files), out=kind).sha256 for kind in KINDS}
    assert len(hashes) == 1


def test_domain_and_class(builder, flat_values):
    store = builder.prepare(builder.write("zip", builder.files(DOMAIN)))
    assert store.domain_names == ("art", "photo")
    assert store.meta["test_split"] == "stratified"
    assert (store.splits == TEST).sum() == 4  # one of five of each domain and class
    for path, (label, domain, _) in by_path(store, DOMAIN, flat_values).items():
        assert [domain, label] == path.split("/")[:2]


def test_class_only_below_folders_that_say_nothing(builder):
    names = [f"flowers/images/{c}/{n}.png" for c in ("rose", "tulip") for n in range(5)]
    store = builder.prepare(builder.write("tar", builder.files(names)))
    assert store.meta["source"]["layout"] == "class"
    assert store.class_names == ("rose", "tulip")


@pytest.mark.parametrize(
    ("pattern", "place"), [("split/domain/class", "{s}/{d}/{c}"), ("domain/split/class", "{d}/{s}/{c}")]
)
def test_split_and_domain(builder, flat_values, pattern, place):
    names = [
        f"root/{place.format(s=s, d=d, c=c)}/{n}.png"
        for s in ("train", "val") for d in ("x", "y") for c in "ab" for n in range(2)
    ]  # fmt: skip
    store = builder.prepare(builder.write("zip", builder.files(names)))
    assert store.meta["source"]["layout"] == pattern
    for path, (label, domain, split) in by_path(store, names, flat_values).items():
        assert label == path.split("/")[3]
        assert f"/{domain}/" in path
        assert split == (TEST if "/val/" in path else TRAIN)  # without a test folder, val is the test split


def test_validation_joins_training_where_there_is_a_test_split(builder, flat_values):
    names = [f"{s}/{c}/{n}.png" for s in ("train", "val", "test") for c in "ab" for n in range(2)]
    store = builder.prepare(builder.write("folder", builder.files(names)))
    for path, (_, _, split) in by_path(store, names, flat_values).items():
        assert split == (TEST if path.startswith("test") else TRAIN)


def test_layout_can_be_forced(builder):
    names = [f"{d}/{c}/{n}.png" for d in ("train", "other") for c in "ab" for n in range(5)]
    path = builder.write("zip", builder.files(names))
    with pytest.raises(FedbenchError, match="folder 'other' beside the training folder"):
        builder.prepare(path)
    assert builder.prepare(path, layout="domain/class").domain_names == ("other", "train")


def test_tiny_imagenet_as_published(builder, flat_values):
    train = [f"tiny-imagenet-200/train/{w}/images/{w}_{n}.JPEG" for w in ("n01", "n02") for n in range(3)]
    val = [f"tiny-imagenet-200/val/images/val_{n}.JPEG" for n in range(2)]
    unlabelled = ["tiny-imagenet-200/test/images/test_0.JPEG"]
    files = builder.files(train + val + unlabelled)
    files["tiny-imagenet-200/val/val_annotations.txt"] = b"val_0.JPEG\tn02\t0\t0\t1\t1\nval_1.JPEG\tn01\t0\t0\t1\t1\n"
    files["tiny-imagenet-200/train/n01/n01_boxes.txt"] = b"x"
    store = builder.prepare(builder.write("zip", files))
    assert store.meta["source"]["layout"] == "tiny-imagenet"
    found = by_path(store, list(builder.files(train + val + unlabelled)), flat_values)
    assert found[val[0]] == ("n02", "all", TEST)
    assert found[val[1]] == ("n01", "all", TEST)
    assert found[train[4]] == ("n02", "all", TRAIN)
    assert len(found) == 8
    del files["tiny-imagenet-200/val/images/val_1.JPEG"]
    with pytest.raises(FedbenchError, match=r"is in val/val_annotations\.txt but not here"):
        builder.prepare(builder.write("zip", files))


def domainnet(builder, lists="splits_mini"):
    names = [f"domainnet/{d}/{c}/{n}.png" for d in ("clipart", "sketch") for c in ("ant", "bee") for n in range(3)]
    files = builder.files(names)
    for domain in ("clipart", "sketch"):
        for split, numbers in (("train", (0, 1)), ("test", (2,))):
            lines = [f"{domain}/{c}/{n}.png {k}" for k, c in enumerate(("ant", "bee")) for n in numbers]
            files[f"domainnet/{lists}/{domain}_{split}.txt"] = ("\n".join(lines) + "\n").encode()
    return names, files


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_domainnet_lists(builder, flat_values, kind):
    names, files = domainnet(builder)
    store = builder.prepare(builder.write(kind, files))
    assert store.meta["source"]["layout"] == "lists"
    for path, (label, domain, split) in by_path(store, names, flat_values).items():
        assert [domain, label] == path.split("/")[1:3]
        assert split == (TEST if path.endswith("2.png") else TRAIN)


def test_list_folder_is_chosen_where_there_are_two(builder):
    _, files = domainnet(builder)
    files |= domainnet(builder, lists="splits")[1]
    path = builder.write("zip", files)
    with pytest.raises(FedbenchError, match=r"list files in several folders .* choose with 'lists'"):
        builder.prepare(path)
    assert len(builder.prepare(path, lists="splits_mini").images) == 12


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sketch/ant/9.png 0", "sketch_test.txt, line 1: no image sketch/ant/9.png"),
        ("sketch/ant/2.png", "line 1: expected 'path label'"),
        ("sketch/ant/2.png x", "line 1: expected 'path label'"),
        ("sketch/ant/1.png 0", "sketch/ant/1.png is listed twice"),
        ("sketch/ant/2.png 3", "no image has label 2"),
        ("sketch/ant/2.png 2", "no training images of class"),
    ],
)
def test_wrong_lists(builder, line, message):
    _, files = domainnet(builder)
    files["domainnet/splits_mini/sketch_test.txt"] = line.encode()
    with pytest.raises(FedbenchError, match=message):
        builder.prepare(builder.write("folder", files))


def test_hidden_files_are_ignored(builder):
    files = builder.files(SPLIT)
    clutter = dict.fromkeys(["__MACOSX/train/a/._0.png", "train/a/.hidden.png", ".DS_Store", "train/a/notes.txt"], b"?")
    for kind in KINDS:
        assert len(builder.prepare(builder.write(kind, files | clutter), out=kind).images) == len(SPLIT)


def test_size_cuts_the_centre_square(builder, make_image):
    from io import BytesIO

    from PIL import Image

    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 8:22] = 200  # the centre square, and what antialiasing sees of its surroundings
    buffer = BytesIO()
    Image.fromarray(wide).save(buffer, "PNG")
    files = {f"c/{n}.png": buffer.getvalue() for n in range(4)} | {f"d/{n}.png": make_image(90) for n in range(4)}
    store = builder.prepare(builder.write("zip", files), size=5)
    assert store.shape == (3, 5, 5)
    assert (store.images[store.labels == 0] == 200).all()
    assert (store.images[store.labels == 1] == 90).all()


def test_gray(builder):
    store = builder.prepare(builder.write("zip", builder.files(DOMAIN, kind="JPEG")), color="gray")
    assert store.shape == (1, 6, 6)


def test_a_format_under_another_name_is_still_read(builder, make_image):
    files = {f"{c}/{n}.jpg": make_image(50, kind="PNG") for c in "ab" for n in range(3)}
    assert (builder.prepare(builder.write("zip", files)).images == 50).all()


def test_duplicates_across_the_splits_are_counted(builder):
    files = builder.files(SPLIT)
    files["test/a/0.png"] = files["train/b/1.png"]
    files["train/a/0.png"] = files["train/a/1.png"]  # inside one split: not a leak
    store = builder.prepare(builder.write("zip", files))
    assert store.meta["duplicates"] == 1


def test_client_table(builder, flat_values):
    names = [f"writers/{c}/{n}.png" for c in "ab" for n in range(9)]
    files = builder.files(names)
    rows = [f"{name.removeprefix('writers/')},w{n % 3}" for n, name in enumerate(names)]
    files["writers/clients.csv"] = "\n".join(["path,client", *rows]).encode()
    store = builder.prepare(builder.write("zip", files), clients="writers/clients.csv")
    assert store.meta["source"]["clients"] == ["w0", "w1", "w2"]
    assert (store.groups == flat_values(store) // 3 % 3).all()
    for group in range(3):  # every client can be evaluated
        assert set(store.splits[store.groups == group]) == {TRAIN, TEST}
    files["writers/clients.csv"] = "\n".join(["path,client", *rows[1:]]).encode()
    with pytest.raises(FedbenchError, match=r"names no client for writers/a/0\.png"):
        builder.prepare(builder.write("zip", files), clients="writers/clients.csv")
    with pytest.raises(FedbenchError, match=r"no file missing\.csv"):
        builder.prepare(builder.write("zip", files), clients="missing.csv")
    files["writers/clients.csv"] = b"path,client\n" + b"x" * 200_000 + b",w0\n"
    with pytest.raises(FedbenchError, match=r"clients\.csv, line \d: not a CSV file \(field larger than .*\); mend it"):
        builder.prepare(builder.write("zip", files), clients="writers/clients.csv")
    files["writers/clients.csv"] = b"image,user\n"
    with pytest.raises(FedbenchError, match="expected the columns 'path' and 'client'"):
        builder.prepare(builder.write("zip", files), clients="writers/clients.csv")
