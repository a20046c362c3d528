"""Layouts where a text file says what an image is: DomainNet's lists, Tiny-ImageNet, and a table of clients."""

from __future__ import annotations

import csv
import re
from pathlib import PurePosixPath

import numpy as np

from fedbench.data._decode import formats
from fedbench.data._item import Item, check_twice, match_list
from fedbench.data._names import natural_order
from fedbench.data._tree import TEXT_BYTES, Tree
from fedbench.data.store import TEST, TRAIN
from fedbench.errors import FedbenchError

ANNOTATIONS = "val/val_annotations.txt"
CLASSES = "wnids.txt"
PARTS = {"train": r"((?:.*/)?)train/[^/]+/images/[^/]+", "val": r"((?:.*/)?)val/images/[^/]+"}


def list_files(tree: Tree, folder: str | None) -> list[str]:
    """The ``{domain}_{train,test}.txt`` files of a tree, or of one folder of it."""
    found = [name for name in tree.files if match_list(name)]
    if folder is not None:
        found = [name for name in found if PurePosixPath(name).parent.as_posix().endswith(folder.strip("/"))]
    return found


def has_lists(tree: Tree) -> bool:
    """Whether files that are named like lists are lists: one of them is empty or starts with the path of an image."""
    ending = re.compile("|".join(rf"{re.escape(suffix)}(\s|$)" for suffix in formats()), re.IGNORECASE)
    for _, data in tree.read(list_files(tree, None), TEXT_BYTES):
        lines = data[: 1 << 16].decode("utf-8-sig", errors="replace").strip().splitlines()
        if not lines or ending.search(lines[0]):
            return True
    return False


def domain_lists(tree: Tree, folder: str | None) -> list[Item]:
    """Read DomainNet's lists: lines of ``path label``; paths start at the lists' folder or one above it."""
    files = list_files(tree, folder)
    folders = sorted({PurePosixPath(name).parent.as_posix() for name in files})
    if not files:
        where = f" in {folder!r}" if folder else ""
        raise FedbenchError(f"{tree.path}: no list files ({{domain}}_train.txt, {{domain}}_test.txt){where}")
    if len(folders) > 1:
        raise FedbenchError(f"{tree.path}: list files in several folders ({', '.join(folders)}); choose with 'lists'")
    known, rows = set(tree.files), []
    for name, text in sorted(tree.read_texts(files).items()):
        match = match_list(name)
        split = TRAIN if match["split"] == "train" else TEST
        if not text.strip():
            raise FedbenchError(f"{tree.path}: {name}: this list is empty; fetch it again or remove it")
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                path, _, label = line.strip().rpartition(" ")
                if not path or not re.fullmatch("[0-9]{1,18}", label):
                    raise FedbenchError(f"{tree.path}: {name}, line {number}: expected 'path label', got {line!r}")
                rows.append((f"{name}, line {number}", path.strip(), int(label), match["domain"], split))
    root = _list_root(known, rows, folders[0])
    for place, path, *_ in rows:
        if root + path not in known:
            raise FedbenchError(f"{tree.path}: {place}: no image {path}; add it or remove the line")
    check_twice(tree, [root + path for _, path, *_ in rows])
    names = _class_names(tree, [(place, path, label) for place, path, label, *_ in rows])
    return [Item(root + path, names[label], domain, split) for _, path, label, domain, split in rows]


def _list_root(known: set[str], rows: list[tuple], folder: str) -> str:
    """The folder that listed paths start from: the one, at or above the lists, where the first of them exists."""
    place = PurePosixPath(folder)
    for base in (place, *place.parents):
        prefix = "" if base == PurePosixPath(".") else f"{base}/"
        if rows and prefix + rows[0][1] in known:
            return prefix
    return ""


def _class_names(tree: Tree, rows: list[tuple[str, str, int]]) -> dict[int, str]:
    """Name classes by their images' folder where that is one to one, else by their zero-padded number."""
    folders: dict[int, set[str]] = {}
    for _, path, label in rows:
        folders.setdefault(label, set()).add(PurePosixPath(path).parent.name)
    labels = sorted(folders)
    gap = next((number for number, label in enumerate(labels) if number != label), None)
    if gap is not None:
        place = next(place for place, _, label in rows if label == labels[gap])
        raise FedbenchError(
            f"{tree.path}: {place}: label {labels[gap]}, but no image has label {gap}; labels must be 0 to the number "
            "of classes - 1"
        )
    digits = len(str(labels[-1]))
    single = {label: next(iter(names)) for label, names in folders.items() if len(names) == 1 and "" not in names}
    if len(set(single.values())) == len(labels):
        return single
    return {label: f"{label:0{digits}d}" for label in labels}


def tiny_imagenet_root(tree: Tree, images: list[str]) -> str | None:
    """Where Tiny-ImageNet's own layout starts in a tree, or None if it is not there."""
    found = [name for name in tree.files if name == ANNOTATIONS or name.endswith(f"/{ANNOTATIONS}")]
    if len(found) > 1:
        raise FedbenchError(f"{tree.path}: Tiny-ImageNet is here twice ({found[0]}, {found[1]}); remove one of them")
    if found:
        return found[0].removesuffix(ANNOTATIONS)
    parts = {
        part: {match[1] for name in images if (match := re.fullmatch(pattern, name))} for part, pattern in PARTS.items()
    }
    halves = sorted(parts["train"] & parts["val"])
    if halves:
        raise FedbenchError(
            f"{tree.path}: no {halves[0]}{ANNOTATIONS}, which says the classes of Tiny-ImageNet's val/images/; "
            "fetch the data set again"
        )
    return None


