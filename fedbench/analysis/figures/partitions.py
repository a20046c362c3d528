"""Who holds what: the classes of every client, per partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench.analysis.figures._style import COLOURS, FONT, MUTED, facet_size, facets, new_figure, styled
from fedbench.options import options
from fedbench.registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData

MANY = 30  # clients or classes from which on bubbles become a shaded grid


@options
class PartitionsOptions:
    """The partitions figure has no options."""


@FIGURES.register("partitions", PartitionsOptions)
@styled
def draw(data: ExperimentData, options: PartitionsOptions = PartitionsOptions()) -> Figure:  # noqa: B008 (frozen)
    """Samples per client and class of each partition (its first seed), with how skewed it is."""
    from fedbench.analysis.collect import read_partition

    seeds = data.runs.groupby(["dataset", "partition"], sort=False).seed.min()
    figure = new_figure(*facet_size(len(seeds), height=2.6))
    everywhere = facets(figure, len(seeds))
    single_dataset = data.runs.dataset.nunique() == 1
    for axes, ((dataset, partition), seed) in zip(everywhere, seeds.items(), strict=True):
        meta = read_partition(data.paths, dataset, partition, seed)
        _panel(axes, meta)
        labels = data.runs[(data.runs.dataset == dataset) & (data.runs.partition == partition)].iloc[0]
        title = labels.partition_label if single_dataset else f"{labels.dataset_label}\n{labels.partition_label}"
        axes.set_title(title, pad=21)
    return figure


def _panel(axes: Axes, meta: dict[str, Any]) -> None:
    counts = np.asarray(meta["counts"], float)
    counts = counts[client_order(counts)]
    clients, classes = counts.shape
    if max(clients, classes) > MANY:
        _shades(axes, counts)
    else:
        _bubbles(axes, counts)
    axes.set_xlabel("Class")
    axes.set_ylabel("Client")
    axes.grid(visible=False)
    skew = meta["statistics"]
    text = (
        f"JS distance {skew['jensen_shannon_mean']:.2f} · {skew['effective_classes_mean']:.1f} effective classes\n"
        f"{skew['smallest']:,} to {skew['largest']:,} samples"
    )
    axes.annotate(
        text,
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 2),
        textcoords="offset points",
        fontsize=FONT - 2,
        color=MUTED,
        va="bottom",
        linespacing=1.1,
    )


def client_order(counts: np.ndarray) -> np.ndarray:
    """Clients by the centre of their classes, so that skew shows as a diagonal; int [K]."""
    centre = counts @ np.arange(counts.shape[1]) / counts.sum(axis=1)
    return np.argsort(centre, kind="stable")


def _bubbles(axes: Axes, counts: np.ndarray) -> None:
    client, label = np.nonzero(counts)
    clients, classes = counts.shape
    axes.set_xlim(-0.7, classes - 0.3)
    axes.set_ylim(clients - 0.3, -0.7)
    room = min(120 / clients, 130 / classes)  # points between neighbours in a panel of the shared size
    area = (0.95 * room) ** 2 * counts[client, label] / counts.max()
    axes.scatter(label, client, s=area, color=COLOURS[0], alpha=0.75, linewidth=0)
    _integers(axes)


def _shades(axes: Axes, counts: np.ndarray) -> None:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    colours = LinearSegmentedColormap.from_list("counts", ["#FFFFFF", "#56B4E9", "#0072B2", "#06263B"])
    # The square root keeps single samples visible beside classes of hundreds.
    norm = PowerNorm(0.5, vmin=0, vmax=counts.max())
    axes.imshow(counts, aspect="auto", interpolation="nearest", cmap=colours, norm=norm)
    _integers(axes)


def _integers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=6))
