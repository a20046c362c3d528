"""Accuracy against bytes: which methods nothing beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from fedbench.analysis.budget import pools, sends
from fedbench.analysis.figures._byte_axis import ByteAxis, byte_axis, byte_ticks, bytes_scale
from fedbench.analysis.figures._labels import label_points
from fedbench.analysis.figures._panels import Panel, panels
from fedbench.analysis.figures._style import (
    FONT,
    INK,
    MUTED,
    WIDTH,
    facet_size,
    facets,
    legend,
    method_styles,
    new_figure,
    panel_title,
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

    from fedbench.analysis.collect import ExperimentData
    from fedbench.config.figures import Asked

CEILING = (0, (4, 2))
DOMINATED = "#A8A8A8"
NAMED = 10  # points in a panel up to which each has its name beside it; beyond, dominated ones have numbers
FILLS = ("full", "none", "left", "top")  # of the markers, one for each model


@options
class ParetoOptions:
    """What the byte axes count."""

    axis: Literal["both", "total", "per-client"] = "both"
    """Bytes of all clients together, of the average client, or both (bottom and top axis)."""


@dataclass(frozen=True)
class Point:
    """One method on one model, over the seeds that did not diverge."""

    method: str
    model: str
    bytes: Estimate
    accuracy: Estimate
    diverged: int


@FIGURES.register("pareto", ParetoOptions)
@styled
def draw(data: ExperimentData, options: ParetoOptions = ParetoOptions()) -> Figure:  # noqa: B008 (frozen)
    """Accuracy against cumulative bytes (log axis) by data set and partition, with the frontier over all models."""
    shown = panels(data, together=["model"])
    points = [_points(data, panel, options) for panel in shown]
    columns = 2 if len(shown) <= 6 else 3
    width, height = facet_size(len(shown), columns, height=3.0)
    figure = new_figure(width * columns / 2 if width == WIDTH else width, height)
    axes = facets(figure, len(shown), columns)
    places = zip(axes, shown, points, strict=True)
    drawn = [_facet(place, data, panel, some, options) for place, panel, some in places]
    for facet in axes[::columns]:
        facet.set_ylabel("Accuracy, %")
    crowded = any(len(some) > NAMED for some in points)
    placed = [method for method in data.methods if not pools(data.config, method)]
    numbers = {method: str(place) for place, method in enumerate(placed, 1)} if crowded else {}
    key = _key(data, points)
    if numbers:
        legend(figure, _numbered(data, numbers), loc="outside lower center", ncols=4, columnspacing=1.5)
    where = "outside upper center" if numbers else "outside lower center"
    legend(figure, key, loc=where, ncols=3 if len(axes) == 1 or len(key) > 5 else 5, columnspacing=1.5)
    for facet, some, axis in zip(axes, points, drawn, strict=True):
        if axis is not None:
            _write_labels(facet, data, some, axis, numbers)
    return figure


def _objection(options: ParetoOptions, asked: Asked) -> str | None:
    for names in dict.fromkeys((spec.dataset.name, spec.partition.name) for spec in asked.specs):
        here = [spec for spec in asked.specs if (spec.dataset.name, spec.partition.name) == names]
        if not any(sends(spec) for spec in here):
            return f"no method on {' with '.join(names)} sends anything; add one that does"
    return None


draw.objection = _objection


def _points(data: ExperimentData, panel: Panel, options: ParetoOptions) -> list[Point]:
    column = "bytes_per_client" if options.axis == "per-client" else "bytes_total"
    points = []
    counted = panel.runs[~panel.runs.method.map(partial(pools, data.config))]
    for (model, method), every in counted.groupby(["model", "method"], sort=False):
        sound = every[~every.diverged.astype(bool)]
        values = estimate(sound[column]), estimate(sound[data.headline])
        points.append(Point(method, model, *values, diverged=int(every.diverged.sum())))
    shown = [point for point in points if point.accuracy.n]
    if not any(point.bytes.mean > 0 for point in shown):
        if panel.runs.diverged.any():
            return []  # a result, if a sad one
        raise FedbenchError(
            f"experiment {data.name!r}, figure pareto: on {panel.title} no finished run sends bytes; "
            "add a method that communicates, or remove the figure"
        )
    return shown


def on_frontier(points: list[Point]) -> list[bool]:
    """Which points no other beats; a method with a diverged run is not offered as a choice."""
    accuracy = [point.accuracy.mean if not point.diverged else float("nan") for point in points]
    return list(pareto_frontier([point.bytes.mean for point in points], accuracy))


def _facet(
    axes: Axes, data: ExperimentData, panel: Panel, points: list[Point], options: ParetoOptions
) -> ByteAxis | None:
    """Draw one panel; its axis of bytes, or None if there is nothing to draw."""
    axes.set_title(panel_title(panel.title))
    if not points:
        remark(axes, "every run that sends bytes diverged")
        return None
    axis = byte_axis(axes, [point.bytes.mean for point in points])
    ceilings = _ceilings(axes, data, panel)
    frontier = on_frontier(points)
    members = sorted(
        (point.bytes.mean or axis.zero, point.accuracy.mean)
        for point, member in zip(points, frontier, strict=True)
        if member
    )
    if members:
        x, y = zip(*[*members, (axis.high, members[-1][1])], strict=True)
        axes.step(x, y, where="post", color=INK, linewidth=1.1, zorder=2, label="Pareto frontier")
        axes.fill_between(x, y, -1, step="post", color=INK, alpha=0.035, linewidth=0, zorder=0)
    fills = _fills(points)
    for point, member in zip(points, frontier, strict=True):
        _point(axes, data, point, member, fills[point.model], axis)
    _limits(axes, points, ceilings)
    _scales(axes, panel, options, axis)
    return axis


def _point(axes: Axes, data: ExperimentData, point: Point, member: bool, fill: str, axis: ByteAxis) -> None:
    style = method_styles(data.config)[point.method]
    colour = style.colour if member else DOMINATED
    outlined = point.diverged or fill != "full"
    axes.errorbar(
        point.bytes.mean or axis.zero,
        point.accuracy.mean,
        yerr=None if point.accuracy.n < 2 else point.accuracy.std,
        xerr=None if point.bytes.n < 2 or not point.bytes.std else point.bytes.std,
        marker="x" if point.diverged else style.marker,
        markersize=6.5 if member else 5.0,
        fillstyle=fill,
        color=colour,
        markerfacecoloralt="white",
        markeredgecolor=colour if outlined else "white",
        markeredgewidth=1.4 if point.diverged else 1.0 if outlined else 0.6,
        elinewidth=0.9,
        capsize=2.0,
        capthick=0.9,
        linestyle="none",
        zorder=4 if member else 3,
        label=data.methods[point.method],
    )


def _fills(points: list[Point]) -> dict[str, str]:
    """How a panel's models fill their markers."""
    models = dict.fromkeys(point.model for point in points)
    return {model: FILLS[min(place, len(FILLS) - 1)] for place, model in enumerate(models)}


