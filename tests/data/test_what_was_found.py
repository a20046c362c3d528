"""Nothing is guessed, dropped or changed in silence: it is asked for, refused, or said."""

import io

import numpy as np
import pytest
from PIL import Image

from fedbench.data._summary import lines
from fedbench.data.store import TEST, TRAIN
from fedbench.errors import FedbenchError

SPLIT = [f"{s}/{c}/{n}.png" for s in ("train", "test") for c in "ab" for n in range(3)]


def refused(builder, files, message, **keys):
    with pytest.raises(FedbenchError, match=message) as caught:
        builder.prepare(builder.write("zip", files), **keys)
    assert "\n" not in str(caught.value)


def say(store) -> str:
    return "\n".join(lines(store.meta))


@pytest.mark.parametrize(
    ("train", "test"),
    [("training_set", "test_set"), ("train2017", "val2017"), ("TrainImages", "TestImages"), ("trainset", "testset"),
     ("val", "test"), ("art", "Test")],
)  # fmt: skip
def test_folders_that_look_like_splits_are_asked_about(builder, flat_values, train, test):
    names = [f"pets/{s}/{c}/{n}.png" for s in (train, test) for c in ("cat", "dog") for n in range(5)]
    path = builder.write("zip", builder.files(names))
    with pytest.raises(FedbenchError, match=r"look like splits; set 'layout' to split/class if they are, or to domain"):
        builder.prepare(path)
    assert builder.prepare(path, layout="domain/class").domain_names == tuple(sorted((train, test)))
    if train in ("val", "art"):
        with pytest.raises(FedbenchError, match=r"'art' is no split|no training images of class 'cat', 'dog'"):
            builder.prepare(path, out="split", layout="split/class")
        return
    store = builder.prepare(path, out="split", layout="split/class")
    assert [(store.splits == split).sum() for split in (TRAIN, TEST)] == [10, 10]
    assert (flat_values(store)[store.splits == TRAIN] < 30).all()


def test_folders_that_say_no_one_split_are_refused(builder):
    names = [f"{s}/{c}/{n}.png" for s in ("train_val", "test") for c in "ab" for n in range(2)]
    refused(builder, builder.files(names), "'train_val' is no split", layout="split/class")


def test_splits_without_classes(builder):
    names = [f"{s}/{n}.png" for s in ("train", "test") for n in range(5)]
    refused(builder, builder.files(names), "folders 'test', 'train' look like splits, but have no folders of classes")
    assert builder.prepare("set.zip", layout="class").class_names == ("test", "train")


def test_a_class_may_be_called_train(builder):
    names = [f"{c}/{n}.png" for c in ("bus", "train", "valley") for n in range(5)]
    assert builder.prepare(builder.write("zip", builder.files(names))).class_names == ("bus", "train", "valley")


def test_what_was_found_is_said(builder):
    files = builder.files(SPLIT)
    files["test/a/0.png"] = files["train/b/1.png"]
    text = say(builder.prepare(builder.write("zip", files)))
    assert text == (
        "layout split/class\n12 images of 6x6 pixels\n2 classes: a, b\n"
        "official test split: 6 training and 6 test images\n"
        "warning: 1 test images equal a training image, pixel by pixel"
    )
    names = [f"{d}/{c}/{n}.png" for d in ("photo", "art") for c in "ab" for n in range(5)]
    text = say(builder.prepare(builder.write("zip", builder.files(names)), out="domains", public={"fraction": 0.5}))
    assert "2 domains: art (10), photo (10)" in text
    assert "test split drawn here: 8 training and 4 test images, 8 public ones besides" in text


