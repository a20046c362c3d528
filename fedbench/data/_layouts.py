"""From file names to labels, domains and splits."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePosixPath

from fedbench.data._decode import formats
from fedbench.data._item import Item
from fedbench.data._listings import domain_lists, has_lists, tiny_imagenet, tiny_imagenet_root
from fedbench.data._tree import Tree
from fedbench.data.store import TEST, TRAIN
from fedbench.errors import FedbenchError

# What each level of folders above an image says.
PATTERNS = ("class", "domain/class", "split/class", "split/domain/class", "domain/split/class")
# Folders of these names are splits wherever they stand where one may be; others only look like splits (train2017,
# test_set): what they are has to be said.
SPLIT_FOLDERS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing"), "test"),
    **dict.fromkeys(("val", "valid", "validation"), "validation"),
}
SPLIT_WORDS = {
    **SPLIT_FOLDERS,
    **dict.fromkeys(("trainval", "trainset", "trainingset"), "train"),
    "testset": "test",
    **dict.fromkeys(("valset", "validset", "validationset", "dev", "devset", "eval", "evaluation"), "validation"),
}


def lay_out(tree: Tree, layout: str, lists: str | None) -> tuple[str, list[Item]]:
    """Find the images of a tree and what their names say; returns the layout's name and the items in sorted order.

    Raises
    ------
    FedbenchError
        If there are no images, or they do not fit the layout (or, with "auto", any layout).
    """
    suffixes = tuple(formats())
    images = [name for name in tree.files if name.lower().endswith(suffixes)]
    if not images:
        raise FedbenchError(f"{tree.path}: no images found; expected files ending in {', '.join(sorted(suffixes))}")
    if layout == "lists" or (layout == "auto" and (lists is not None or has_lists(tree))):
        layout, items = "lists", domain_lists(tree, lists)
    elif layout == "tiny-imagenet" or (layout == "auto" and tiny_imagenet_root(tree, images) is not None):
        layout, items = "tiny-imagenet", tiny_imagenet(tree, images)
    else:
        layout, items = _from_folders(tree, images, layout)
    return layout, sorted(items, key=lambda item: (item.split or 0, item.path))


def _from_folders(tree: Tree, images: list[str], layout: str) -> tuple[str, list[Item]]:
    root = _common_root(images, None if layout == "auto" else len(layout.split("/")))
    pattern = _detect(tree, images, root) if layout == "auto" else layout
    said = [_said(tree, name, root, pattern) for name in images]
    kinds = {folders["split"]: _split_of(folders["split"]) for folders in said if "split" in folders}
    # Where train, val and test all exist, val joins train: validation is drawn per client, from its own samples.
    # Where there is no test folder, val is the test split, as is usual for data sets whose test labels are secret.
    joins = {"train", "test"} <= set(kinds.values())
    splits = {"train": TRAIN, "test": TEST, "validation": TRAIN if joins else TEST, None: None}
    items = [
        Item(name, folders["class"], folders.get("domain", "all"), splits[kinds.get(folders.get("split"))])
        for name, folders in zip(images, said, strict=True)
    ]
    _check_empty(tree, items, root, pattern)
    return pattern, items


def left_out(tree: Tree, items: list[Item]) -> dict[str, int]:
    """How many files of a tree are neither samples nor were read as lists, by their ending, most frequent first."""
    used = {item.path for item in items} | tree.texts
    endings = Counter(PurePosixPath(name).suffix.lower() or "no ending" for name in tree.files if name not in used)
    return dict(sorted(endings.items(), key=lambda pair: (-pair[1], pair[0])))


def _common_root(images: list[str], depth: int | None) -> str:
    """The folders that every image lies in and that say nothing, such as the data set's own name.

    Down to `depth` levels above the images where the layout is given; otherwise to one level, or to a split's name.
    """
    root: list[str] = []
    folders = [name.split("/")[:-1] for name in images]
    while True:
        tops = {parts[len(root)] if len(parts) > len(root) else None for parts in folders}
        shallowest = min(len(parts) for parts in folders) - len(root)
        top = tops.pop()
        if tops or top is None or shallowest <= (depth or 1) or (depth is None and top.lower() in SPLIT_FOLDERS):
            return "".join(f"{part}/" for part in root)
        root.append(top)


def _detect(tree: Tree, images: list[str], root: str) -> str:
    """Guess the pattern from depth and folder names."""
    folders = [name.removeprefix(root).split("/")[:-1] for name in images]
    hint = f"set 'layout' to one of {', '.join(PATTERNS)}, lists, tiny-imagenet"
    depths = {len(parts) for parts in folders}
    if len(depths) > 1:
        shallow = min(images, key=lambda name: name.count("/"))
        deep = max(images, key=lambda name: name.count("/"))
        raise FedbenchError(f"{tree.path}: images lie at different depths ({shallow}, {deep}); move them, or {hint}")
    depth = depths.pop()
    levels = [sorted({parts[level] for parts in folders}) for level in range(depth)]
    found = {1: "class", 2: "domain/class"}.get(depth)
    for level, pattern in ((0, {2: "split/class", 3: "split/domain/class"}), (1, {3: "domain/split/class"})):
        if depth in pattern and any(SPLIT_FOLDERS.get(name.lower()) == "train" for name in levels[level]):
            others = [name for name in levels[level] if name.lower() not in SPLIT_FOLDERS]
            if others:
                raise FedbenchError(
                    f"{tree.path}: folder {others[0]!r} beside the training folder; remove it, or {hint}"
                )
            found = pattern[depth]
    if found is None:
        raise FedbenchError(f"{tree.path}: cannot tell what the {depth} folders above {images[0]} mean; {hint}")
    if found in ("class", "domain/class"):
        _check_doubtful(tree, levels[0], found)
    return found


def _check_doubtful(tree: Tree, tops: list[str], pattern: str) -> None:
    """Ask what folders are that look like splits: test images among the training images would go unnoticed."""
    alike = [name for name in tops if _words(name) & set(SPLIT_WORDS)]
    # A single class may well be called "train", a vehicle; classes that all are called like splits are none.
    if not alike or (pattern == "class" and len(alike) < len(tops)):
        return
    names = ", ".join(map(repr, alike[:5]))
    if pattern == "class":
        raise FedbenchError(
            f"{tree.path}: folders {names} look like splits, but have no folders of classes below them; add those, or "
            "set 'layout' to class if they are classes"
        )
    raise FedbenchError(
        f"{tree.path}: folders {names} look like splits; set 'layout' to split/class if they are, or to domain/class "
        "if they are domains"
    )


def _words(folder: str) -> set[str]:
    return set(re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", folder).lower()))


def _split_of(folder: str) -> str | None:
    """What a folder that is said to be a split is: train, test or validation; None if its name says none or several."""
    kinds = {SPLIT_WORDS[word] for word in _words(folder) & set(SPLIT_WORDS)}
    return kinds.pop() if len(kinds) == 1 else None


def _said(tree: Tree, name: str, root: str, pattern: str) -> dict[str, str]:
    """The folders above an image by what they mean."""
    levels, folders = pattern.split("/"), name.removeprefix(root).split("/")[:-1]
    if len(levels) != len(folders):
        raise FedbenchError(
            f"{tree.path}: {name} lies {len(folders)} folders deep, but the layout {pattern!r} has {len(levels)}; "
            "move it or set 'layout'"
        )
    said = dict(zip(levels, folders, strict=True))
    if "split" in said and _split_of(said["split"]) is None:
        raise FedbenchError(f"{tree.path}: {name}: {said['split']!r} is no split; expected train, test or val")
    return said


def _check_empty(tree: Tree, items: list[Item], root: str, pattern: str) -> None:
    """A class folder without images is an interrupted copy or a typing error, not a class less."""
    filled = {item.path.rpartition("/")[0] for item in items}
    depth = root.count("/") + len(pattern.split("/"))
    for folder in sorted(tree.folders):
        if folder.startswith(root) and folder.count("/") + 1 == depth and folder not in filled:
            raise FedbenchError(f"{tree.path}: folder {folder} has no images; add some or remove it")
