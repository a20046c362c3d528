"""Accuracy over one setting of the runs: any key of their resolved specs, with a line for each value of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedbench.analysis.figures._byte_axis import byte_ticks, bytes_scale
from fedbench.analysis.figures._panels import panels
from fedbench.analysis.figures._style import (
    COLOURS,
    LINES,
    MARKERS,
    MUTED,
    WIDTH,
    MethodStyle,
    base_line,
    facets,
    legend,
    method_styles,
    new_figure,
    panel_title,
    percent_axis,
    remark,
    styled,
)
from fedbench.analysis.figures._sweep_axis import SweepAxis, show_sweep_axis, sweep_axis
from fedbench.analysis.statistics import estimate
from fedbench.errors import FedbenchError
from fedbench.options import Label, options
from fedbench.registry import FIGURES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData
    from fedbench.analysis.resolved import Variant
    from fedbench.config.figures import Asked

BYTES = {"per-client": "bytes_per_client", "total": "bytes_total"}


@options
class SweepOptions:
    """What is swept and what tells lines apart: keys of the resolved spec, as each run's summary.json has it."""

    x: str
    """Key along the horizontal axis, as in method.dimension, partition.clients or partition.alpha (IID: infinite)."""
    series: tuple[str, ...] = ()
    """Keys with a line for each combination of their values; without any, there is a line for each method."""
    scale: Literal["log", "linear"] = "log"
    """Spacing of numbers on the horizontal axis; words always stand at equal distances."""
    bytes: Literal["per-client", "total"] | None = None
    """Bytes, up and down over the whole run, to show in a second panel."""
    label: Label | None = None
    """Name of the horizontal axis; the key's last part where not given."""


@dataclass(frozen=True)
class Line:
    """One line of a panel, or the level of a method that has no value of the swept key."""

    name: str
    style: MethodStyle
    variants: list[Variant]

    @property
    def is_level(self) -> bool:
        return self.variants[0].x is None


