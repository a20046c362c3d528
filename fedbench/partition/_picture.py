"""The picture of a partition: bubbles of clients by classes, above them the clients' sizes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from fedbench.files.picture import drawing, printable

if TYPE_CHECKING:
    from fedbench.partition.partition import Partition

INK, MUTED, GRID = "#22252a", "#6b7280", "#eceef1"
# Okabe and Ito's colours, which colour-blind readers can tell apart; more domains than colours share them.
DOMAIN_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999933", "#882255")
SPLIT_COLOURS = {"train": "#3b4252", "validation": "#8f9bb3", "test": "#d5dae3"}
MOST_LABELS = 40
# Mean Jensen-Shannon distance above which a client's commonest class says something about it.
SKEWED = 0.4


def picture(partition: Partition) -> bytes:
    """Draw a partition as PNG; readable from a few clients and classes to about a hundred of each."""
    meta = partition.meta
    with drawing(names=[*meta["class_names"], *meta["domain_names"], *(meta.get("client_names") or ())]):
        return _draw(partition)


def _draw(partition: Partition) -> bytes:
    from matplotlib.figure import Figure

    meta = partition.meta
    counts = np.asarray(meta["counts"])
    # Where clients mix domains, the domain of most of their samples says little, and colour would overstate it.
    domains = partition.client_domains if meta["single_domain_clients"] else np.zeros_like(partition.client_domains)
    order = arrange(counts, domains, skewed=meta["statistics"]["jensen_shannon_mean"] > SKEWED)
    clients, classes = counts.shape
    width, height = np.clip(2.6 + 0.30 * clients, 7.0, 15.0), np.clip(1.6 + 0.28 * classes, 3.2, 11.5)
    figure = Figure(figsize=(width, height + 2.2), dpi=150, layout="constrained", facecolor="white")
    sizes, bubbles = figure.subplots(2, 1, sharex=True, height_ratios=[1.5, height])
    _draw_sizes(sizes, meta, order)
    _draw_bubbles(bubbles, counts[order], domains[order], meta, min(width * 0.86, 14), height)
    names = [shown(str(client)) for client in meta.get("client_names") or range(clients)]
    upright = max(map(len, names)) > 3 and clients > 8
    bubbles.set_xticks(
        *_ticks(clients, [names[client] for client in order]), fontsize=7, color=MUTED, rotation=90 if upright else 0
    )
    figure.suptitle(_title(meta), fontsize=11, color=INK, x=0.01, ha="left")
    if len(np.unique(domains)) > 1:
        _domain_legend(figure, domains, meta["domain_names"])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def shown(name: str) -> str:
    """A name as it fits beside an axis: what cannot be printed is replaced, and the end of a long one left out."""
    text = printable(name)
    return text if len(text) <= 18 else f"{text[:17]}…"


def arrange(counts: np.ndarray, domains: np.ndarray, skewed: bool) -> np.ndarray:
    """Order clients for the eye: by domain, then (where labels are skewed) by their commonest class, then by size."""
    commonest = counts.argmax(axis=1) if skewed else np.zeros(len(counts))
    return np.lexsort((-counts.sum(axis=1), commonest, domains))


def _draw_sizes(axes, meta: dict, order: np.ndarray) -> None:
    bottom = np.zeros(len(order))
    for split, colour in SPLIT_COLOURS.items():
        heights = np.asarray(meta["sizes"][split])[order]
        axes.bar(np.arange(len(order)), heights, 0.8, bottom=bottom, color=colour, label=split)
        bottom += heights
    axes.set_ylabel("samples", fontsize=8, color=INK)
    axes.legend(fontsize=7, frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7, colors=MUTED, bottom=False, labelbottom=False)


def _draw_bubbles(axes, counts: np.ndarray, domains: np.ndarray, meta: dict, width: float, height: float) -> None:
    clients, classes = counts.shape
    rows, columns = np.nonzero(counts)
    # The largest bubble just touches its neighbours: its diameter in points is the smaller grid step. On a dense
    # grid it may cover them (they show through), so that common sizes are not too small to see.
    full = counts.max()
    if max(clients, classes) > MOST_LABELS:
        full = max(np.quantile(counts[rows, columns], 0.97), full / 4)
    diameter = 72 * min(width / (clients + 1), height * 0.92 / (classes + 1))
    area = (0.98 * diameter) ** 2 * counts[rows, columns] / full
    colours = np.array(DOMAIN_COLOURS)[domains % len(DOMAIN_COLOURS)]
    axes.scatter(rows, columns, s=np.maximum(area, 0.4), c=colours[rows], linewidths=0, alpha=0.85, zorder=2)
    axes.set_xlim(-0.7, clients - 0.3)
    axes.set_ylim(classes - 0.3, -0.7)
    names = [shown(name) for name in meta["class_names"]]
    axes.set_yticks(*_ticks(classes, names), fontsize=7, color=MUTED)
    axes.grid(color=GRID, linewidth=0.6, zorder=0)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xlabel(f"client (sorted); the largest bubble is {counts.max():,} samples", fontsize=8, color=INK)
    axes.set_ylabel("class", fontsize=8, color=INK)


def _ticks(number: int, names: list[str]) -> tuple[list[int], list[str]]:
    """Every name where there is room, else every few."""
    step = -(-number // MOST_LABELS)
    places = list(range(0, number, step))
    return places, [names[place] for place in places]


def _title(meta: dict) -> str:
    from fedbench.partition.partition import repair_text

    statistics, moved = meta["statistics"], repair_text(meta)
    return (
        f"{meta['scheme']}, {meta['clients']} clients, seed {meta['seed']}\n"
        f"Jensen-Shannon distance {statistics['jensen_shannon_mean']:.2f}   "
        f"effective classes {statistics['effective_classes_mean']:.1f} of {len(meta['class_names'])}   "
        f"Gini {statistics['gini']:.2f}" + (f"\n{moved}" if moved else "")
    )


def _domain_legend(figure, domains: np.ndarray, names: list[str]) -> None:
    from matplotlib.lines import Line2D

    present = np.unique(domains)
    handles = [
        Line2D([], [], marker="o", linestyle="", color=DOMAIN_COLOURS[d % len(DOMAIN_COLOURS)], label=str(d))
        for d in present
    ]
    legend = figure.legend(handles=handles, loc="outside lower left", ncols=6, fontsize=8, frameon=False)
    for text, domain in zip(legend.get_texts(), present, strict=True):
        text.set_text(shown(names[domain]))  # a label that begins with _ would be left out