def _ceilings(axes: Axes, data: ExperimentData, panel: Panel) -> list[float]:
    """Draw what training on all data in one place reaches, as a line across all bytes; the accuracies drawn."""
    found = []
    for (_, method), every in panel.runs.groupby(["model", "method"], sort=False):
        accuracy = estimate(every[~every.diverged.astype(bool)][data.headline]).mean
        if pools(data.config, method) and accuracy == accuracy:
            axes.axhline(accuracy, color=MUTED, linewidth=0.9, linestyle=CEILING, zorder=1, label="_ceiling")
            found.append(accuracy)
    return found


def _limits(axes: Axes, points: list[Point], ceilings: list[float]) -> None:
    spread = [point.accuracy.std if point.accuracy.n > 1 else 0.0 for point in points]
    low = min([*ceilings, *(point.accuracy.mean - std for point, std in zip(points, spread, strict=True))])
    high = max([*ceilings, *(point.accuracy.mean + std for point, std in zip(points, spread, strict=True))])
    margin = 0.12 * max(high - low, 0.02)
    axes.set_ylim(max(low - margin, -0.02), high + margin)
    percent_axis(axes.yaxis)


def _scales(axes: Axes, panel: Panel, options: ParetoOptions, axis: ByteAxis) -> None:
    who = "per client" if options.axis == "per-client" else "all clients"
    axes.set_xlabel(f"Bytes up and down over the run, {who}")
    if options.axis != "both":
        return
    clients = float(panel.runs.clients.iloc[0])
    top = axes.secondary_xaxis("top", functions=(lambda x: x / clients, lambda x: x * clients))
    bytes_scale(top.xaxis, byte_ticks(axis.low / clients, axis.high / clients))
    top.spines["top"].set_visible(True)
    top.tick_params(labelsize=FONT - 1, labelcolor=MUTED)
    top.set_xlabel(f"per client (of {clients:.0f})", fontsize=FONT - 1, color=MUTED, labelpad=3)


