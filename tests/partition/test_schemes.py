"""What makes each scheme what it is."""

import numpy as np
import pytest

from fedbench.errors import FedbenchError


def sizes(partition):
    return np.array([len(a) + len(b) for a, b in zip(partition.train, partition.validation, strict=True)])


def test_iid_is_equal_in_size_and_close_in_labels(make, make_store, counts_of):
    store = make_store(train=5000)
    partition = make(store, scheme="iid", clients=7)
    assert np.ptp(sizes(partition)) <= 1
    assert np.abs(counts_of(partition, store) / (5000 / 70) - 1).max() < 0.5


def test_dirichlet_is_more_skewed_the_smaller_alpha(make, make_store):
    store = make_store(train=3000, test=600)
    distances = [
        make(store, scheme="dirichlet", clients=10, alpha=alpha, min_samples=2).meta["statistics"][
            "jensen_shannon_mean"
        ]
        for alpha in (0.05, 0.5, 5, 500)
    ]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 0.6
    assert distances[-1] < 0.15


def test_very_small_alpha_still_gives_everyone_enough(make, make_store):
    partition = make(make_store(), scheme="dirichlet", clients=20, alpha=1e-4, min_samples=15, max_moved=0.3)
    assert sizes(partition).min() == 15
    assert partition.meta["moved_by_repair"] > 0


@pytest.mark.parametrize("scheme", ["domain", "domain-dirichlet"])
def test_domain_bound_clients_hold_one_domain_in_every_split(make, make_store, scheme):
    store = make_store()
    more = {"alpha": 0.05, "min_samples": 20} if scheme == "domain-dirichlet" else {}
    partition = make(store, scheme=scheme, clients=10, **more)
    for client, domain in enumerate(partition.client_domains):
        for part in (partition.train, partition.validation, partition.test):
            assert set(store.domains[part[client]]) == {domain}
    assert np.bincount(partition.client_domains).tolist() == [3, 3, 2, 2]
    assert partition.meta["single_domain_clients"]


def test_clients_per_domain(make, make_store):
    wanted = {"domain0": 1, "domain1": 5, "domain2": 2, "domain3": 2}
    keys = {"scheme": "domain-dirichlet", "alpha": 0.5, "clients": 10}
    partition = make(make_store(), **keys, clients_per_domain=wanted)
    assert np.bincount(partition.client_domains).tolist() == [1, 5, 2, 2]
    with pytest.raises(FedbenchError, match="'domain3' is missing, but is a domain of"):
        make(make_store(), **keys, clients_per_domain=dict.fromkeys(list(wanted)[:3], 1))
    with pytest.raises(FedbenchError, match="'domainX' is no domain of"):
        make(make_store(), **keys, clients_per_domain={**wanted, "domainX": 1})
    with pytest.raises(FedbenchError, match="adds up to 10, but 'clients' is 11"):
        make(make_store(), **{**keys, "clients": 11}, clients_per_domain=wanted)


def test_fewer_clients_than_domains(make, make_store):
    with pytest.raises(FedbenchError, match="3 clients for 4 domains"):
        make(make_store(), scheme="domain", clients=3)


def test_global_dirichlet_mixes_domains(make, make_store):
    store = make_store()
    partition = make(store, scheme="global-dirichlet", clients=5, alpha=0.5)
    assert all(len(np.unique(store.domains[part])) == 4 for part in partition.train)
    assert not partition.meta["single_domain_clients"]


@pytest.mark.parametrize("each", [1, 2, 3, 10])
def test_pathological_clients_hold_exactly_that_many_classes(make, make_store, counts_of, each):
    store = make_store()
    counts = counts_of(make(store, scheme="pathological", clients=12, classes_per_client=each), store)
    assert ((counts > 0).sum(axis=1) == each).all()
    holders = (counts > 0).sum(axis=0)
    assert np.ptp(holders) <= 1
    for label in range(10):
        assert np.ptp(counts[counts[:, label] > 0, label]) <= 1


def test_pathological_repair_keeps_to_the_classes(make, make_store, counts_of):
    store = make_store(train=1200, classes=10)
    store.labels[(store.labels == 9) & (np.arange(len(store.labels)) < 1100)] = 8  # class 9 is left with 10 samples
    partition = make(store, scheme="pathological", clients=10, classes_per_client=2, min_samples=80)
    counts = counts_of(partition, store)
    assert ((counts > 0).sum(axis=1) <= 2).all()
    assert sizes(partition).min() >= 80
    assert partition.meta["moved_by_repair"] > 0


def test_pathological_limits(make, make_store):
    with pytest.raises(FedbenchError, match="11 classes per client, but there are 10"):
        make(make_store(), scheme="pathological", clients=4, classes_per_client=11)
    with pytest.raises(FedbenchError, match="4 clients with 2 classes each cannot hold all 10 classes"):
        make(make_store(), scheme="pathological", clients=4, classes_per_client=2)


def test_repair_that_the_scheme_does_not_allow_names_the_constraint(make, make_store):
    store = make_store(train=1200)
    train = np.flatnonzero((store.splits == 0) & (store.labels == 0))
    store.labels[train[:60]] = 1
    # One class each: nobody else holds class 0, so its client stays at 60.
    with pytest.raises(
        FedbenchError, match=r"mine\.min_samples: client \d has 60 training samples and no other client"
    ):
        make(store, scheme="pathological", clients=10, classes_per_client=1, min_samples=100)


def test_quantity_clients_differ_in_size_not_in_labels(make, make_store, counts_of):
    store = make_store(train=6000, test=900)
    equal, spread = (make(store, scheme="quantity", clients=10, sigma=sigma) for sigma in (0, 1.5))
    assert np.ptp(sizes(equal)) == 0
    largest = counts_of(spread, store)[sizes(spread).argmax()]
    assert np.abs(largest / largest.mean() - 1).max() < 0.3
    make(store, scheme="quantity", clients=10, sigma=500)  # exp(500 * 3) would overflow


def test_natural_clients_keep_their_own_samples_in_every_split(make, make_store):
    store = make_store(groups=6)
    partition = make(store, scheme="natural", clients=6)
    for client in range(6):
        for part in (partition.train, partition.validation, partition.test):
            assert set(store.groups[part[client]]) == {client}


def test_natural_errors(make, make_store):
    with pytest.raises(FedbenchError, match="does not say which client"):
        make(make_store(), scheme="natural", clients=4)
    store = make_store(groups=6)
    with pytest.raises(FedbenchError, match=r"clients: 4, but the data have 6 clients"):
        make(store, scheme="natural", clients=4)
    store.groups[0] = 6  # a client with one sample
    with pytest.raises(FedbenchError, match="natural client 6 has 1 training samples, fewer than 2"):
        make(store, scheme="natural", clients=7, min_samples=2)
    store.groups[:20] = 6
    with pytest.raises(FedbenchError, match="natural client 6 has no test sample"):
        make(store, scheme="natural", clients=7)
    store.groups[np.flatnonzero(store.splits == 1)[0]] = 7
    with pytest.raises(FedbenchError, match="natural client 7 has test samples but no training samples"):
        make(store, scheme="natural", clients=7)
