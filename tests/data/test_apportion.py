import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.data.apportion import apportion
from fedbench.randomness import stream

weights_and_total = st.tuples(st.lists(st.integers(0, 50), min_size=1, max_size=12).filter(any), st.integers(0, 200))


@given(weights_and_total)
def test_each_part_is_its_quota_rounded(case):
    weights, total = case
    parts = apportion(np.array(weights), total, stream(0, "test"))
    quota = total * np.array(weights) / sum(weights)
    assert parts.sum() == total
    assert (np.abs(parts - quota) < 1 + 1e-9).all()
    assert (parts[np.array(weights) == 0] == 0).all()


def test_largest_remainders_win():
    assert apportion(np.array([0.5, 0.3, 0.2]), 4, stream(0, "test")).tolist() == [2, 1, 1]


@given(weights_and_total, st.data())
def test_limits_are_kept_and_the_rest_goes_elsewhere(case, data):
    weights, total = case
    most = np.array(data.draw(st.lists(st.integers(0, 60), min_size=len(weights), max_size=len(weights))))
    room = int(most[np.array(weights) > 0].sum())
    if room < total:
        with pytest.raises(ValueError, match="do not fit"):
            apportion(np.array(weights), total, stream(0, "test"), most)
    else:
        parts = apportion(np.array(weights), total, stream(0, "test"), most)
        assert parts.sum() == total
        assert (parts <= most).all()


def test_ties_are_drawn_not_given_to_the_first():
    winners = {int(apportion(np.ones(4), 1, stream(seed, "test")).argmax()) for seed in range(40)}
    assert winners == {0, 1, 2, 3}
