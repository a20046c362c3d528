"""What `prepare` found, in a few lines for its log: a wrong guess about a layout shows here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedbench.errors import one_line

SHOWN = 10  # names in one line


def lines(meta: Mapping[str, Any]) -> Iterator[str]:
    """Describe a prepared data set.

    Parameters
    ----------
    meta : what dataset.json says
    """
    counts, source = meta["counts"], meta["source"]
    if "layout" in source:
        yield f"layout {source['layout']}"
    width = "x".join(map(str, reversed(meta["shape"][1:])))
    yield f"{sum(counts['classes']):,} images of {width} pixels"
    yield f"{meta['classes']} classes: {_names(meta['class_names'])}"
    if len(meta["domain_names"]) > 1:
        sizes = [f"{name} ({size:,})" for name, size in zip(meta["domain_names"], counts["domains"], strict=True)]
        yield f"{len(sizes)} domains: {_names(sizes)}"
    split = {"official": "official test split", "stratified": "test split drawn here"}[meta["test_split"]]
    public = counts["public"] + counts["public_test"]
    yield f"{split}: {counts['train']:,} training and {counts['test']:,} test images" + (
        f", {public:,} public ones besides" if public else ""
    )
    if meta["duplicates"]:
        yield f"warning: {meta['duplicates']:,} test images equal a training image, pixel by pixel"
    if source.get("left_out"):
        endings = [f"{count:,} {ending}" for ending, count in source["left_out"].items()]
        total = sum(source["left_out"].values())
        yield f"left out: {total:,} files that are no images of this layout ({_names(endings)})"
    if source.get("repeated_links"):
        yield f"not read again: links to folders that are read already ({_names(source['repeated_links'])})"
    if source.get("transparent"):
        yield f"{source['transparent']:,} images have transparent pixels, which are white now"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return one_line(", ".join(names[:SHOWN]) + more)
