"""For whom: the distribution of accuracy over clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedbench.analysis.figures._rows import fewer_seeds
from fedbench.analysis.figures._style import (
    FONT,
    MUTED,
    WIDTH,
    MethodStyle,
    facets,
    legend,
    method_styles,
    new_figure,
    percent_axis,
    remark,
    styled,
    tint,
)
from fedbench.analysis.text import percent
from fedbench.errors import FedbenchError
from fedbench.options import options
from fedbench.registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData, Setting

PERCENTILES = (0, 10, 50, 90)  # the worst client is the zeroth


@options
class FairnessOptions:
    """The fairness figure has no options."""


@FIGURES.register("fairness", FairnessOptions)
@styled
def draw(data: ExperimentData, options: FairnessOptions = FairnessOptions()) -> Figure:  # noqa: B008 (frozen)
    """Test accuracy of every client of every seed; worst, P10, P50 and P90 are means over seeds of each seed's own."""
    everything = [client_accuracies(data, task) for task in data.tasks]
    columns = 2 if len(data.tasks) > 1 else 1
    rows = max(max(map(len, everything)), 2)
    lines = -(-len(data.tasks) // columns)
    figure = new_figure(WIDTH if columns == 2 else 5.2, lines * (0.21 * rows + 0.7) + 0.45)
    styles = method_styles(data.config)
    everywhere = facets(figure, len(data.tasks), columns=columns, sharex=True)
    for place, (axes, task, accuracies) in enumerate(zip(everywhere, data.tasks, everything, strict=True)):
        axes.set_title(data.title(task))
        if not accuracies:
            remark(axes, "every run diverged")
            continue
        _panel(axes, data, accuracies, styles)
        if place % columns and list(accuracies) == list(everything[place - 1]):  # the left panel names the same rows
            axes.set_yticklabels([])
    worst = min((one[0] for accuracies in everything for seeds in accuracies.values() for one in seeds), default=0.0)
    everywhere[0].set_xlim(worst - 0.03, 1.02)  # all panels share it
    for axes in everywhere[-columns:]:
        axes.set_xlabel("Client's own test accuracy, %")
    legend(figure, _key(), loc="outside lower center", ncols=4 if columns == 2 else 2, columnspacing=1.2)
    return figure


def client_accuracies(data: ExperimentData, task: Setting) -> dict[str, list[np.ndarray]]:
    """Sorted accuracies of every client, an array for each seed, by method; without held-out clients, diverged runs."""
    wanted = data.client_accuracy
    if wanted not in data.clients.columns:
        raise FedbenchError(
            f"experiment {data.name!r}, figure fairness: its runs' clients.csv have no column {wanted}; run them again"
        )
    runs, clients = task.of(data.runs), task.of(data.clients)
    if "held_out" in clients:  # newcomers are not part of the federation whose fairness this shows
        clients = clients[clients.held_out.fillna(0) == 0]
    sound = runs[~runs.diverged.astype(bool)]
    found = {}
    for method in dict.fromkeys(sound.method):
        kept = clients[(clients.method == method) & clients.seed.isin(sound[sound.method == method].seed)]
        seeds = [np.sort(part.to_numpy(float)) for _, part in kept.dropna(subset=wanted).groupby("seed")[wanted]]
        if seeds:
            found[method] = seeds
    if not found and not sound.empty:
        raise FedbenchError(
            f"experiment {data.name!r}, figure fairness: no client of {data.title(task)} has a value of {wanted}"
        )
    return found


def percentiles(seeds: list[np.ndarray]) -> np.ndarray:
    """Mean over seeds of each seed's worst, P10, P50 and P90, as in the tables."""
    return np.mean([np.percentile(values, PERCENTILES) for values in seeds], axis=0)


def _panel(
    axes: Axes, data: ExperimentData, accuracies: dict[str, list[np.ndarray]], styles: dict[str, MethodStyle]
) -> None:
    fewer = fewer_seeds([len(seeds) for seeds in accuracies.values()])
    for place, (method, seeds) in enumerate(accuracies.items()):
        colour = styles[method].colour
        values = np.sort(np.concatenate(seeds))
        worst, low, middle, high = percentiles(seeds)
        # Clients fan out over the row in a fixed order, so that equal accuracies stay apart.
        heights = place + 0.56 * ((np.arange(len(values)) * 0.618034) % 1 - 0.5)
        axes.plot(
            values, heights, "o", markersize=2, color=tint(colour, 0.45), markeredgewidth=0, zorder=2, label="_clients"
        )
        axes.plot([low, high], [place] * 2, color=colour, linewidth=1.8, zorder=3, label=data.methods[method])
        axes.plot([worst], [place], "x", color=colour, markersize=4.5, markeredgewidth=1.2, zorder=4, label="_worst")
        axes.plot([middle] * 2, [place - 0.34, place + 0.34], color=colour, linewidth=2.2, zorder=4, label="_median")
        axes.text(
            1.02,
            place,
            " / ".join(percent(value, 0) for value in (worst, low, middle, high)) + fewer[place],
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=FONT - 1.5,
        )
    axes.annotate(
        "worst / P10 / P50 / P90",
        (1.02, 1),
        xycoords="axes fraction",
        xytext=(0, 2),
        textcoords="offset points",
        fontsize=FONT - 2,
        color=MUTED,
        va="bottom",
    )
    axes.set_yticks(range(len(accuracies)), [data.methods[method] for method in accuracies])
    axes.set_ylim(len(accuracies) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    percent_axis(axes.xaxis)


def _key() -> list:
    from matplotlib.lines import Line2D

    none = {"linestyle": "none", "color": MUTED}
    return [
        Line2D([], [], marker="o", markersize=2.5, label="a client, of any seed", **none),
        Line2D([], [], color=MUTED, linewidth=1.8, label="P10 to P90"),
        Line2D([], [], marker="|", markersize=8, markeredgewidth=2.2, label="P50", **none),
        Line2D([], [], marker="x", markersize=4.5, markeredgewidth=1.2, label="worst client (mean over seeds)", **none),
    ]
