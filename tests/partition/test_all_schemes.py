"""What holds for every registered scheme, whatever the data and the seed."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedbench.data.store import TEST, TRAIN
from fedbench.errors import FedbenchError
from fedbench.partition.partition import check
from fedbench.registry import PARTITION_SCHEMES

# Options that a scheme cannot do without; a new scheme without required options needs no line here.
REQUIRED = {"dirichlet": {"alpha": 0.1}, "global-dirichlet": {"alpha": 0.1}, "domain-dirichlet": {"alpha": 0.1}}
SCHEMES = sorted(PARTITION_SCHEMES)
DETERMINISTIC = {"natural"}


def keys(scheme: str, clients: int, **more) -> dict:
    return {"scheme": scheme, "clients": clients, **REQUIRED.get(scheme, {}), **more}


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    clients=st.integers(4, 25),
    classes=st.integers(2, 12),
    domains=st.integers(2, 4),
    least=st.integers(2, 20),
    validation=st.sampled_from([0.0, 0.01, 0.2, 0.9]),
    seed=st.integers(0, 2**40),
)
def test_disjoint_exhaustive_and_large_enough(
    make, make_store, scheme, clients, classes, domains, least, validation, seed
):
    if scheme == "pathological":
        clients = max(clients, -(-classes // 2))
    store = make_store(classes=classes, domains=domains, groups=clients if scheme == "natural" else 0)
    partition = make(store, seed, **keys(scheme, clients, min_samples=least, max_moved=1.0, validation=validation))
    assert partition.clients == clients == len(partition.client_domains)
    train, held, tests = (np.concatenate(getattr(partition, name)) for name in ("train", "validation", "test"))
    assert sorted([*train, *held]) == np.flatnonzero(store.splits == TRAIN).tolist()  # once each, and no public ones
    assert sorted(tests) == np.flatnonzero(store.splits == TEST).tolist()
    for own, own_held, own_tests in zip(partition.train, partition.validation, partition.test, strict=True):
        total = len(own) + len(own_held)
        assert total >= least
        assert len(own) >= 1
        assert len(own_tests) >= 1
        assert len(own_held) == (0 if validation == 0 else min(max(round(validation * total), 1), total - 1))
        assert all((np.diff(part) > 0).all() for part in (own, own_held, own_tests))
    check(partition, "here", store)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_seed_decides(make, make_store, scheme):
    store = make_store(groups=8)
    first, again, other = (make(store, seed, **keys(scheme, 8)) for seed in (3, 3, 4))
    assert first.sha256 == again.sha256
    assert all((a == b).all() for a, b in zip(first.train, again.train, strict=True))
    assert first.sha256 != other.sha256  # natural clients still draw other validation samples
    same = all(np.array_equal(np.sort(np.r_[a, b]), np.sort(np.r_[c, d])) for a, b, c, d in zip(
        first.train, first.validation, other.train, other.validation, strict=True))  # fmt: skip
    assert same == (scheme in DETERMINISTIC)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_more_clients_than_samples(make, make_store, scheme):
    store = make_store(train=40, test=40, groups=40)
    with pytest.raises(FedbenchError, match=r"partitions\.mine\.clients: 60 clients but 40 training samples"):
        make(store, **keys(scheme, 60))
    with pytest.raises(FedbenchError, match=r"min_samples: 30 clients with at least 2 each need 60 training samples"):
        make(store, **keys(scheme, 30, min_samples=2))


@pytest.mark.parametrize("scheme", sorted(REQUIRED))
@pytest.mark.parametrize("alpha", [0, -0.5, float("nan")])
def test_alpha_must_be_positive(make, make_store, scheme, alpha):
    with pytest.raises(FedbenchError, match=r"partitions\.mine\.alpha"):
        make(make_store(), scheme=scheme, clients=4, alpha=alpha)


@pytest.mark.parametrize("scheme", ["domain", "domain-dirichlet", "global-dirichlet"])
def test_domain_schemes_need_domains(make, make_store, scheme):
    with pytest.raises(FedbenchError, match="needs a data set with domains"):
        make(make_store(domains=1), **keys(scheme, 4))
