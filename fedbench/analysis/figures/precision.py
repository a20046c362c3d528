"""The precision ladder: accuracy over the bits that each value costs, for every way of coding the same messages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.analysis.budget import sends
from fedbench.analysis.figures._style import (
    COLOURS,
    LINES,
    MARKERS,
    MUTED,
    WIDTH,
    base_line,
    legend,
    new_figure,
    panel_title,
    percent_axis,
    styled,
)
from fedbench.analysis.statistics import Estimate, estimate
from fedbench.errors import FedbenchError
from fedbench.options import options
from fedbench.registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData, Setting
    from fedbench.config.figures import Asked

CLOSE = 0.05
DODGE = 0.12  # octaves between codings of equal precision, so that they do not hide each other
TICKS = (1, 2, 4, 8, 16, 32, 64)


@options
class PrecisionOptions:
    """The precision figure has no options."""


@dataclass(frozen=True)
class Rung:
    """One method on one task.

    Attributes
    ----------
    family : label of the method whose messages it codes
    coding : the channel without its number of bits, as in "affine (range tensor, of weights)"; empty for float32
    bits : uplink bits per shared value, measured
    """

    family: str
    coding: str
    bits: float
    accuracy: Estimate
    diverged: bool


@FIGURES.register("precision", PrecisionOptions)
@styled
def draw(data: ExperimentData, options: PrecisionOptions = PrecisionOptions()) -> Figure:  # noqa: B008 (frozen)
    """Accuracy over uplink bits per shared value (measured), a line from float32 messages to each coding of them."""
    found = [_rungs(data, task) for task in data.tasks]
    every = [rung for rungs in found for rung in rungs]
    if not every:
        raise FedbenchError(f"experiment {data.name!r}, figure precision: no finished run sends shared values")
    families = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(dict.fromkeys(rung.family for rung in every))}
    codings = [name for name in dict.fromkeys(rung.coding for rung in every) if name]
    looks = {name: (MARKERS[1 + i % (len(MARKERS) - 1)], LINES[i % len(LINES)]) for i, name in enumerate(codings)}
    figure = new_figure(WIDTH, 2.6 * len(found) + 0.4 + 0.16 * max(len(families), len(codings)))
    pairs = figure.subplots(len(found), 2, squeeze=False)
    for pair, task, rungs in zip(pairs, data.tasks, found, strict=True):
        for axes in pair:
            _panel(axes, rungs, families, looks)
            axes.set_xlabel("Uplink bits per shared value")
        base_line(pair[0], task.of(data.runs)[data.base_accuracy].astype(float).mean())
        pair[0].set_title(panel_title(data.title(task)))
        pair[0].set_ylabel("Accuracy, %")
        # where one coding collapses, the differences between the others need a scale of their own
        pair[1].set_title(f"its best {100 * CLOSE:g} points", fontweight="normal")
        best = max((rung.accuracy.mean for rung in rungs if rung.accuracy.n), default=1.0)
        pair[1].set_ylim(best - CLOSE, best + 0.2 * CLOSE)
    key = _key(families, looks, diverged=any(rung.diverged for rung in every))
    legend(figure, key, loc="outside lower center", ncols=2)
    return figure


def _objection(options: PrecisionOptions, asked: Asked) -> str | None:
    if not any(sends(spec) for spec in asked.specs):
        return "none of its methods sends anything; add one that does"
    return None


draw.objection = _objection


def _rungs(data: ExperimentData, task: Setting) -> list[Rung]:
    from fedbench.analysis.resolved import spec_of

    runs = task.of(data.runs)
    found: list[tuple[str, str, dict[str, Any], Any]] = []
    for method, every in runs.groupby("method", sort=False):
        spec = spec_of(data, every.iloc[0])
        if float(every.bytes_uplink.sum()) and every.parameters_shared.iloc[0]:
            family = json.dumps({key: value for key, value in spec.items() if key != "channel"}, sort_keys=True)
            found.append((family, method, spec["channel"], every))
    names: dict[str, str] = {}  # a family is called after its float32 method, or the first if there is none
    for wanted in (True, False):
        for family, method, channel, _ in found:
            if _is_float32(channel) or not wanted:
                names.setdefault(family, data.methods[method])
    return [_rung(data, names[family], channel, every) for family, _, channel, every in found]


def _rung(data: ExperimentData, family: str, channel: dict[str, Any], every: Any) -> Rung:
    sound = every[~every.diverged.astype(bool)]
    bits = 8 * every.bytes_uplink_per_client_round.astype(float) / every.parameters_shared.astype(float)
    return Rung(family, _coding(channel), bits.mean(), estimate(sound[data.headline]), bool(every.diverged.any()))


def _is_float32(channel: dict[str, Any]) -> bool:
    return channel["codec"] == "dense" and channel["dtype"] == "fp32"


def _coding(channel: dict[str, Any]) -> str:
    """A channel in words, without what only sets its number of bits."""
    if _is_float32(channel):
        return ""
    if channel["codec"] == "dense":
        return channel["dtype"]
    details = [
        key.replace("_", " ") if value is True else f"{key.replace('_', ' ')} {value}"
        for key, value in channel.items()
        if key not in ("codec", "bits") and value not in (None, False)
    ]
    return f"{channel['codec']} ({', '.join(details)})" if details else channel["codec"]


def _panel(axes: Axes, rungs: list[Rung], families: dict[str, str], looks: dict[str, tuple[str, Any]]) -> None:
    from matplotlib.ticker import NullLocator

    anchors = {rung.family: rung for rung in rungs if not rung.coding and rung.accuracy.n}
    lines: dict[tuple[str, str], list[Rung]] = {}
    for rung in rungs:
        lines.setdefault((rung.family, rung.coding), []).append(rung)
    for (family, coding), some in lines.items():
        marker, line = looks[coding] if coding else ("o", "-")
        drawn = sorted((rung for rung in some if rung.accuracy.n), key=lambda rung: rung.bits)
        x, y = [_place(rung, rungs) for rung in drawn], [rung.accuracy.mean for rung in drawn]
        spread = [rung.accuracy.std if rung.accuracy.n > 1 else 0.0 for rung in drawn]
        look = {"color": families[family], "linewidth": 1.1}
        if coding and family in anchors:  # without a code, every coding is float32
            whole = anchors[family]
            axes.plot([*x, whole.bits], [*y, whole.accuracy.mean], linestyle=line, zorder=2, label="_line", **look)
        axes.errorbar(
            x, y, yerr=spread, marker=marker, markeredgecolor="white", markeredgewidth=0.5, elinewidth=0.9, capsize=2.0,
            linestyle="none", zorder=3, label=f"{family}, {coding}" if coding else family, **look,
        )  # fmt: skip
        for rung in some:
            if rung.diverged:
                axes.plot(
                    [_place(rung, rungs)], [0.03], transform=axes.get_xaxis_transform(), marker="x", linestyle="none",
                    markeredgewidth=1.4, label="_diverged", **look,
                )  # fmt: skip
    bits = [rung.bits for rung in rungs]
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(bits) / 1.3, max(bits) * 1.3)
    ticks = [tick for tick in TICKS if min(bits) / 1.3 <= tick <= max(bits) * 1.3]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    percent_axis(axes.yaxis)


def _place(rung: Rung, rungs: list[Rung]) -> float:
    """Bits of a rung, a little beside those of the other codings of as many bits."""
    equal = list(dict.fromkeys(other.coding for other in rungs if round(other.bits) == round(rung.bits)))
    return rung.bits * 2 ** (DODGE * (equal.index(rung.coding) - (len(equal) - 1) / 2))


def _key(families: dict[str, str], looks: dict[str, tuple[str, Any]], diverged: bool) -> list:
    """Colours of families, then markers and lines of codings, a column each."""
    from matplotlib.lines import Line2D

    left = [Line2D([], [], color=colour, marker="o", label=f"{name}, float32") for name, colour in families.items()]
    right = [
        Line2D([], [], color=MUTED, marker=marker, linestyle=line, label=coding)
        for coding, (marker, line) in looks.items()
    ]
    if diverged:
        look = {"marker": "x", "markeredgewidth": 1.4, "linestyle": "none"}
        right.append(Line2D([], [], color=MUTED, label="some seeds diverged", **look))
    blank = Line2D([], [], linestyle="none", label=" ")
    longest = max(len(left), len(right))
    return [*left, *[blank] * (longest - len(left)), *right, *[blank] * (longest - len(right))]
