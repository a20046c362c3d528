"""For whom: the distribution of accuracy over clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedbench.analysis.figures._style import (
    FONT,
    MUTED,
    MethodStyle,
    facet_size,
    facets,
    method_styles,
    new_figure,
    percent_axis,
    remark,
    styled,
)
from fedbench.analysis.text import percent
from fedbench.errors import FedbenchError
from fedbench.options import options
from fedbench.registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData, Task

PERCENTILES = (10, 50, 90)
COLUMNS = {"last": "accuracy_personal", "best": "accuracy_personal_best", "tail": "accuracy_personal_tail"}


@options
class FairnessOptions:
    """The fairness figure has no options."""


@FIGURES.register("fairness", FairnessOptions)
@styled
def draw(data: ExperimentData, options: FairnessOptions = FairnessOptions()) -> Figure:  # noqa: B008 (frozen)
    """Distribution of test accuracy over clients (all seeds together), with P10, P50 and P90 of each method."""
    figure = new_figure(*facet_size(len(data.tasks), columns=2, height=2.9))
    styles = method_styles(data.config)
    everywhere = facets(figure, len(data.tasks), columns=2, sharey=True)
    handles: dict = {}
    for axes, task in zip(everywhere, data.tasks, strict=True):
        accuracies = client_accuracies(data, task)
        if accuracies:
            handles |= _panel(axes, data, task, accuracies, styles)
        else:
            remark(axes, "every run diverged")
        axes.set_title(data.title(task))
        axes.set_xlabel("Client's own test accuracy, %")
    for axes in everywhere[::2]:
        axes.set_ylabel("Share of clients at or below, %")
    single = len(data.tasks) == 1
    columns = 1 if single else max(1, min(4, len(handles)))
    figure.legend(
        handles=list(handles.values()),
        loc="outside right center" if single else "outside lower center",
        ncols=columns,
        title="P10 / P50 / P90" if single else None,
        title_fontsize=FONT - 1,
    )
    return figure


def column(data: ExperimentData) -> str:
    """The column of clients.csv that belongs to the experiment's headline."""
    return "accuracy_global" if data.experiment.metric == "global" else COLUMNS[data.experiment.selection]


def client_accuracies(data: ExperimentData, task: Task) -> dict[str, np.ndarray]:
    """Sorted accuracies of every client and seed by method, without held-out clients and diverged runs."""
    wanted = column(data)
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
        seeds = sound[sound.method == method].seed
        values = clients[(clients.method == method) & clients.seed.isin(seeds)][wanted].dropna().to_numpy(float)
        if len(values):
            found[method] = np.sort(values)
    if not found and not sound.empty:
        raise FedbenchError(
            f"experiment {data.name!r}, figure fairness: no client of {data.title(task)} has a value of {wanted}"
        )
    return found


def _panel(
    axes: Axes, data: ExperimentData, task: Task, accuracies: dict[str, np.ndarray], styles: dict[str, MethodStyle]
) -> dict:
    from matplotlib.lines import Line2D

    handles = {}
    for level in PERCENTILES:
        axes.axhline(level / 100, color=MUTED, linewidth=0.6, linestyle=(0, (1, 2)), zorder=1, label="_level")
    single = len(data.tasks) == 1
    for method, values in accuracies.items():
        style = styles[method]
        marks = np.percentile(values, PERCENTILES)
        label = data.methods[method]
        if single:
            label += "\n" + " / ".join(percent(mark, 0) for mark in marks)
        # The step function starts at zero clients and ends at all of them.
        x = np.concatenate([[values[0]], values])
        y = np.concatenate([[0.0], np.arange(1, len(values) + 1) / len(values)])
        axes.step(x, y, where="post", color=style.colour, linestyle=style.line, linewidth=1.3, label=label)
        axes.plot(
            marks,
            [level / 100 for level in PERCENTILES],
            linestyle="none",
            marker=style.marker,
            markersize=5,
            color=style.colour,
            markeredgecolor="white",
            markeredgewidth=0.6,
            zorder=4,
            label="_percentiles",
        )
        handles[label] = Line2D([], [], color=style.colour, linestyle=style.line, marker=style.marker, label=label)
    percent_axis(axes.xaxis)
    percent_axis(axes.yaxis)
    axes.set_ylim(0, 1.005)
    axes.set_yticks([0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0])
    axes.set_xlim(right=1.005)
    return handles
