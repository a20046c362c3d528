"""From Dirichlet shares to numbers of samples: cut in proportion, or drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbench.config.reading import parse_entry
from fedbench.config.spec import digest, plain
from fedbench.partition._dealing import deal_dirichlet, proportional
from fedbench.registry import PARTITION_SCHEMES

DIRICHLET = ["dirichlet", "domain-dirichlet", "global-dirichlet"]


class Given(np.random.Generator):
    """A generator whose Dirichlet shares are given, and whose multinomial counts show what was asked of it."""

    def __init__(self, shares):
        super().__init__(np.random.PCG64(0))
        self.shares, self.asked = np.array(shares), []

    def dirichlet(self, alpha):
        assert len(alpha) == len(self.shares)
        return self.shares

    def multinomial(self, samples, shares):
        self.asked.append((samples, shares.tolist()))
        return np.array([0, 1, samples - 1])


def options(**chosen):
    return PARTITION_SCHEMES.parse("dirichlet", {"alpha": 0.5, **chosen}, "here")


def test_cut_by_hand():
    # cumulative shares of 10 samples: 2.5, 3.9, 10 -> cuts at 2 and 3
    assert proportional(np.array([0.25, 0.14, 0.61]), 10).tolist() == [2, 1, 7]
    # a share of less than a sample gets one where a whole number lies within it: 0.6, 1.2, 1.8, 4
    assert proportional(np.array([0.15, 0.15, 0.15, 0.55]), 4).tolist() == [0, 1, 0, 3]
    assert proportional(np.array([1.0]), 7).tolist() == [7]
    assert proportional(np.array([0.0, 1.0, 0.0]), 7).tolist() == [0, 7, 0]


def test_each_class_is_cut_or_drawn_by_its_own_shares():
    labels = np.repeat([0, 1], [10, 4])
    for counts, expected in (("proportional", [[2, 1, 7], [1, 0, 3]]), ("multinomial", [[0, 1, 9], [0, 1, 3]])):
        rng = Given([0.25, 0.14, 0.61])
        owner = deal_dirichlet(labels, np.arange(14), [4, 5, 6], options(counts=counts), rng)
        found = [np.bincount(owner[labels == label], minlength=7)[4:].tolist() for label in (0, 1)]
        assert found == expected
        assert rng.asked == ([] if counts == "proportional" else [(10, [0.25, 0.14, 0.61]), (4, [0.25, 0.14, 0.61])])


@given(st.integers(1, 50), st.integers(0, 1000), st.integers(0, 2**32))
def test_cuts_give_everything_away_and_are_off_by_less_than_one(clients, samples, seed):
    shares = np.random.default_rng(seed).dirichlet(np.full(clients, 0.3))
    counts = proportional(shares, samples)
    assert counts.sum() == samples
    assert (counts >= 0).all()
    assert np.abs(counts - shares * samples).max() < 1 + 1e-9


def test_clients_hold_as_many_classes_as_in_public_code(make, make_store):
    """CIFAR-100's size, 100 clients at alpha 0.1: about 36.4 classes per client, and 33.0 where samples are drawn."""
    store = make_store(train=50_000, test=10_000, classes=100, domains=1)
    held = {}
    for counts in ("proportional", "multinomial"):
        partition = make(store, scheme="dirichlet", clients=100, alpha=0.1, counts=counts)
        held[counts] = (np.array(partition.meta["counts"]) > 0).sum(axis=1).mean()
    assert held == {"proportional": pytest.approx(36.2, abs=0.8), "multinomial": pytest.approx(33.0, abs=0.8)}


@pytest.mark.parametrize("scheme", DIRICHLET)
def test_proportional_is_the_default_and_both_have_their_own_digest(make, make_store, scheme):
    keys = {"scheme": scheme, "clients": 8, "alpha": 0.5}
    store = make_store()
    default, cut, drawn = (
        make(store, **keys, **more) for more in ({}, {"counts": "proportional"}, {"counts": "multinomial"})
    )
    assert default.sha256 == cut.sha256 != drawn.sha256
    digests = [
        digest(plain(parse_entry("partitions", "mine", {**keys, "counts": counts})))
        for counts in ("proportional", "multinomial")
    ]
    assert digests[0] != digests[1]


@pytest.mark.parametrize("counts", ["proportional", "multinomial"])
def test_limits_of_alpha(counts):
    """The largest alphas are equal shares, the smallest one client per class; neither is an overflow."""
    labels = np.repeat([0, 1], 400)
    equal = deal_dirichlet(
        labels, np.arange(800), range(4), options(alpha=1e308, counts=counts), np.random.default_rng(0)
    )
    assert np.bincount(equal[labels == 0], minlength=4) == pytest.approx(100, abs=40 if counts == "multinomial" else 1)
    one = deal_dirichlet(
        labels, np.arange(800), range(4), options(alpha=5e-324, counts=counts), np.random.default_rng(0)
    )
    assert all(len(np.unique(one[labels == label])) == 1 for label in (0, 1))
