"""Accuracy against bytes: which methods nothing beats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedbench.analysis.figures._labels import label_points
from fedbench.analysis.figures._style import (
    FAINT,
    FONT,
    INK,
    MUTED,
    byte_ticks,
    bytes_scale,
    facet_size,
    facets,
    method_styles,
    new_figure,
    percent_axis,
    remark,
    styled,
)
from fedbench.analysis.statistics import Estimate, estimate, pareto_frontier
from fedbench.errors import FedbenchError
from fedbench.options import options
from fedbench.registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData, Task

DOMINATED = "#A8A8A8"


@options
class ParetoOptions:
    """What the byte axes count."""

    axis: Literal["both", "total", "per-client"] = "both"
    """Bytes of all clients together, of the average client, or both (bottom and top axis)."""


@dataclass(frozen=True)
class Point:
    """One method on one task, over the seeds that did not diverge."""

    method: str
    bytes: Estimate
    accuracy: Estimate
    diverged: int


@FIGURES.register("pareto", ParetoOptions)
@styled
def draw(data: ExperimentData, options: ParetoOptions = ParetoOptions()) -> Figure:  # noqa: B008 (frozen)
    """Accuracy against cumulative bytes (log axis), frontier marked, zero-byte methods on a strip of their own."""
    figure = new_figure(*facet_size(len(data.tasks), columns=2, height=3.0))
    axes = facets(figure, len(data.tasks), columns=2)
    measured = [(task, _points(data, task, options)) for task in data.tasks]
    for place, ((task, points), facet) in enumerate(zip(measured, axes, strict=True)):
        _facet(facet, data, task, points, options)
        facet.set_ylabel("Accuracy, %" if place % 2 == 0 else "")
    figure.legend(
        handles=_key(measured), loc="outside lower center", ncols=3 if len(axes) == 1 else 5, columnspacing=1.5
    )
    for (_, points), facet in zip(measured, axes, strict=True):
        if points:
            _write_labels(facet, data, points)
    return figure


def _points(data: ExperimentData, task: Task, options: ParetoOptions) -> list[Point]:
    runs = task.of(data.runs)
    column = "bytes_per_client" if options.axis == "per-client" else "bytes_total"
    points = []
    for method in dict.fromkeys(runs.method):
        every = runs[runs.method == method]
        sound = every[~every.diverged.astype(bool)]
        points.append(Point(method, estimate(sound[column]), estimate(sound[data.headline]), int(every.diverged.sum())))
    shown = [point for point in points if point.accuracy.n]
    if not any(point.bytes.mean > 0 for point in shown):
        if runs.diverged.any():
            return []  # a result, if a sad one
        raise FedbenchError(
            f"experiment {data.name!r}, figure pareto: on {data.title(task)} no finished run sends bytes; "
            "add a method that communicates, or remove the figure"
        )
    return shown


def on_frontier(points: list[Point]) -> list[bool]:
    """Which points no other beats; a method with a diverged run is not offered as a choice."""
    accuracy = [point.accuracy.mean if not point.diverged else float("nan") for point in points]
    return list(pareto_frontier([point.bytes.mean for point in points], accuracy))


def _facet(axes: Axes, data: ExperimentData, task: Task, points: list[Point], options: ParetoOptions) -> None:
    if not points:
        axes.set_title(data.title(task))
        remark(axes, "every run that sends bytes diverged")
        return
    styles = method_styles(data.config)
    positive = [point.bytes.mean for point in points if point.bytes.mean > 0]
    free = any(point.bytes.mean == 0 for point in points)
    low = min(positive) / 10**0.5
    high = max(positive) * (max(positive) / low) ** 0.2  # room for the labels of the dearest methods
    # Zero has no logarithm: it gets a strip left of the smallest message, behind a break in the axis.
    left = low / (high / low) ** 0.16 if free else low
    zero = (left * low) ** 0.5
    axes.set_xscale("log")
    axes.set_xlim(left, high)
    bytes_scale(axes.xaxis, byte_ticks(low, high), {zero: "0"} if free else None)
    if free:
        _strip(axes, left, low, high)
    at = {point.method: point.bytes.mean or zero for point in points}
    frontier = on_frontier(points)
    members = sorted(
        ((at[p.method], p.accuracy.mean) for p, member in zip(points, frontier, strict=True) if member),
        key=lambda xy: xy[0],
    )
    if members:
        x, y = zip(*[*members, (high, members[-1][1])], strict=True)
        axes.step(x, y, where="post", color=INK, linewidth=1.1, zorder=2, label="Pareto frontier")
        axes.fill_between(x, y, -1, step="post", color=INK, alpha=0.035, linewidth=0, zorder=0)
    for point, member in zip(points, frontier, strict=True):
        style = styles[point.method]
        colour = style.colour if member else DOMINATED
        axes.errorbar(
            at[point.method],
            point.accuracy.mean,
            yerr=None if point.accuracy.n < 2 else point.accuracy.std,
            xerr=None if point.bytes.n < 2 or not point.bytes.std else point.bytes.std,
            marker="x" if point.diverged else style.marker,
            markersize=6.5 if member else 5.0,
            color=colour,
            markeredgecolor=colour if point.diverged else "white",
            markeredgewidth=1.4 if point.diverged else 0.6,
            elinewidth=0.9,
            capsize=2.0,
            capthick=0.9,
            linestyle="none",
            zorder=4 if member else 3,
            label=data.methods[point.method],
        )
    _limits(axes, points)
    _scales(axes, data, task, options, low, high)


def _strip(axes: Axes, left: float, right: float, high: float) -> None:
    """Shade the strip of methods that send nothing and break the axis beside it."""
    from math import log

    axes.axvspan(left, right, color=FAINT, alpha=0.55, linewidth=0, zorder=0)
    edge = log(right / left) / log(high / left)
    marks = {"marker": [(-1, -2), (1, 2)], "markersize": 6, "linestyle": "none", "color": MUTED, "clip_on": False}
    axes.plot([edge - 0.008, edge + 0.008], [0, 0], transform=axes.transAxes, label="_break", zorder=5, **marks)


def _limits(axes: Axes, points: list[Point]) -> None:
    spread = [point.accuracy.std if point.accuracy.n > 1 else 0.0 for point in points]
    low = min(point.accuracy.mean - std for point, std in zip(points, spread, strict=True))
    high = max(point.accuracy.mean + std for point, std in zip(points, spread, strict=True))
    margin = 0.12 * max(high - low, 0.02)
    axes.set_ylim(max(low - margin, -0.02), high + margin)
    percent_axis(axes.yaxis)


def _scales(axes: Axes, data: ExperimentData, task: Task, options: ParetoOptions, low: float, high: float) -> None:
    axes.set_title(data.title(task))
    who = "per client" if options.axis == "per-client" else "all clients"
    axes.set_xlabel(f"Bytes up and down over the run, {who}")
    if options.axis != "both":
        return
    clients = float(task.of(data.runs).clients.iloc[0])
    top = axes.secondary_xaxis("top", functions=(lambda x: x / clients, lambda x: x * clients))
    bytes_scale(top.xaxis, byte_ticks(low / clients, high / clients))
    top.spines["top"].set_visible(True)
    top.tick_params(labelsize=FONT - 1, labelcolor=MUTED)
    top.set_xlabel(f"per client (of {clients:.0f})", fontsize=FONT - 1, color=MUTED, labelpad=3)


def _key(measured: list[tuple[Task, list[Point]]]) -> list:
    """Legend of what is said by line, fill and shape; methods are labelled where they stand."""
    from matplotlib.lines import Line2D

    dot = {"linestyle": "none", "marker": "o", "markeredgecolor": "white", "markeredgewidth": 0.6}
    handles = [
        Line2D([], [], color=INK, linewidth=1.1, label="Pareto frontier"),
        Line2D([], [], color=INK, markersize=6.5, label="not dominated", **dot),
        Line2D([], [], color=DOMINATED, markersize=5.0, label="dominated", **dot),
    ]
    points = [point for _, some in measured for point in some]
    if any(point.diverged for point in points):
        label = "some seeds diverged"
        handles.append(Line2D([], [], color=DOMINATED, marker="x", markeredgewidth=1.4, linestyle="none", label=label))
    if any(point.accuracy.n > 1 for point in points):
        handles.append(Line2D([], [], color=MUTED, marker="|", linewidth=0.9, label="±1 sample std over seeds"))
    return handles


def _write_labels(axes: Axes, data: ExperimentData, points: list[Point]) -> None:
    styles = method_styles(data.config)
    members = on_frontier(points)
    drawn = {container.get_label(): container.lines[0] for container in axes.containers}
    order = sorted(range(len(points)), key=lambda i: not members[i])  # the frontier chooses its places first
    spots, texts, colours = [], [], []
    for i in order:
        line = drawn[data.methods[points[i].method]]
        spots.append((float(line.get_xdata()[0]), float(line.get_ydata()[0])))
        texts.append(data.methods[points[i].method])
        colours.append(styles[points[i].method].colour if members[i] else "#7A7A7A")
    label_points(axes, spots, texts, colours, _obstacles(axes, spots, points, order), FONT - 1)


def _obstacles(axes: Axes, spots: list, points: list[Point], order: list[int]) -> list[list[tuple[float, float]]]:
    """Lines that labels should keep off: the frontier's steps and the error bars."""
    lines = []
    for line in axes.lines:
        if line.get_label() == "Pareto frontier":
            x, y = line.get_data()
            for place in range(len(x) - 1):
                lines.append([(x[place], y[place]), (x[place + 1], y[place]), (x[place + 1], y[place + 1])])
    for (x, y), place in zip(spots, order, strict=True):
        if points[place].accuracy.n > 1:
            lines.append([(x, y - points[place].accuracy.std), (x, y + points[place].accuracy.std)])
    return lines
