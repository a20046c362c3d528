"""Bars of accuracy, and beside them what each variant changes against the reference on the same seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedbench.analysis.figures._style import (
    FONT,
    INK,
    MUTED,
    WIDTH,
    MethodStyle,
    method_rows,
    method_styles,
    new_figure,
    percent_axis,
    side_by_side,
    styled,
    tint,
)
from fedbench.analysis.statistics import estimate
from fedbench.analysis.text import percent, signed
from fedbench.options import options
from fedbench.registry import FIGURES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData, Setting


@options
class AblationOptions:
    """The ablation figure has no options."""


@FIGURES.register("ablation", AblationOptions)
@styled
def draw(data: ExperimentData, options: AblationOptions = AblationOptions()) -> Figure:  # noqa: B008 (frozen)
    """Accuracy bars with 95 % intervals and every seed; paired differences to the reference method."""
    from fedbench.analysis.tables import build

    table = build(data)
    tasks = data.tasks
    compared = table.difference_mean.notna().any()
    counts = [len(task.of(table)) for task in tasks]
    abreast, wider = side_by_side([0.235 * count + 0.62 for count in counts])
    kinds = 2 if compared else 1  # bars, and beside them differences
    rows = [max(counts[first : first + abreast]) for first in range(0, len(tasks), abreast)]
    figure = new_figure((WIDTH if compared else 4.8) * wider, 0.235 * sum(rows) + 0.62 * len(rows) + 0.35)
    grid = figure.subplots(
        len(rows),
        kinds * abreast,
        squeeze=False,
        height_ratios=[count + 1.5 for count in rows],
        width_ratios=([1.15, 1] if compared else [1]) * abreast,
    )
    styles = method_styles(data.config)
    places = list(grid.reshape(-1, kinds))
    for unused in [axes for place in places[len(tasks) :] for axes in place]:
        unused.remove()
    lowest = len(tasks) - abreast
    for place, (row, task) in enumerate(zip(places, tasks, strict=False)):
        part = task.of(table).reset_index(drop=True)
        _bars(row[0], data, task, part, styles)
        if compared:
            _differences(row[1], data, part, styles)
        _axes_below(row, data, table, labelled=place >= lowest)
    return figure


def _axes_below(row: Sequence[Axes], data: ExperimentData, table: pd.DataFrame, labelled: bool) -> None:
    """Scales that all tasks share, written out below the lowest."""
    for axes in row:
        percent_axis(axes.xaxis)
        axes.tick_params(labelbottom=labelled)
    if len(row) > 1:
        _limit_differences(row[1], table)
    if not labelled:
        return
    row[0].set_xlabel(f"Accuracy, %\n({data.headline_short})")
    if len(row) > 1:
        tested = (
            "paired, 95 % interval, Holm-corrected p" if table.difference_p.notna().any() else "one seed: no interval"
        )
        label = data.methods.get(data.experiment.reference, data.experiment.reference)
        row[1].set_xlabel(f"Difference to {label}, points\n({tested})")


def _bars(axes: Axes, data: ExperimentData, task: Setting, table: pd.DataFrame, styles: dict[str, MethodStyle]) -> None:
    runs = task.of(data.runs)
    for place, row in enumerate(table.itertuples()):
        colour = styles[row.method].colour
        seeds = runs[(runs.method == row.method) & ~runs.diverged.astype(bool)][data.headline].astype(float)
        if not row.n:
            axes.text(
                0.005, place, f"diverged ({row.diverged} of {row.diverged})", va="center", color=MUTED, style="italic"
            )
            continue
        axes.barh(place, row.accuracy_mean, height=0.66, color=tint(colour, 0.32), linewidth=0, label=row.label)
        axes.plot([row.accuracy_mean] * 2, [place - 0.33, place + 0.33], color=colour, linewidth=1.6, label="_mean")
        found = estimate(seeds)
        end = max(row.accuracy_mean, seeds.max())
        if found.n > 1:
            low, high = max(found.low, 0), min(found.high, 1)
            axes.plot([low, high], [place] * 2, color=INK, linewidth=0.9, zorder=3, label="_interval")
            end = max(end, high)
        axes.plot(
            seeds,
            [place] * len(seeds),
            "o",
            markersize=3.0,
            color=colour,
            markeredgecolor="white",
            markeredgewidth=0.5,
            zorder=4,
            label="_seeds",
        )
        mark = f" ({row.diverged} diverged)" if row.diverged else ""
        axes.text(end + 0.015, place, percent(row.accuracy_mean) + mark, va="center", fontsize=FONT - 1, zorder=5)
    if task.of(runs)[data.base_accuracy].notna().any():
        base = float(runs[data.base_accuracy].astype(float).mean())
        axes.axvline(base, color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)), zorder=2, label="_base")
        axes.annotate(
            "base",
            (base, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 1.5),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=FONT - 1.5,
            color=MUTED,
        )
    method_rows(axes, table.label)
    axes.set_xlim(0, 1.12)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.set_title(data.title(task), pad=11)


def _differences(axes: Axes, data: ExperimentData, table: pd.DataFrame, styles: dict[str, MethodStyle]) -> None:
    axes.axvline(0, color=INK, linewidth=0.8, zorder=2, label="_zero")
    for place, row in enumerate(table.itertuples()):
        if row.method == data.experiment.reference:
            axes.text(0, place, " reference ", ha="left", va="center", fontsize=FONT - 1, color=MUTED, style="italic")
            continue
        if not row.difference_n:
            continue
        style = styles[row.method]
        if row.difference_n > 1:
            ends = [row.difference_low, row.difference_high]
            axes.plot(ends, [place] * 2, color=style.colour, linewidth=1.1, zorder=3, label="_interval")
        axes.plot(
            [row.difference_mean],
            [place],
            marker=style.marker,
            markersize=4.5,
            color=style.colour,
            markeredgecolor="white",
            markeredgewidth=0.5,
            linestyle="none",
            zorder=4,
            label=row.label,
        )
        axes.text(
            1.01,
            place,
            _annotation(row),
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=FONT - 1,
            color=INK if row.difference_p_holm < 0.05 else MUTED,
        )
    method_rows(axes, [""] * len(table))


def _annotation(row) -> str:
    if row.difference_n < 2:
        return f"{signed(row.difference_mean)}  n = {row.difference_n}"
    p = "p < 0.001" if row.difference_p_holm < 0.001 else f"p = {row.difference_p_holm:.3f}"
    return f"{signed(row.difference_mean)}  {p}"


def _limit_differences(axes: Axes, table: pd.DataFrame) -> None:
    """Show every mean; intervals of two seeds may reach so far that they leave the panel."""
    means = table.difference_mean.abs().max()
    ends = table[["difference_low", "difference_high"]].abs().max().max()
    limit = max(means * 1.15, min(ends if ends == ends else 0, 3 * means) * 1.05, 0.01)
    axes.set_xlim(-limit, limit)
