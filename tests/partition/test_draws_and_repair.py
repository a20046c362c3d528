"""Bounded draws and their repair, by hand: which draw is kept, who gives, what moves."""

import numpy as np
import pytest

from fedbench.errors import FedbenchError
from fedbench.partition._follow import assign_tests, split_validation
from fedbench.partition._statistics import jensen_shannon, skew
from fedbench.partition.scheme import DRAWS, Draw, Pool, draw, repair
from fedbench.randomness import stream


def pool_of(samples, labels=None, domains=None):
    zeros = np.zeros(samples, np.int64)
    labels, domains = (zeros if given is None else np.array(given) for given in (labels, domains))
    return Pool(labels, domains, None, ("a", "b"), ("x", "y"), "partitions.mine")


def scripted(*sizes):
    """A scheme whose n-th draw gives the clients `sizes[n]` samples; it keeps the streams that it was given."""
    numbers = []

    def scheme(options, pool, clients, rng):
        numbers.append(rng.random())
        return Draw(np.repeat(np.arange(clients), sizes[min(len(numbers), len(sizes)) - 1]))

    return scheme, numbers


def test_the_first_draw_that_is_large_enough_counts():
    scheme, numbers = scripted((1, 9), (4, 6), (5, 5))
    drawn, draws, moved = draw(scheme, None, pool_of(10), 2, 4, 7, "mine")
    assert (np.bincount(drawn.clients).tolist(), draws, moved) == ([4, 6], 2, 0)
    assert numbers == [stream(7, "partition", "mine", number).random() for number in (1, 2)]
    assert numbers[0] != numbers[1], "another draw, not the same one again"


def test_the_draw_whose_smallest_client_is_largest_is_repaired():
    scheme, numbers = scripted((0, 10), (1, 9), (3, 7), (2, 8), (3, 7), (1, 9))
    drawn, draws, moved = draw(scheme, None, pool_of(10), 2, 4, 0, "mine")
    assert DRAWS == draws == len(numbers) == 10
    assert np.bincount(drawn.clients).tolist() == [4, 6]
    assert moved == 1, "from (3, 7); the worst draw would have needed four"


def test_natural_clients_are_drawn_once():
    scheme, numbers = scripted((5, 5))
    drawn, draws, _ = draw(lambda *a: Draw(scheme(*a).clients, names=("a", "b")), None, pool_of(10), 2, 4, 0, "mine")
    assert (draws, len(numbers)) == (1, 1)
    assert not drawn.movable


def test_the_largest_client_gives_and_nobody_falls_below_the_limit():
    drawn = Draw(np.repeat([0, 1, 2, 3], [5, 9, 1, 7]))
    before = drawn.clients.copy()
    assert repair(drawn, pool_of(22), 4, 5, stream(0, "test")) == 4
    # client 1 gives until it equals client 3: 9 8 7 -> 6, then the first of the two
    assert np.bincount(drawn.clients).tolist() == [5, 6, 5, 6]
    assert (drawn.clients != before).sum() == 4
    assert set(drawn.clients[drawn.clients != before]) == {2}


def test_a_client_at_the_limit_gives_nothing():
    """Client 0 lacks one sample of domain 0; the only other client there has just enough itself."""
    domains = np.repeat([0, 1, 0], [3, 30, 4])
    drawn = Draw(np.repeat([0, 1, 2], [3, 30, 4]), domains=np.array([0, 1, 0]))
    with pytest.raises(FedbenchError, match="client 0 has 3 training samples and no other client can give it one"):
        repair(drawn, pool_of(37, domains=domains), 3, 4, stream(0, "test"))


def test_given_samples_are_drawn_not_the_first():
    moved = []
    for seed in range(20):
        drawn = Draw(np.repeat([0, 1], [1, 20]))
        repair(drawn, pool_of(21), 2, 2, stream(seed, "test"))
        moved.append(int(np.flatnonzero(drawn.clients[1:] == 0)[0]))
    assert len(set(moved)) > 5


def test_repair_keeps_to_domains_and_classes():
    # client 0 may hold domain 0 only: client 1 has more, but only client 2 has samples of that domain
    domains = np.repeat([0, 1, 0], [1, 30, 9])
    drawn = Draw(np.repeat([0, 1, 2], [1, 30, 9]), domains=np.array([0, 1, 0]))
    assert repair(drawn, pool_of(40, domains=domains), 3, 4, stream(0, "test")) == 3
    assert np.bincount(drawn.clients).tolist() == [4, 30, 6]
    labels = np.repeat([0, 1, 0], [1, 30, 9])
    allowed = np.array([[True, False], [False, True], [True, False]])
    drawn = Draw(np.repeat([0, 1, 2], [1, 30, 9]), classes=allowed)
    repair(drawn, pool_of(40, labels=labels), 3, 4, stream(0, "test"))
    assert np.bincount(drawn.clients).tolist() == [4, 30, 6]


