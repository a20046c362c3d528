"""Logarithmic axes of bytes, with a strip of its own for methods that send nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log, log10
from typing import TYPE_CHECKING

from fedbench.analysis.figures._style import FAINT, MUTED
from fedbench.analysis.text import human_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class ByteAxis:
    """Where an axis of bytes begins and ends, and where zero stands on it."""

    low: float
    high: float
    zero: float


def byte_axis(axes: Axes, sent: Sequence[float], room: float = 0.2, most: int = 6) -> ByteAxis:
    """Make the x axis logarithmic over the positive numbers of `sent`.

    Zero has no logarithm: it gets a strip left of the smallest message, behind a break in the axis.

    Parameters
    ----------
    sent : bytes, some of them above zero
    room : share of the axis' length that is left free at its right end
    most : number of ticks that there is room for
    """
    positive = [value for value in sent if value > 0]
    low = min(positive) / 10**0.5
    high = max(positive) * (max(positive) / low) ** room
    free = any(value == 0 for value in sent)
    left = low / (high / low) ** 0.16 if free else low
    axis = ByteAxis(low, high, (left * low) ** 0.5)
    axes.set_xscale("log")
    axes.set_xlim(left, high)
    bytes_scale(axes.xaxis, byte_ticks(low, high, most), {axis.zero: "0"} if free else None)
    if free:
        _strip(axes, left, axis)
    return axis


def byte_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most `most` round numbers between `low` and `high`: powers of ten, or finer where those are too few."""
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks: list[float] = []
    for multiples in ((1,), (1, 2, 5), range(1, 10)):
        every = [multiple * 10.0**power for power in powers for multiple in multiples]
        ticks = [tick for tick in every if low <= tick <= high]
        if len(ticks) > 1:
            break
    return ticks[:: max(1, ceil(len(ticks) / most))]


def bytes_scale(axis, ticks: list[float], names: dict[float, str] | None = None) -> None:
    """Put `ticks` on an axis of bytes and label them in units; `names` labels single ticks otherwise."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    names = names or {}
    axis.set_major_locator(FixedLocator([*names, *ticks]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value) or human_bytes(value)))


def break_axis(axes: Axes, share: float) -> None:
    """Cut the x axis with two strokes, at a share of its length."""
    marks = {"marker": [(-1, -2), (1, 2)], "markersize": 6, "linestyle": "none", "color": MUTED, "clip_on": False}
    axes.plot([share - 0.008, share + 0.008], [0, 0], transform=axes.transAxes, label="_break", zorder=5, **marks)


def _strip(axes: Axes, left: float, axis: ByteAxis) -> None:
    axes.axvspan(left, axis.low, color=FAINT, alpha=0.55, linewidth=0, zorder=0)
    break_axis(axes, log(axis.low / left) / log(axis.high / left))
