"""One image of a data set, before it is read, and what names of files say wherever they are read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedbench.data._tree import Tree, twice
from fedbench.errors import FedbenchError


@dataclass(frozen=True)
class Item:
    """One image: its file, and the names of its class, domain and split (TRAIN or TEST; None: not said)."""

    path: str
    label: str
    domain: str = "all"
    split: int | None = None


def check_twice(tree: Tree, paths: list[str]) -> None:
    """No image may be two samples: they could land on two sides of a split."""
    name = twice(paths)
    if name:
        raise FedbenchError(f"{tree.path}: {name} is listed twice; list each image once")


def match_list(name: str) -> re.Match | None:
    """Recognise ``{domain}_{train,test}.txt``, with or without ``_mini``."""
    return re.fullmatch(r"(?P<domain>.+)_(?P<split>train|test)(_mini)?\.txt", name.rpartition("/")[2])
