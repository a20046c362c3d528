"""The horizontal axis of a sweep: numbers to scale, infinity behind a break, words side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from fedbench.analysis.figures._byte_axis import break_axis
from fedbench.errors import FedbenchError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class SweepAxis:
    """Where the swept values stand."""

    place: Mapping[Any, float]
    log: bool

    @property
    def ends(self) -> tuple[float, float]:
        """Limits with some room on both sides."""
        low, high = min(self.place.values()), max(self.place.values())
        if self.log:
            margin = (high / low) ** 0.08 if high > low else 2.0
            return low / margin, high * margin
        margin = 0.08 * (high - low) or 1.0
        return low - margin, high + margin


def sweep_axis(values: Sequence[Any], log: bool, where: str) -> SweepAxis:
    """Give each value its place; infinity comes a step after the largest number.

    Raises
    ------
    FedbenchError
        If a logarithmic axis would have to show zero or less; `where` begins the message.
    """
    distinct = list(dict.fromkeys(values))
    if not all(_is_number(value) for value in distinct):
        return SweepAxis({value: float(place) for place, value in enumerate(distinct)}, log=False)
    finite = sorted(float(value) for value in distinct if isfinite(value))
    if log and finite and finite[0] <= 0:
        raise FedbenchError(f"{where}: {finite[0]:g} has no logarithm; set the figure's scale: linear")
    places = {value: value for value in finite}
    if inf in distinct:
        low, high = (finite[0], finite[-1]) if finite else (1.0, 1.0)
        places[inf] = high * max(high / low, 4.0) ** 0.5 if log else high + (0.4 * (high - low) or 1.0)
    return SweepAxis(places, log)


def show_sweep_axis(axes: Axes, axis: SweepAxis, label: str, infinite: str) -> None:
    """Label the horizontal axis, with ticks where runs are; `infinite` is the name of infinity."""
    from matplotlib.ticker import NullLocator

    if axis.log:
        axes.set_xscale("log")
    low, high = axis.ends
    axes.set_xlim(low, high)
    axes.set_xticks(list(axis.place.values()), [_tick(value, infinite) for value in axis.place])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label)
    if inf in axis.place and len(axis.place) > 1:
        before, last = sorted(axis.place.values())[-2:]
        middle = (last * before) ** 0.5 if axis.log else (last + before) / 2
        to_share = axes.transData + axes.transAxes.inverted()
        break_axis(axes, float(to_share.transform((middle, axes.get_ylim()[0]))[0]))


def _tick(value: Any, infinite: str) -> str:
    if not _is_number(value):
        return str(value)
    return f"{value:g}" if isfinite(value) else infinite


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
