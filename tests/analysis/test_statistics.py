"""Statistics against hand computations and scipy."""

from math import inf, isnan, nan, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedbench.analysis.statistics import (
    cost_to_target,
    estimate,
    holm,
    hypervolume,
    hypervolume_shares,
    paired_difference,
    pareto_frontier,
)


def test_estimate_by_hand():
    found = estimate([1.0, 2.0, 3.0])
    assert (found.n, found.mean, found.std) == (3, 2.0, 1.0)
    half = 4.302652729911275 / sqrt(3)  # t(0.975, 2 degrees of freedom)
    assert found.low == pytest.approx(2 - half)
    assert found.high == pytest.approx(2 + half)
    assert found.half_width == pytest.approx(half)


def test_estimate_agrees_with_scipy():
    values = [0.71, 0.74, 0.69, 0.72, 0.70]
    low, high = stats.t.interval(0.9, 4, loc=np.mean(values), scale=stats.sem(values))
    found = estimate(values, confidence=0.9)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_one_value_has_no_interval():
    found = estimate([0.7])
    assert (found.n, found.mean) == (1, 0.7)
    assert isnan(found.std)
    assert isnan(found.low)
    assert isnan(found.high)


def test_values_that_were_not_measured_are_not_counted():
    assert estimate([0.5, nan, 0.7]).n == 2
    assert estimate([nan]).n == 0
    assert isnan(estimate([]).mean)


def test_paired_difference_agrees_with_scipy():
    a, b = [0.75, 0.79, 0.80, 0.78], [0.70, 0.72, 0.74, 0.75]
    found = paired_difference(a, b)
    expected = stats.ttest_rel(a, b)
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert found.mean == pytest.approx(0.0525)


def test_paired_difference_uses_pairs_only():
    found = paired_difference([0.8, nan, 0.9], [0.7, 0.6, 0.7])
    assert found.n == 2
    assert found.mean == pytest.approx(0.15)


@pytest.mark.parametrize(("a", "b", "p"), [([1.0, 2.0], [1.0, 2.0], 1.0), ([0.8, 0.9], [0.7, 0.8], nan)])
def test_differences_without_spread_are_not_significant_for_that(a, b, p):
    found = paired_difference(a, b)
    assert found.p == pytest.approx(p, nan_ok=True)
    assert found.low == pytest.approx(found.high) == pytest.approx(found.mean)


def test_one_pair_is_no_test():
    assert isnan(paired_difference([0.8], [0.7]).p)


def test_holm_by_hand():
    # sorted 0.01 0.02 0.03 0.04 times 4 3 2 1 = 0.04 0.06 0.06 0.04, then running maximum
    np.testing.assert_allclose(holm([0.04, 0.01, 0.03, 0.02]), [0.06, 0.04, 0.06, 0.06])


def test_holm_leaves_out_what_was_not_tested():
    found = holm([0.02, nan, 0.5])
    np.testing.assert_allclose(found[[0, 2]], [0.04, 0.5])
    assert isnan(found[1])


def test_holm_never_exceeds_one():
    np.testing.assert_array_equal(holm([0.6, 0.9]), [1.0, 1.0])


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_lies_between_raw_and_bonferroni(values):
    found, raw = holm(values), np.asarray(values, float)
    assert (found >= raw).all()
    assert (found <= np.minimum(1, len(values) * raw) + 1e-15).all()
    order = np.argsort(raw, kind="stable")
    assert (np.diff(found[order]) >= 0).all()


@pytest.mark.parametrize(
    ("cost", "value", "expected"),
    [
        ([10], [0.5], [True]),
        ([], [], []),
        ([0, 0, 10], [0.5, 0.6, 0.7], [False, True, True]),  # zero bytes compete among themselves
        ([5, 5], [0.7, 0.7], [True, True]),  # equal points stand together
        ([5, 5, 4], [0.7, 0.7, 0.8], [False, False, True]),  # and fall together
        ([5, 6], [0.7, 0.7], [True, False]),  # same accuracy, dearer
        ([5, 5], [0.7, 0.6], [True, False]),  # same cost, worse
        ([1, 2, nan], [0.5, nan, 0.9], [True, False, False]),
    ],
)
def test_frontier(cost, value, expected):
    assert pareto_frontier(cost, value).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=10))
def test_frontier_against_its_definition(points):
    cost, value = [c for c, _ in points], [v for _, v in points]
    expected = [not any((c <= a and v >= b) and (c < a or v > b) for c, v in points) for a, b in points]
    assert pareto_frontier(cost, value).tolist() == expected


def test_hypervolume_by_hand():
    # 0.6 from 10^2 on (4 decades), 0.8 from 10^4 on (2 decades), above a floor of 0.5
    box = {"floor": 0.5, "cheapest": 10.0, "dearest": 1e6}
    assert hypervolume([1e2, 1e4], [0.6, 0.8], **box) == pytest.approx(0.1 * 4 + 0.2 * 2)
    assert hypervolume([1e2, 1e4, 1e5], [0.6, 0.8, 0.7], **box) == pytest.approx(0.8)
    assert hypervolume([0], [0.6], **box) == pytest.approx(0.1 * 5)
    assert hypervolume([1e7], [0.9], **box) == 0
    assert hypervolume([1e2], [0.4], **box) == 0


def test_hypervolume_shares():
    box = {"floor": 0.5, "cheapest": 1.0, "dearest": 1e6}
    shares = hypervolume_shares([1e2, 1e4, 1e5], [0.6, 0.8, 0.7], **box)
    # without the second, the third would still lift the last decade from 0.6 to 0.7
    np.testing.assert_allclose(shares, [0.1 * 2, 0.2 * 2 - 0.1 * 1, 0], atol=1e-12)
    np.testing.assert_allclose(hypervolume_shares([1e2, 1e2], [0.6, 0.6], **box), [0, 0], atol=1e-12)


def test_hypervolume_needs_a_box():
    with pytest.raises(ValueError, match="cheapest"):
        hypervolume([1], [1], floor=0, cheapest=0, dearest=10)


def test_cost_to_target():
    rounds, cost, accuracy = [0, 1, 2, 3], [0, 10, 20, 30], [0.5, nan, 0.7, 0.6]
    assert cost_to_target(rounds, cost, accuracy, 0.7) == (2.0, 20.0)
    assert cost_to_target(rounds, cost, accuracy, 0.4) == (0.0, 0.0)
    assert all(map(isnan, cost_to_target(rounds, cost, accuracy, 0.9)))
    assert all(map(isnan, cost_to_target(rounds, cost, accuracy, inf)))