@FIGURES.register("sweep", SweepOptions)
@styled
def draw(data: ExperimentData, options: SweepOptions) -> Figure:
    """Accuracy over a setting of the runs, a line for each variant, mean and one standard deviation over seeds."""
    from fedbench.analysis.resolved import AXES, check_key, variants

    where = f"experiment {data.name!r}, figure sweep"
    keys = (options.x, *options.series)
    for key in keys:
        check_key(data, key, where)
    together = {AXES[section] for section in (key.split(".")[0] for key in keys) if section in AXES}
    shown = panels(data, tuple(together))
    drawn = _lines(data, [variants(data, panel.runs, *keys) for panel in shown], options, where)
    kinds = 2 if options.bytes else 1  # accuracy, and beside it bytes
    columns = max(kinds, min(2, len(shown)))
    rows = -(-kinds * len(shown) // columns)
    figure = new_figure(WIDTH if columns > 1 else 5.2, 2.6 * rows + 0.6)
    axes = facets(figure, kinds * len(shown), columns)
    for place, (panel, lines) in enumerate(zip(shown, drawn, strict=True)):
        accuracy, *sent = axes[kinds * place : kinds * (place + 1)]
        accuracy.set_title(panel_title(panel.title))
        accuracy.set_ylabel("Accuracy, %" if kinds * place % columns == 0 else "")
        values = [variant.x for line in lines for variant in line.variants if not line.is_level]
        if not values:
            remark(accuracy, f"no run here has a {options.x}")
            continue
        axis = sweep_axis(values, options.scale == "log", f"{where}: {options.x}")
        _accuracy(accuracy, lines, axis, data.headline)
        base_line(accuracy, panel.runs[data.base_accuracy].astype(float).mean())
        for one in sent:
            _sent(one, lines, axis, options)
        for one in (accuracy, *sent):
            label = options.label or options.x.split(".")[-1].replace("_", " ").capitalize()
            show_sweep_axis(one, axis, label, "IID" if options.x == "partition.alpha" else "∞")
    handles = _key([line for lines in drawn for line in lines])
    many = 4 if columns > 1 and max(len(handle.get_label()) for handle in handles) < 22 else columns + 1
    legend(figure, handles, loc="outside lower center", ncols=min(many, len(handles)))
    return figure


def _objection(options: SweepOptions, asked: Asked) -> str | None:
    from fedbench.analysis.resolved import AXES, VARIANT, unknown_key, variant

    keys = (options.x, *options.series)
    specs = {spec.cell: {key: value for key, value in spec.full.items() if key != "seed"} for spec in asked.specs}
    for key in keys:
        if unknown := unknown_key(specs.values(), key):
            return f"{unknown}; name another key"
    together = {AXES[section] for section in (key.split(".")[0] for key in keys) if section in AXES}
    panels: dict[tuple, list[Variant]] = {}
    for cell, spec in specs.items():
        panel = tuple(getattr(cell, axis) for axis in VARIANT[:3] if axis not in together)
        panels.setdefault(panel, []).append(variant(cell.method, spec, None, *keys))
    for found in panels.values():
        for members in _grouped(found).values():
            if clash := _clash(members, options):
                return clash
    return None


draw.objection = _objection


def _lines(
    data: ExperimentData, found: Sequence[Sequence[Variant]], options: SweepOptions, where: str
) -> list[list[Line]]:
    """Each panel's lines; a line looks the same in all panels."""
    of_methods = method_styles(data.config)
    of_series: dict[tuple, MethodStyle] = {}
    panels_lines = []
    for some in found:
        lines = []
        for key, members in _grouped(some).items():
            if clash := _clash(members, options):
                raise FedbenchError(f"{where}: {clash}")
            if members[0].x is None or not members[0].series:
                method = members[0].method
                lines.append(Line(data.methods[method], of_methods[method], members))
                continue
            turn = len(of_series)
            look = MethodStyle(COLOURS[turn % len(COLOURS)], MARKERS[turn % len(MARKERS)], LINES[turn // len(COLOURS)])
            name = ", ".join(f"{path.split('.')[-1].replace('_', ' ')} {value}" for path, value in key)
            lines.append(Line(name, of_series.setdefault(key, look), members))
        panels_lines.append(lines)
    return panels_lines


def _grouped(variants: Sequence[Variant]) -> dict[tuple, list[Variant]]:
    """The variants of each line, by the values of its series or by its method."""
    grouped: dict[tuple, list[Variant]] = {}
    for variant in variants:
        in_series = variant.x is not None and variant.series
        grouped.setdefault(tuple(variant.series.items()) if in_series else (variant.method,), []).append(variant)
    return grouped


def _clash(variants: Sequence[Variant], options: SweepOptions) -> str | None:
    """Two variants at one place of one line would hide each other: say what tells them apart."""
    from fedbench.analysis.resolved import difference

    seen: dict[object, Variant] = {}
    for variant in variants:
        other = seen.setdefault(variant.x, variant)
        if other is not variant:
            return (
                f"{other.method} and {variant.method} are both at {options.x} = {variant.x} of one line; they "
                f"differ in {difference(other.spec, variant.spec)}: add it to series"
            )
    return None


def _accuracy(axes: Axes, lines: Sequence[Line], axis: SweepAxis, headline: str) -> None:
    for line in lines:
        colour = line.style.colour
        if line.is_level:
            level = estimate(_sound(line.variants[0])[headline]).mean
            axes.axhline(level, color=colour, linewidth=1.1, linestyle=":", zorder=2, label=line.name)
            continue
        points = [(axis.place[variant.x], estimate(_sound(variant)[headline])) for variant in line.variants]
        points = sorted((point for point in points if point[1].n), key=lambda point: point[0])
        axes.errorbar(
            [x for x, _ in points],
            [accuracy.mean for _, accuracy in points],
            yerr=[accuracy.std if accuracy.n > 1 else 0.0 for _, accuracy in points],
            elinewidth=0.9,
            capsize=2.0,
            zorder=3,
            label=line.name,
            **_look(line.style),
        )
        diverged = [axis.place[variant.x] for variant in line.variants if variant.runs.diverged.any()]
        low = [0.03] * len(diverged)
        cross = {"marker": "x", "markeredgewidth": 1.4, "linestyle": "none", "color": colour, "label": "_diverged"}
        axes.plot(diverged, low, transform=axes.get_xaxis_transform(), **cross)
    percent_axis(axes.yaxis)


def _sent(axes: Axes, lines: Sequence[Line], axis: SweepAxis, options: SweepOptions) -> None:
    """Bytes of the lines that send any, on a logarithmic axis."""
    shown = []
    for line in lines:
        means = [(variant.x, variant.runs[BYTES[options.bytes]].astype(float).mean()) for variant in line.variants]
        points = sorted((axis.place[x], mean) for x, mean in means if x is not None and mean > 0)
        axes.plot([x for x, _ in points], [mean for _, mean in points], label=line.name, **_look(line.style))
        shown += [mean for _, mean in points]
    if not shown:
        remark(axes, "no method sends bytes")
        return
    low, high = min(shown) / 2, max(shown) * 2
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    bytes_scale(axes.yaxis, byte_ticks(low, high))
    axes.set_ylabel(f"Bytes over the run, {'per client' if options.bytes == 'per-client' else 'all clients'}")


def _sound(variant: Variant) -> pd.DataFrame:
    return variant.runs[~variant.runs.diverged.astype(bool)]


def _look(style: MethodStyle) -> dict:
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.6}
    return {"color": style.colour, "marker": style.marker, "linestyle": style.line, "linewidth": 1.2, **edge}


def _key(lines: Sequence[Line]) -> list:
    from matplotlib.lines import Line2D

    handles = {}
    for line in lines:
        level = {"color": line.style.colour, "linewidth": 1.1, "linestyle": ":"}
        handles[line.name] = Line2D([], [], label=line.name, **level if line.is_level else _look(line.style))
    if any(variant.runs.diverged.any() for line in lines for variant in line.variants):
        label = "some seeds diverged"
        handles[label] = Line2D([], [], color=MUTED, marker="x", markeredgewidth=1.4, linestyle="none", label=label)
    return list(handles.values())