def test_a_class_that_nobody_trains_on_is_tested_by_size():
    counts = np.array([[30, 0], [10, 0]])
    owner = assign_tests(counts, np.repeat([0, 1], [4, 8]), None, None, 0, "here")
    assert np.bincount(owner[:4]).tolist() == [3, 1]
    assert np.bincount(owner[4:]).tolist() == [6, 2]


def test_test_samples_are_drawn_inside_a_class():
    counts, labels = np.array([[50], [50]]), np.zeros(200, np.int64)
    owners = [assign_tests(counts, labels, None, None, seed, "here") for seed in (0, 1)]
    for owner in owners:
        assert np.bincount(owner).tolist() == [100, 100]
        assert abs(owner[:100].sum() - 50) < 5 * 3.6  # hypergeometric: standard deviation 3.6
    assert (owners[0] != owners[1]).any(), "another seed, other samples"


def test_the_client_with_most_of_it_gives_a_test_sample():
    # of class 0 client 0 gets 6 test samples and client 1 three; client 2 is too small for one
    counts = np.array([[1000, 0, 0], [500, 0, 0], [1, 0, 0], [0, 500, 500]])
    labels = np.repeat([0, 1, 2], [9, 2, 2])
    owner = assign_tests(counts, labels, None, None, 0, "here")
    assert np.bincount(owner).tolist() == [5, 3, 1, 4]
    assert labels[owner == 2].tolist() == [0]


def test_a_test_sample_is_given_inside_a_domain():
    # clients 0 and 1 share domain 0, clients 2 and 3 domain 1; client 1 comes out without a test sample
    counts = np.array([[1000], [1], [500], [500]])
    domains = np.repeat([0, 1], [4, 20])
    owner = assign_tests(counts, np.zeros(24, np.int64), domains, np.array([0, 0, 1, 1]), 0, "here")
    assert np.bincount(owner).tolist() == [3, 1, 10, 10]
    assert domains[owner == 1].tolist() == [0]


def test_validation_samples_are_drawn_at_random():
    """Where a client's samples lie class by class, taking the first ones would leave classes out."""
    samples = np.arange(1000)
    held = {key: split_validation(samples, 0.2, *key)[1] for key in ((0, 1), (0, 2), (5, 1))}
    for chosen in held.values():
        assert len(chosen) == 200
        # mean 499.5; a mean of 200 of 1000 has standard deviation 289 / sqrt(200) * sqrt(0.8) = 18.3
        assert abs(chosen.mean() - 499.5) < 5 * 18.3
    assert (held[0, 1] != held[0, 2]).any(), "each client draws its own"
    assert (held[0, 1] != held[5, 1]).any()


def test_skew_of_unequal_clients_by_hand():
    """30 samples of class a at one client, 10 of class b at the other: pooled (3/4, 1/4), weighted by size."""
    statistics = skew(np.array([[30, 0], [0, 10]]))
    pooled = np.array([0.75, 0.25])
    distances = [jensen_shannon(np.array(own), pooled) for own in ([1.0, 0.0], [0.0, 1.0])]
    # M = (7/8, 1/8) and (3/8, 5/8): JS = H(M) - H(3/4, 1/4) / 2 = 0.543564 - 0.405639 and 0.954434 - 0.405639
    assert distances == pytest.approx([0.137925**0.5, 0.548795**0.5], abs=1e-5)
    assert statistics["jensen_shannon_mean"] == pytest.approx(np.mean(distances))
    assert statistics["gini"] == pytest.approx(0.25)
    mixed = skew(np.array([[10, 10], [20, 0], [0, 60]]))
    assert mixed["effective_classes_mean"] == pytest.approx((2 + 1 + 1) / 3)
    assert mixed["effective_classes"] == pytest.approx([2, 1, 1])
    assert mixed["gini"] == pytest.approx((-2 * 20 + 0 * 20 + 2 * 60) / (3 * 100))


def test_a_clients_domain_is_that_of_most_of_its_samples(make, make_store):
    store = make_store(groups=4, domains=2, train=400, test=80, public=0)
    own = np.flatnonzero((store.groups == 1) & (store.splits == 0))
    store.domains[store.groups == 1] = 1
    store.domains[own[:3]] = 0  # its first samples are of the other domain
    partition = make(store, scheme="natural", clients=4)
    assert partition.client_domains[1] == 1
    assert not partition.meta["single_domain_clients"]
