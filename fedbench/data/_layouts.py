"""From file names to labels, domains and splits."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedbench.data._archive import Tree, twice
from fedbench.data._decode import formats
from fedbench.data.base import TEST, TRAIN
from fedbench.errors import FedbenchError

# What each level of folders above an image says.
PATTERNS = ("class", "domain/class", "split/class", "split/domain/class", "domain/split/class")
TRAIN_FOLDERS = ("train", "training")
TEST_FOLDERS = ("test", "testing")
VALIDATION_FOLDERS = ("val", "valid", "validation")
SPLIT_FOLDERS = (*TRAIN_FOLDERS, *TEST_FOLDERS, *VALIDATION_FOLDERS)


@dataclass(frozen=True)
class Item:
    """One image: its file, and the names of its class, domain and split (TRAIN or TEST; None: not said)."""

    path: str
    label: str
    domain: str = "all"
    split: int | None = None


def lay_out(tree: Tree, layout: str, lists: str | None) -> tuple[str, list[Item]]:
    """Find the images of a tree and what their names say; returns the layout's name and the items in sorted order.

    Raises
    ------
    FedbenchError
        If there are no images, or they do not fit the layout (or, with "auto", any layout).
    """
    from fedbench.data._listings import domain_lists, list_files, tiny_imagenet, tiny_imagenet_root

    suffixes = tuple(formats())
    images = [name for name in tree.files if name.lower().endswith(suffixes)]
    if not images:
        raise FedbenchError(f"{tree.path}: no images found; expected files ending in {', '.join(sorted(suffixes))}")
    if layout == "lists" or (layout == "auto" and (lists is not None or list_files(tree, lists))):
        return "lists", domain_lists(tree, lists)
    if layout == "tiny-imagenet" or (layout == "auto" and tiny_imagenet_root(tree) is not None):
        return "tiny-imagenet", tiny_imagenet(tree, images)
    root = _common_root(images, None if layout == "auto" else len(layout.split("/")))
    pattern = _detect(tree, images, root) if layout == "auto" else layout
    items = [_item(tree, name, root, pattern) for name in images]
    _check_empty(tree, items, root, pattern)
    return pattern, _resolve_validation(sorted(items, key=lambda item: (item.split or 0, item.path)))


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
    levels = [{parts[level].lower() for parts in folders} for level in range(depth)]
    found = {1: "class", 2: "domain/class"}.get(depth)
    for level, pattern in ((0, {2: "split/class", 3: "split/domain/class"}), (1, {3: "domain/split/class"})):
        if depth in pattern and levels[level] & set(TRAIN_FOLDERS):
            others = sorted(levels[level] - set(SPLIT_FOLDERS))
            if others:
                raise FedbenchError(
                    f"{tree.path}: folder {others[0]!r} beside the training folder; remove it, or {hint}"
                )
            found = pattern[depth]
    if found is None:
        raise FedbenchError(f"{tree.path}: cannot tell what the {depth} folders above {images[0]} mean; {hint}")
    return found


def _item(tree: Tree, name: str, root: str, pattern: str) -> Item:
    levels, folders = pattern.split("/"), name.removeprefix(root).split("/")[:-1]
    if len(levels) != len(folders):
        raise FedbenchError(
            f"{tree.path}: {name} lies {len(folders)} folders deep, but the layout {pattern!r} has {len(levels)}; "
            "move it or set 'layout'"
        )
    said = dict(zip(levels, folders, strict=True))
    split = None
    if "split" in said:
        folder = said["split"].lower()
        if folder not in SPLIT_FOLDERS:
            raise FedbenchError(f"{tree.path}: {name}: {said['split']!r} is no split; expected train, test or val")
        split = TRAIN if folder in TRAIN_FOLDERS else TEST
    return Item(name, said["class"], said.get("domain", "all"), split)


def _resolve_validation(items: list[Item]) -> list[Item]:
    """Where train, val and test all exist, val joins train: validation is drawn per client, from its own samples.

    Where there is no test folder, val is the test split, as is usual for data sets whose test labels are secret.
    """

    def folder(item: Item, names: tuple[str, ...]) -> bool:
        return any(part.lower() in names for part in item.path.split("/")[:-2])

    tests = [item for item in items if item.split == TEST]
    validation = {item.path for item in tests if folder(item, VALIDATION_FOLDERS) and not folder(item, TEST_FOLDERS)}
    if not validation or len(validation) == len(tests):
        return items
    moved = [Item(i.path, i.label, i.domain, TRAIN) if i.path in validation else i for i in items]
    return sorted(moved, key=lambda item: (item.split, item.path))


def _check_empty(tree: Tree, items: list[Item], root: str, pattern: str) -> None:
    """A class folder without images is an interrupted copy or a typing error, not a class less."""
    filled = {item.path.rpartition("/")[0] for item in items}
    depth = root.count("/") + len(pattern.split("/"))
    for folder in sorted(tree.folders):
        if folder.startswith(root) and folder.count("/") + 1 == depth and folder not in filled:
            raise FedbenchError(f"{tree.path}: folder {folder} has no images; add some or remove it")


def check_twice(tree: Tree, paths: list[str]) -> None:
    """No image may be two samples: they could land on two sides of a split."""
    name = twice(paths)
    if name:
        raise FedbenchError(f"{tree.path}: {name} is listed twice; list each image once")


def match_list(name: str) -> re.Match | None:
    """Recognise ``{domain}_{train,test}.txt``, with or without ``_mini``."""
    return re.fullmatch(r"(?P<domain>.+)_(?P<split>train|test)(_mini)?\.txt", name.rpartition("/")[2])
