"""Whether gates settle, and how steady the gradient is that moves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.analysis.figures._style import (
    WIDTH,
    MethodStyle,
    legend,
    method_styles,
    new_figure,
    plain_log_scale,
    powers_of_ten,
    remark,
    styled,
)
from fedbench.errors import FedbenchError
from fedbench.options import options
from fedbench.registry import FIGURES, METHODS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData, Setting
    from fedbench.config.figures import Asked

MARKS = 8  # markers along a line
COLUMNS = {"gate_drift": "Drift of the gates\n(|Δm| per participation)", "gate_gradient_variance": "Variance of ∂L/∂a"}


@options
class GateDynamicsOptions:
    """The gate dynamics figure has no options."""


@FIGURES.register("gate-dynamics", GateDynamicsOptions)
@styled
def draw(data: ExperimentData, options: GateDynamicsOptions = GateDynamicsOptions()) -> Figure:  # noqa: B008 (frozen)
    """Each round's mean gate drift |Δm| and variance of the gate logits' gradients (log); mean and range of seeds."""
    from matplotlib.ticker import MaxNLocator

    there = set(COLUMNS) <= set(data.rounds.columns) and data.rounds["gate_gradient_variance"].notna().any()
    if not there and not data.runs.diverged.any():
        raise FedbenchError(
            f"experiment {data.name!r}, figure gate-dynamics: none of its finished runs followed learned gates; "
            "add a method with learned gates (fedsdg) to the experiment, or remove the figure"
        )
    figure = new_figure(WIDTH, 2.1 * len(data.tasks) + 0.7)
    grid = figure.subplots(len(data.tasks), 2, squeeze=False, sharex=True)
    styles = method_styles(data.config)
    handles: dict = {}
    for row, task in zip(grid, data.tasks, strict=True):
        courses = followed(data, task) if there else {}
        for axes, (column, label) in zip(row, COLUMNS.items(), strict=True):
            axes.set_ylabel(label)
            if courses:
                handles |= _panel(axes, data, courses, column, styles)
                axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
            else:
                remark(axes, "no learned gates, or every run diverged")
        row[0].set_title(data.title(task))
    for axes in grid[-1]:
        axes.set_xlabel("Round")
    if handles:
        columns = min(4, len(handles)) if max(map(len, handles)) < 26 else 2
        legend(figure, list(handles.values()), loc="outside lower center", ncols=columns)
    return figure


def _objection(options: GateDynamicsOptions, asked: Asked) -> str | None:
    for spec in asked.specs:
        follows = "gate_gradient_variance" in METHODS[spec.method.common.method].target.columns
        if follows and getattr(spec.method.options, "gate", None) != "fixed":
            return None
    return "none of its methods has learned gates; add one (fedsdg)"


draw.objection = _objection


def followed(data: ExperimentData, task: Setting) -> dict[str, pd.DataFrame]:
    """Rounds of each method's sound runs in which learned gates were followed."""
    runs, rounds = task.of(data.runs), task.of(data.rounds)
    kept = rounds.merge(runs[~runs.diverged.astype(bool)][["method", "seed"]], on=["method", "seed"])
    kept = kept.dropna(subset=["gate_gradient_variance"])
    return dict(list(kept.groupby("method", sort=False)))


def _panel(
    axes: Axes, data: ExperimentData, courses: dict[str, pd.DataFrame], column: str, styles: dict[str, MethodStyle]
) -> dict:
    handles = {}
    if column == "gate_drift":
        plain_log_scale(axes)
    else:  # may fall over many decades
        axes.set_yscale("log")
        powers_of_ten(axes.yaxis)
    for place, (method, rounds) in enumerate(courses.items()):
        style = styles[method]
        by_round = rounds[rounds[column] > 0].groupby("round")[column]  # zero has no logarithm
        mean = by_round.mean()
        label = data.methods[method]
        every = max(1, len(mean) // MARKS)
        (line,) = axes.plot(
            mean.index,
            mean,
            color=style.colour,
            linestyle=style.line,
            linewidth=1.3,
            marker=style.marker,
            markersize=4,
            markevery=(place % every, every),  # at different places, because lines may lie on each other
            label=label,
        )
        if rounds.seed.nunique() > 1:
            low, high = by_round.min(), by_round.max()
            axes.fill_between(mean.index, low, high, color=style.colour, alpha=0.14, linewidth=0, label="_range")
        handles[label] = line
    return handles
