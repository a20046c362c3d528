"""Any data set that comes as image files: Tiny-ImageNet, Office-Home, PACS, DomainNet, or your own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from fedbench.data.store import Allocate, RawData
from fedbench.options import options
from fedbench.registry import DATA_SOURCES


@options
class ImageFolderOptions:
    """Options of `image-folder`."""

    path: Annotated[str, Field(min_length=1)]
    """Folder, zip or tar (compressed or not), absolute or under the data root."""
    size: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Height and width that the centre square of each image is resized to; none leaves images as they are, which have
    to be of one size then."""
    layout: Literal[
        "auto",
        "class",
        "domain/class",
        "split/class",
        "split/domain/class",
        "domain/split/class",
        "lists",
        "tiny-imagenet",
    ] = "auto"
    """What the folders above an image mean (split: a name with train, test or val in it). `lists` reads `path label`
    lines from files `{domain}_train.txt` and `{domain}_test.txt`; `tiny-imagenet` reads that data set as it is
    published."""
    lists: str | None = None
    """Folder of the list files, where there are several (DomainNet: splits or splits_mini)."""
    color: Literal["rgb", "gray"] = "rgb"
    """Whether images are read with three channels or with one."""
    clients: str | None = None
    """CSV file inside, with the columns `path` and `client`, that says who holds each image (scheme `natural`)."""


@DATA_SOURCES.register("image-folder", ImageFolderOptions)
class ImageFolder:
    """A folder, zip or tar of image files, with or without train/test and domains."""

    def inputs(self, options: ImageFolderOptions, data_root: Path) -> list[Path]:
        """The folder or archive."""
        return [data_root / options.path]

    def load(self, options: ImageFolderOptions, data_root: Path, allocate: Allocate) -> RawData:
        """Read names, then pixels; samples are sorted by split and path."""
        from fedbench.data._archive import open_tree
        from fedbench.data._decode import decode_all
        from fedbench.data._layouts import lay_out, left_out
        from fedbench.data._listings import client_table
        from fedbench.data._names import require_distinct

        with open_tree(data_root / options.path) as tree:
            layout, items = lay_out(tree, options.layout, options.lists)
            meta: dict[str, Any] = {"path": options.path, "layout": layout}
            groups = None
            if options.clients is not None:
                groups, meta["clients"] = client_table(tree, options.clients, items)
            class_names = sorted({item.label for item in items})
            domain_names = sorted({item.domain for item in items})
            named = {"class": class_names, "domain": domain_names, "client": meta.get("clients", [])}
            for kind, names in named.items():
                require_distinct(names, kind, str(tree.path))
            meta["left_out"], meta["repeated_links"] = left_out(tree, items), tree.repeated
            images, meta["transparent"] = decode_all(
                tree, [item.path for item in items], options.size, options.color, allocate
            )
        return RawData(
            images=images,
            labels=_codes([item.label for item in items], class_names),
            class_names=tuple(class_names),
            domains=_codes([item.domain for item in items], domain_names),
            domain_names=tuple(domain_names),
            splits=None if items[0].split is None else np.array([item.split for item in items], dtype=np.uint8),
            groups=groups,
            meta=meta,
        )


def _codes(values: list[str], names: list[str]) -> np.ndarray:
    codes = {name: code for code, name in enumerate(names)}
    return np.array([codes[value] for value in values], dtype=np.int64)