def test_files_that_are_left_out_are_counted(builder):
    files = (
        builder.files(SPLIT)
        | {f"train/a/{n}.AVIF": b"x" for n in range(25)}
        | {f"train/b/{n}": b"x" for n in range(15)}
    )
    store = builder.prepare(builder.write("zip", files | {"clients.csv": b"path,client\n"}))
    assert store.meta["source"]["left_out"] == {".avif": 25, "no ending": 15, ".csv": 1}
    assert "left out: 41 files that are no images of this layout (25 .avif, 15 no ending, 1 .csv)" in say(store)


def test_images_that_lists_leave_out_are_counted_and_lists_are_not(builder):
    files = builder.files([f"art/{c}/{n}.png" for c in "ab" for n in range(4)])
    files["art_train.txt"] = b"art/a/0.png 0\nart/b/0.png 1\n"
    files["art_test.txt"] = b"art/a/1.png 0\nart/b/1.png 1\n"
    assert builder.prepare(builder.write("zip", files)).meta["source"]["left_out"] == {".png": 4}


def rgba(alpha: int) -> bytes:
    """Black, with a centre of the given opacity on a transparent ground."""
    pixels = np.zeros((6, 6, 4), np.uint8)
    pixels[2:4, 2:4, 3] = alpha
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_transparent_pixels_become_white_and_it_is_said(builder, color):
    opaque = Image.new("RGBA", (6, 6), (9, 9, 9, 255))
    buffer = io.BytesIO()
    opaque.save(buffer, "PNG")
    files = dict.fromkeys(SPLIT, buffer.getvalue()) | {"train/a/0.png": rgba(255), "train/a/1.png": rgba(128)}
    store = builder.prepare(builder.write("zip", files), color=color)
    assert store.images[0, 0].min() == 0
    assert store.images[1, 0].min() == 127
    assert (store.images[:2, :, 0] == 255).all()
    assert (store.images[2:] == 9).all()
    assert "2 images have transparent pixels, which are white now" in say(store)


def test_transparency_of_a_palette(builder):
    image = Image.new("P", (6, 6), 1)
    image.putpalette([0, 0, 0, 50, 50, 50])
    image.putpixel((0, 0), 0)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", transparency=0)
    store = builder.prepare(builder.write("zip", dict.fromkeys(SPLIT, buffer.getvalue())))
    assert (store.images[0, :, 0, 0].tolist(), store.images[0, :, 0, 1].tolist()) == ([255] * 3, [50] * 3)


@pytest.mark.parametrize("label", ["²", "10000000000000000000000", "-1", "1.0", "٣"])
def test_labels_that_are_no_whole_numbers(builder, label):
    files = builder.files([f"art/{c}/{n}.png" for c in "ab" for n in range(2)])
    files["art_train.txt"] = f"art/a/0.png 0\nart/b/0.png {label}\n".encode()
    refused(builder, files, "art_train.txt, line 2: expected 'path label'")


def test_the_first_gap_of_the_labels_is_named_and_the_line(builder):
    files = builder.files([f"art/{c}/{n}.png" for c in "ab" for n in range(2)])
    files["art_train.txt"] = b"art/a/0.png 0\nart/b/0.png 100000000\n"
    refused(builder, files, "art_train.txt, line 2: label 100000000, but no image has label 1; labels must be 0 to")


@pytest.mark.parametrize("empty", [("art_train.txt",), ("art_train.txt", "art_test.txt")])
def test_empty_lists(builder, empty):
    files = builder.files([f"art/{c}/{n}.png" for c in "ab" for n in range(2)])
    files["art_train.txt"] = files["art_test.txt"] = b"art/a/0.png 0\nart/b/0.png 1\n"
    refused(builder, files | dict.fromkeys(empty, b" \n"), f"{min(empty)}: this list is empty")


def test_a_text_that_is_called_like_a_list_is_none(builder):
    files = builder.files(SPLIT) | {"how_to_train.txt": b"Run the script.\nIt takes long \xff.\n"}
    store = builder.prepare(builder.write("folder", files))
    assert store.meta["source"]["layout"] == "split/class"
    assert store.meta["source"]["left_out"] == {".txt": 1}


