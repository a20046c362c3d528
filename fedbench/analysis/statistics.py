"""Statistics over seeds and over methods: intervals, paired differences, Pareto frontiers, cost to a target.

Everything takes and returns plain numbers and arrays; nothing here knows about files, configs or figures.
scipy is imported where it is used, because figure plug-ins import this module while a workflow is planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, log10, nan, sqrt

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds with its sample standard deviation and t interval (NaN where one value allows none)."""

    n: int
    mean: float
    std: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval, the number behind the plus-minus sign."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Difference(Estimate):
    """Mean paired difference with its interval and the p-value of the two-sided paired t test."""

    p: float


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean, sample standard deviation and Student t interval of independent values.

    Parameters
    ----------
    values : one number per seed; NaN (not measured) is left out and not counted in `n`
    confidence : coverage of the interval

    Returns
    -------
    Estimate
        With one value, `std`, `low` and `high` are NaN: one seed says nothing about spread.
    """
    finite = _finite(values)
    n = len(finite)
    if n == 0:
        return Estimate(0, nan, nan, nan, nan)
    mean = float(finite.mean())
    if n == 1:
        return Estimate(1, mean, nan, nan, nan)
    from scipy.stats import t

    std = float(finite.std(ddof=1))
    half = float(t.ppf((1 + confidence) / 2, n - 1)) * std / sqrt(n)
    return Estimate(n, mean, std, mean - half, mean + half)


ROUNDING = 1e-12  # of accuracies, which are quotients of whole numbers


def paired_difference(values: Sequence[float], reference: Sequence[float], confidence: float = 0.95) -> Difference:
    """Compare two methods on the same seeds.

    Parameters
    ----------
    values, reference : accuracies in the same order of seeds; a pair with a NaN is left out

    Returns
    -------
    Difference
        Of ``values - reference``. Fewer than two pairs give no interval and no p-value. Pairs that all
        differ by nothing have p = 1, and pairs that all differ by the same number have none: without a spread there
        is nothing to hold a difference against.
    """
    differences = _finite(np.asarray(values, float) - np.asarray(reference, float))
    found = estimate(differences, confidence)
    if found.n < 2:
        p = nan
    elif found.std <= ROUNDING:
        p = 1.0 if abs(found.mean) <= ROUNDING else nan
    else:
        from scipy.stats import t

        p = float(2 * t.sf(abs(found.mean) / (found.std / sqrt(found.n)), found.n - 1))
    return Difference(found.n, found.mean, found.std, found.low, found.high, p)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's step-down adjustment of a family of p-values (Holm 1979).

    With m p-values sorted upwards, the i-th becomes ``max over j <= i of min(1, (m - j + 1) p_j)``.
    NaN (no test possible) stays NaN and is not counted in the family.
    """
    values = np.asarray(p_values, float)
    adjusted = np.full(values.shape, nan)
    tested = np.flatnonzero(np.isfinite(values))
    order = tested[np.argsort(values[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, factors * values[order]))
    return adjusted


def pareto_frontier(cost: Sequence[float] | np.ndarray, value: Sequence[float] | np.ndarray) -> np.ndarray:
    """Mark the points that no other point beats: at most their cost, at least their value, one of them strictly.

    Equal points are all on the frontier or all off it; a point with a NaN is never on it.

    Returns
    -------
    bool array [n]
    """
    cost, value = np.asarray(cost, float), np.asarray(value, float)
    known = np.isfinite(cost) & np.isfinite(value)
    no_worse = (cost[None, :] <= cost[:, None]) & (value[None, :] >= value[:, None])
    better = (cost[None, :] < cost[:, None]) | (value[None, :] > value[:, None])
    dominated = (no_worse & better & known[None, :]).any(axis=1)
    return known & ~dominated


def hypervolume(
    cost: Sequence[float], value: Sequence[float], *, floor: float, cheapest: float, dearest: float
) -> float:
    """Area of the region that the points dominate, over log10 cost, in value x decades of bytes.

    Parameters
    ----------
    cost : bytes [n]; the logarithm has no zero, so anything below `cheapest` counts as `cheapest`
    value : accuracies [n]
    floor : value below which nothing counts, for example the base's accuracy
    cheapest, dearest : left and right edge of the box, in bytes; points right of `dearest` add nothing
    """
    if not 0 < cheapest <= dearest:
        raise ValueError(f"need 0 < cheapest <= dearest, got {cheapest} and {dearest}")
    area, best = 0.0, floor
    right = log10(dearest)
    points = [(max(c, cheapest), v) for c, v in zip(cost, value, strict=True) if isfinite(c) and isfinite(v)]
    # Sweep to the right: each point lifts the staircase from its own cost to the end of the box.
    for c, v in sorted(points, key=lambda point: (point[0], -point[1])):
        if c <= dearest and v > best:
            area += (v - best) * (right - log10(c))
            best = v
    return area


def hypervolume_shares(
    cost: Sequence[float], value: Sequence[float], *, floor: float, cheapest: float, dearest: float
) -> np.ndarray:
    """What the hypervolume would lose without each point, [n], same unit; 0 for dominated and for equal points."""
    box = {"floor": floor, "cheapest": cheapest, "dearest": dearest}
    cost, value = np.asarray(cost, float), np.asarray(value, float)
    total = hypervolume(cost, value, **box)
    without = [hypervolume(np.delete(cost, i), np.delete(value, i), **box) for i in range(len(cost))]
    return total - np.asarray(without, float).reshape(len(cost))


def cost_to_target(
    rounds: Sequence[float], cost: Sequence[float], accuracy: Sequence[float], target: float
) -> tuple[float, float]:
    """First evaluated round whose accuracy reaches `target`, and the cumulative bytes by then.

    Rounds without an evaluation (NaN accuracy) are passed over; a target never reached gives (NaN, NaN).
    """
    reached = np.flatnonzero(np.asarray(accuracy, float) >= target)  # NaN compares as False
    if not len(reached):
        return nan, nan
    return float(rounds[reached[0]]), float(cost[reached[0]])


def _finite(values: Sequence[float]) -> np.ndarray:
    array = np.asarray(values, float)
    return array[np.isfinite(array)]