def tiny_imagenet(tree: Tree, images: list[str]) -> list[Item]:
    """Read ``train/<wnid>/images/*.JPEG``, and ``val/images/*.JPEG`` as the test split (test/ has no labels)."""
    root = tiny_imagenet_root(tree, images)
    if root is None:
        raise FedbenchError(f"{tree.path}: no {ANNOTATIONS}, so this is not Tiny-ImageNet's own layout")
    labels = _annotations(tree, root)
    items = []
    for name in images:
        parts = PurePosixPath(name.removeprefix(root)).parts
        if parts[0] == "train":
            if len(parts) != 4 or parts[2] != "images":
                raise FedbenchError(f"{tree.path}: {name} is not in train/<class>/images/; move or remove it")
            items.append(Item(name, parts[1], split=TRAIN))
        elif parts[0] == "val":
            if name not in labels:
                raise FedbenchError(f"{tree.path}: {name} is not in {ANNOTATIONS}; add its class or remove it")
            items.append(Item(name, labels[name], split=TEST))
    absent = sorted(set(labels) - set(images))
    if absent:
        raise FedbenchError(f"{tree.path}: {absent[0]} is in {ANNOTATIONS} but not here; fetch the data set again")
    _check_classes(tree, root, {item.label for item in items if item.split == TRAIN})
    return items


def _annotations(tree: Tree, root: str) -> dict[str, str]:
    """The class of each validation image, by the image's name in the tree."""
    labels: dict[str, str] = {}
    for number, line in enumerate(tree.read_text(root + ANNOTATIONS).splitlines(), start=1):
        columns = line.split()
        if not columns:
            continue
        if len(columns) < 2:
            raise FedbenchError(f"{tree.path}: {ANNOTATIONS}, line {number}: expected a file name and a class")
        name = f"{root}val/images/{columns[0]}"
        if name in labels:
            raise FedbenchError(
                f"{tree.path}: {ANNOTATIONS}, line {number}: {columns[0]} is annotated twice ({labels[name]}, "
                f"{columns[1]}); keep one line"
            )
        labels[name] = columns[1]
    return labels


def _check_classes(tree: Tree, root: str, trained: set[str]) -> None:
    """No class that the data set names may be without training images: those are an interrupted copy."""
    named = {name.removeprefix(f"{root}train/") for name in tree.folders if name.startswith(f"{root}train/")}
    named = {name for name in named if "/" not in name}
    if root + CLASSES in tree.files:
        named |= set(tree.read_text(root + CLASSES).split())
    missing = sorted(named - trained)
    if missing:
        raise FedbenchError(
            f"{tree.path}: class {missing[0]} has no images in {root}train/{missing[0]}/images/; "
            "fetch the data set again"
        )


def client_table(tree: Tree, name: str, items: list[Item]) -> tuple[np.ndarray, list[str]]:
    """Read the CSV file that names each image's client.

    Parameters
    ----------
    name : file with the columns ``path`` (from the file's own folder) and ``client``

    Returns
    -------
    int64 [N] indices into the clients' sorted names (2 before 10), and those names

    Raises
    ------
    FedbenchError
        Naming the line or image, where a line is incomplete, repeats an image or names one that does not exist, and
        where an image has no line.
    """
    if name not in tree.files:
        raise FedbenchError(f"{tree.path}: no file {name}; 'clients' names a CSV file in the folder or archive")
    rows = csv.DictReader(tree.read_text(name).splitlines())
    try:
        lines = [(rows.line_num, row) for row in rows]
    except csv.Error as error:
        raise FedbenchError(f"{tree.path}: {name}, line {rows.line_num}: not a CSV file ({error}); mend it") from None
    if not {"path", "client"} <= set(rows.fieldnames or ()):
        found = ", ".join(rows.fieldnames or ()) or "none"
        raise FedbenchError(f"{tree.path}: {name}: expected the columns 'path' and 'client', found {found[:200]}")
    folder, known, owners = PurePosixPath(name).parent, set(tree.files), {}
    for line, row in lines:
        if not row["path"] or not row["client"]:
            raise FedbenchError(f"{tree.path}: {name}, line {line}: expected a path and a client; complete it")
        path = (folder / row["path"]).as_posix()
        if path not in known:
            raise FedbenchError(f"{tree.path}: {name}, line {line}: no image {path}; remove the line or add it")
        if path in owners:
            raise FedbenchError(f"{tree.path}: {name}, line {line}: {path} is listed twice; give it one client")
        owners[path] = row["client"]
    for item in items:
        if item.path not in owners:
            raise FedbenchError(f"{tree.path}: {name} names no client for {item.path}; add a line for it")
    names = sorted({owners[item.path] for item in items}, key=natural_order)
    codes = {client: code for code, client in enumerate(names)}
    return np.array([codes[owners[item.path]] for item in items], dtype=np.int64), names
