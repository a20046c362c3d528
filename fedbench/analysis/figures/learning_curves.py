"""Learning curves, over rounds and over the bytes that the rounds cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fedbench.analysis.figures._byte_axis import byte_ticks, bytes_scale
from fedbench.analysis.figures._style import (
    MUTED,
    WIDTH,
    MethodStyle,
    base_line,
    legend,
    method_styles,
    new_figure,
    panel_title,
    percent_axis,
    side_by_side,
    styled,
)
from fedbench.analysis.trajectory import mean_trajectory
from fedbench.errors import FedbenchError
from fedbench.options import options
from fedbench.registry import FIGURES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData, Setting


@options
class LearningCurvesOptions:
    """The learning curves figure has no options."""


@FIGURES.register("learning-curves", LearningCurvesOptions)
@styled
def draw(data: ExperimentData, options: LearningCurvesOptions = LearningCurvesOptions()) -> Figure:  # noqa: B008 (frozen)
    """Accuracy over rounds and bytes, mean and std over seeds; round 0 is the base, fine-tuned where clients do so."""
    from matplotlib.ticker import MaxNLocator

    tasks = data.tasks
    abreast, wider = side_by_side([2.35] * len(tasks))
    rows = -(-len(tasks) // abreast)
    figure = new_figure(WIDTH * wider, 2.35 * rows + 0.6)
    pairs = figure.subplots(rows, 2 * abreast, squeeze=False).reshape(-1, 2)
    for unused in pairs[len(tasks) :].flat:
        unused.remove()
    styles = method_styles(data.config)
    handles: dict[str, Any] = {}
    for place, ((left, right), task) in enumerate(zip(pairs, tasks, strict=False)):
        right.sharey(left)
        right.tick_params(labelleft=False)
        curves = mean_curves(data, task)
        base = task.of(data.runs)[data.base_accuracy].astype(float).mean()
        if curves:
            moving = {method: curve for method, curve in curves.items() if not _is_level(curve, base)}
            _panel(left, data, moving, styles, "round")
            _panel(right, data, moving, styles, "bytes")
        elif not task.of(data.runs).diverged.any():
            raise FedbenchError(
                f"experiment {data.name!r}, figure learning-curves: no run on {data.title(task)} has an evaluated round"
            )
        _diverged(left, right, data, task, styles)
        left.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        left.set_title(panel_title(data.title(task), width=60))
        if place % abreast == 0:
            metric = "personalised" if data.experiment.metric == "personal" else "global"
            left.set_ylabel(f"Test accuracy, %\n({metric})")
        if place >= len(tasks) - abreast:
            left.set_xlabel("Round")
            right.set_xlabel("Cumulative bytes up and down, all clients (log)")
        percent_axis(left.yaxis)
        handles |= {handle.get_label(): handle for handle in left.lines}
        for axes in (left, right):
            base_line(axes, base)
    if handles:
        columns = min(4 * abreast, len(handles)) if max(map(len, handles)) < 26 else 3 * abreast
        legend(figure, list(handles.values()), loc="outside lower center", ncols=columns)
    return figure


def mean_curves(data: ExperimentData, task: Setting) -> dict[str, pd.DataFrame]:
    """The mean trajectory of every method's sound runs."""
    runs, rounds = task.of(data.runs), task.of(data.rounds)
    sound = runs[~runs.diverged.astype(bool)]
    curves = {}
    for method, part in sound.groupby("method", sort=False):
        followed = rounds[(rounds.method == method) & rounds.seed.isin(part.seed)]
        curve = mean_trajectory(followed, data.accuracy_by_round)
        if len(curve):
            curves[method] = curve
    return curves


def _is_level(curve: pd.DataFrame, base: float) -> bool:
    """Whether a method only ever was where the line of the untouched base is drawn."""
    return len(curve) == 1 and math.isclose(curve["mean"].iloc[0], base)


def _panel(
    axes: Axes, data: ExperimentData, curves: dict[str, pd.DataFrame], styles: dict[str, MethodStyle], over: str
) -> None:
    if over == "bytes" and not _bytes_axis(axes, curves):
        return
    for method, curve in curves.items():
        style = styles[method]
        look = {"color": style.colour, "linestyle": style.line, "label": data.methods[method]}
        shown = curve[curve.bytes > 0] if over == "bytes" else curve
        if len(curve) == 1 or shown.empty:
            # Nothing to follow along this axis: the level that the method ends at, as a thin line.
            axes.axhline(curve["mean"].iloc[-1], zorder=2, **look | {"linestyle": ":", "linewidth": 1.1})
            continue
        few = {"marker": style.marker, "markersize": 3.5} if len(shown) <= 12 else {}
        axes.plot(shown[over], shown["mean"], zorder=3, markeredgecolor="white", markeredgewidth=0.4, **look, **few)
        if shown["std"].notna().any():
            low, high = shown["mean"] - shown["std"], shown["mean"] + shown["std"]
            axes.fill_between(shown[over], low, high, color=style.colour, alpha=0.14, linewidth=0, label="_band")


def _bytes_axis(axes: Axes, curves: dict[str, pd.DataFrame]) -> bool:
    """Set up the logarithmic axis; False (and a remark) if no method sends anything."""
    sent = [value for curve in curves.values() for value in curve.bytes if value > 0]
    if not sent:
        axes.text(0.5, 0.5, "no method sends bytes", transform=axes.transAxes, ha="center", color=MUTED)
        axes.set_xticks([])
        return False
    low, high = min(sent) / 1.25, max(sent) * 1.25
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    bytes_scale(axes.xaxis, byte_ticks(low, high))
    return True


def _diverged(left: Axes, right: Axes, data: ExperimentData, task: Setting, styles: dict[str, MethodStyle]) -> None:
    """Runs that diverged, each as a thin line that ends in a cross."""
    runs = task.of(data.runs)
    for run in runs[runs.diverged.astype(bool)].itertuples():
        rounds = task.of(data.rounds)
        part = rounds[(rounds.method == run.method) & (rounds.seed == run.seed)].dropna(subset=data.accuracy_by_round)
        for axes, column in ((left, "round"), (right, "cumulative_bytes")):
            shown = part[part[column] > 0] if column == "cumulative_bytes" else part
            if shown.empty:
                continue
            colour = styles[run.method].colour
            label = f"{data.methods[run.method]} (diverged)"
            axes.plot(
                shown[column],
                shown[data.accuracy_by_round],
                color=colour,
                linewidth=0.8,
                alpha=0.7,
                marker="x",
                markevery=[-1],
                markersize=6,
                label=label,
            )
