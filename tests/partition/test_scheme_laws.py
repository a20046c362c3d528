"""The distributions that schemes draw from: their moments, worked out by hand."""

import numpy as np
import pytest
from small_partitions import partition_of, small_store

from fedbench.partition._dealing import deal_evenly
from fedbench.partition.quantity import QuantityOptions, quantity
from fedbench.partition.scheme import Pool
from fedbench.randomness import stream

CLIENTS, PER_CLASS = 5, 2000


@pytest.fixture(scope="module")
def shares():
    """A function: shares of each class that clients hold in 60 partitions, [60, clients, classes]."""
    made = {}

    def get(alpha, classes):
        if (alpha, classes) not in made:
            store = small_store(train=PER_CLASS * classes, test=100 * classes, classes=classes, domains=1, public=0)
            keys = {"scheme": "dirichlet", "clients": CLIENTS, "alpha": alpha, "min_samples": 2}
            counts = [partition_of(store, seed, **keys).meta["counts"] for seed in range(60)]
            made[alpha, classes] = np.array(counts) / PER_CLASS
        return made[alpha, classes]

    return get


def test_each_class_is_divided_over_clients(shares):
    """Of one class alone a client's share is Dir(alpha): mean 1/K, variance (1/K)(1 - 1/K) / (alpha K + 1).

    Proportions over classes, drawn for each client, would give every client the same share of the only class.
    """
    found = shares(1.0, 1)[:, :, 0]
    np.testing.assert_allclose(found.sum(1), 1)
    variance = 0.2 * 0.8 / (1.0 * CLIENTS + 1)
    # the mean of 60 draws, four of its standard deviations
    np.testing.assert_allclose(found.mean(0), 0.2, atol=4 * (variance / 60) ** 0.5)
    assert found.var() == pytest.approx(variance, rel=0.3)


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_spread_follows_alpha(shares, alpha):
    variance = 0.2 * 0.8 / (alpha * CLIENTS + 1)
    assert shares(alpha, 4).var() == pytest.approx(variance, rel=0.2)


def test_classes_are_divided_independently(shares):
    """A client's share of one class says nothing about its share of another."""
    found = shares(0.5, 4) - 1 / CLIENTS
    covariance = np.mean([found[:, :, a] * found[:, :, b] for a in range(4) for b in range(a)])
    assert abs(covariance) < 0.15 * found.var()


def test_which_samples_of_a_class_a_client_gets_is_drawn(make, make_store):
    """Dealt in the order of the data, the first client would have the first images of each class."""
    store = make_store(train=4000, test=400, classes=4, domains=1, public=0)
    partition = make(store, scheme="dirichlet", clients=2, alpha=50.0, validation=0.0)
    sizes = np.array([len(own) for own in partition.train])
    means = np.array([own.mean() for own in partition.train])
    # 4000 positions with mean 1999.5 and deviation 1155; a client has n of them without replacement
    deviations = 1155 / np.sqrt(sizes) * np.sqrt(1 - sizes / 4000)
    assert (abs(means - 1999.5) < 5 * deviations).all()


def pool_of(samples):
    zeros = np.zeros(samples, np.int64)
    return Pool(zeros, zeros, None, ("one",), ("all",), "partitions.mine")


@pytest.mark.parametrize("sigma", [0.3, 0.9])
def test_logarithms_of_sizes_are_normal_with_deviation_sigma(sigma):
    clients = 4000
    drawn = quantity(QuantityOptions(sigma=sigma), pool_of(400 * clients), clients, stream(0, "test"))
    logarithms = np.log(np.bincount(drawn.clients, minlength=clients))
    assert logarithms.std() == pytest.approx(sigma, rel=0.05)
    # a normal distribution has 68.3 % within one deviation of its centre and 95.4 % within two
    distance = np.abs(logarithms - np.median(logarithms)) / sigma
    assert (distance < 1).mean() == pytest.approx(0.683, abs=0.03)
    assert (distance < 2).mean() == pytest.approx(0.954, abs=0.02)


def test_quantity_gives_samples_at_random():
    drawn = quantity(QuantityOptions(sigma=0.0), pool_of(4000), 4, stream(0, "test"))
    first_half = np.bincount(drawn.clients[:2000], minlength=4)
    assert abs(first_half - 500).max() < 5 * 19.4  # binomial(2000, 1/4)


def test_equal_parts_are_random_samples():
    """Also where samples lie class by class, or classes in turn: no client gets a class for its position."""
    owner = deal_evenly(10_000, range(10), stream(0, "test"))
    assert np.bincount(owner).tolist() == [1000] * 10
    for labels in (np.arange(10_000) % 10, np.arange(10_000) // 1000):
        counts = np.zeros((10, 10))
        np.add.at(counts, (owner, labels), 1)
        assert abs(counts - 100).max() < 5 * 9.5  # nearly binomial(1000, 1/10)


@pytest.mark.parametrize("scheme", ["dirichlet", "domain-dirichlet", "global-dirichlet"])
def test_every_scheme_of_the_family_uses_its_alpha(make, make_store, scheme):
    """Per class (of a domain) the share of one of K clients has variance (1/K)(1 - 1/K) / (alpha K + 1)."""
    classes, bound = 4, scheme == "domain-dirichlet"
    store = make_store(train=8000, test=800, classes=classes, domains=2, public=0)
    clients, variances = 4 if bound else 3, []
    for seed in range(50):
        partition = make(store, seed, scheme=scheme, clients=clients, alpha=1.0, min_samples=2)
        counts = np.array(partition.meta["counts"])
        for group in ([0, 1], [2, 3]) if bound else ([0, 1, 2],):
            shares = counts[group] / counts[group].sum(0)
            variances.append(((shares - 1 / len(group)) ** 2).mean())
    expected = 0.5 * 0.5 / (2 + 1) if bound else (1 / 3) * (2 / 3) / (3 + 1)
    assert np.mean(variances) == pytest.approx(expected, rel=0.2)


def test_pathological_clients_share_classes_with_different_others(make, make_store):
    """Which classes go together is drawn: a fixed order would give the same pairs again and again."""
    counts = np.array(make(make_store(), scheme="pathological", clients=20, classes_per_client=2).meta["counts"])
    pairs = {tuple(np.flatnonzero(row)) for row in counts}
    assert len(pairs) > 8


def test_classes_with_one_holder_more_are_drawn(make, make_store):
    """12 clients with 2 of 10 classes: four classes have three holders, and not always the same four."""
    fuller = set()
    for seed in range(5):
        keys = {"scheme": "pathological", "clients": 12, "classes_per_client": 2}
        holders = (np.array(make(make_store(), seed, **keys).meta["counts"]) > 0).sum(axis=0)
        assert sorted(holders) == [2] * 6 + [3] * 4
        fuller.add(tuple(np.flatnonzero(holders == 3)))
    assert len(fuller) > 2