def _key(data: ExperimentData, drawn: Sequence[list[Point]]) -> list:
    """Legend of what is said by line, fill and shape; methods are labelled where they stand."""
    from matplotlib.lines import Line2D

    from fedbench.analysis.collect import labels

    dot = {"linestyle": "none", "marker": "o", "markeredgewidth": 0.6}
    handles = [
        Line2D([], [], color=INK, linewidth=1.1, label="Pareto frontier"),
        Line2D([], [], color=INK, markersize=6.5, markeredgecolor="white", label="not dominated", **dot),
        Line2D([], [], color=DOMINATED, markersize=5.0, markeredgecolor="white", label="dominated", **dot),
    ]
    points = [point for some in drawn for point in some]
    if any(point.diverged for point in points):
        label = "some seeds diverged"
        handles.append(Line2D([], [], color=DOMINATED, marker="x", markeredgewidth=1.4, linestyle="none", label=label))
    if any(point.accuracy.n > 1 for point in points):
        handles.append(Line2D([], [], color=MUTED, marker="|", linewidth=0.9, label="±1 sample std over seeds"))
    pooled = [name for method, name in data.methods.items() if pools(data.config, method)]
    if pooled:
        handles.append(Line2D([], [], color=MUTED, linewidth=0.9, linestyle=CEILING, label=", ".join(pooled)))
    filled: dict[str, list[str]] = {}
    for model, fill in dict.fromkeys(pair for some in drawn for pair in _fills(some).items()):
        filled.setdefault(fill, []).append(labels(data.config, "models", dict.fromkeys(data.runs.model))[model])
    if len(filled) > 1:
        for fill, names in filled.items():
            look = {"fillstyle": fill, "markerfacecoloralt": "white", "markeredgecolor": MUTED}
            handles.append(Line2D([], [], color=MUTED, label=", ".join(names), **dot, **look))
    return handles


def _numbered(data: ExperimentData, numbers: dict[str, str]) -> list:
    """Legend of the numbers that stand for methods."""
    from matplotlib.lines import Line2D

    styles = method_styles(data.config)
    return [
        Line2D(
            [], [], linestyle="none", marker=styles[method].marker, color=styles[method].colour,
            label=f"{number}  {data.methods[method]}",
        )
        for method, number in numbers.items()
    ]  # fmt: skip


def _write_labels(
    axes: Axes, data: ExperimentData, points: list[Point], axis: ByteAxis, numbers: dict[str, str]
) -> None:
    styles = method_styles(data.config)
    members = on_frontier(points)
    order = sorted(range(len(points)), key=lambda i: not members[i])  # the frontier chooses its places first
    spots, texts, colours = [], [], []
    for i in order:
        point = points[i]
        spots.append((point.bytes.mean or axis.zero, point.accuracy.mean))
        name = data.methods[point.method]
        texts.append(name if members[i] else numbers.get(point.method, name))
        colours.append(styles[point.method].colour if members[i] else "#7A7A7A")
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