def test_lost_and_found_at_a_mount_point(builder):
    names = [f"{c}/{n}.png" for c in "ab" for n in range(5)]
    root = builder.root / builder.write("folder", builder.files(names))
    (root / "lost+found").mkdir()
    assert builder.prepare("set").class_names == ("a", "b")


@pytest.mark.parametrize("place", ["train/{}/0.png", "{}/train/a/0.png"])
def test_names_that_are_not_utf8(builder, place):
    files = builder.files([name if place[0] == "t" else f"art/{name}" for name in SPLIT])
    root = builder.root / builder.write("folder", files)
    name = place.format("Caf\udce9")
    (root / name).parent.mkdir(parents=True)
    (root / name).write_bytes(next(iter(files.values())))
    with pytest.raises(FedbenchError, match=r"the name of (class|domain) 'Caf\\udce9' is not UTF-8; rename it"):
        builder.prepare("set")


def test_files_whose_names_are_not_utf8(builder):
    root = builder.root / builder.write("folder", builder.files(SPLIT))
    (root / "train/a/0.\udce9\n").write_bytes(b"x")
    assert r"1 files that are no images of this layout (1 .\udce9)" in say(builder.prepare("set"))
    (root / "train/a/\udce9.png").write_bytes(b"")
    with pytest.raises(FedbenchError, match=r"train/a/\\udce9\.png: this image file is empty") as caught:
        builder.prepare("set", out="other")
    assert str(caught.value).encode()


def tiny(builder, root="tiny/"):
    train = [f"{root}train/{w}/images/{w}_{n}.JPEG" for w in ("n01", "n02") for n in range(3)]
    files = builder.files(train + [f"{root}val/images/val_{n}.JPEG" for n in range(2)], kind="JPEG")
    files[f"{root}val/val_annotations.txt"] = b"val_0.JPEG\tn02\t0\t0\t1\t1\nval_1.JPEG\tn01\t0\t0\t1\t1\n\n"
    files[f"{root}wnids.txt"] = b"n01\nn02\n"
    return files


def test_tiny_imagenet_with_a_blank_last_line(builder):
    store = builder.prepare(builder.write("zip", tiny(builder)))
    assert store.meta["source"]["layout"] == "tiny-imagenet"
    assert store.meta["source"]["left_out"] == {}


def test_tiny_imagenet_annotated_twice(builder):
    files = tiny(builder)
    files["tiny/val/val_annotations.txt"] += b"val_0.JPEG\tn01\n"
    refused(builder, files, r"val_annotations\.txt, line 4: val_0\.JPEG is annotated twice \(n02, n01\)")


def test_tiny_imagenet_training_image_elsewhere(builder):
    files = tiny(builder)
    files["tiny/train/n01/n01_9.JPEG"] = files["tiny/train/n01/images/n01_0.JPEG"]
    refused(builder, files, r"tiny/train/n01/n01_9\.JPEG is not in train/<class>/images/")


def test_tiny_imagenet_class_without_images(builder):
    files = tiny(builder)
    files["tiny/wnids.txt"] = b"n01\nn02\nn03\n"
    refused(builder, files, "class n03 has no images in tiny/train/n03/images/")
    root = builder.root / builder.write("folder", tiny(builder))
    (root / "tiny/train/n04/images").mkdir(parents=True)
    with pytest.raises(FedbenchError, match="class n04 has no images"):
        builder.prepare("set")


def test_tiny_imagenet_twice_in_one_folder(builder):
    refused(builder, tiny(builder) | tiny(builder, "copy/"), r"here twice \(copy/val/val_annot.*, tiny/val/val_annot")


def test_tiny_imagenet_without_annotations(builder):
    files = tiny(builder)
    del files["tiny/val/val_annotations.txt"]
    refused(builder, files, r"no tiny/val/val_annotations\.txt, which says the classes of Tiny-ImageNet's val/images/")
