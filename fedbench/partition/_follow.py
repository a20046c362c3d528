"""What follows from an assignment of training samples: each client's test and validation samples."""

from __future__ import annotations

import numpy as np

from fedbench.data.apportion import apportion
from fedbench.errors import FedbenchError
from fedbench.randomness import stream


def assign_tests(
    counts: np.ndarray,
    labels: np.ndarray,
    domains: np.ndarray | None,
    bound: np.ndarray | None,
    seed: int,
    where: str,
    domain_names: tuple[str, ...] = (),
) -> np.ndarray:
    """Give every test sample to a client, in proportion to the clients' training samples.

    Class by class (and, where clients are bound to domains, domain by domain), the test samples are divided by the
    largest-remainder method. A (domain, class) that no client trains on is divided by the clients' sizes. Clients that
    come out without a test sample then get one, of a class that they train on, from the client that has most of it.

    Parameters
    ----------
    counts : int [K, C], training samples of each client and class
    labels, domains : int64 [m], of the test samples
    bound : int64 [K], domain of each client, or None where clients are not bound to domains
    seed : of the partition
    domain_names : of all domains, where clients are bound to them

    Returns
    -------
    int64 [m], client of each test sample

    Raises
    ------
    FedbenchError
        If there are fewer test samples than clients, or none that a client without any could get.
    """
    clients, classes = counts.shape
    if len(labels) < clients:
        raise FedbenchError(
            f"{where}.clients: {clients} clients but {len(labels)} test samples, so some clients could not be "
            "evaluated; ask for fewer clients or use a larger test split"
        )
    rng = stream(seed, "partition-test")
    owner = np.full(len(labels), -1, dtype=np.int64)
    for domain in [None] if bound is None else np.unique(domains):
        inside = np.ones(clients, dtype=bool) if domain is None else bound == domain
        if not inside.any():
            raise FedbenchError(f"{where}: domain {domain_names[domain]!r} has test samples but no training samples")
        for label in range(classes):
            mask = labels == label if domain is None else (labels == label) & (domains == domain)
            samples = rng.permutation(np.flatnonzero(mask))
            weights = np.where(inside, counts[:, label], 0)
            if not weights.any():
                weights = np.where(inside, counts.sum(axis=1), 0)
            owner[samples] = np.repeat(np.arange(clients), apportion(weights, len(samples), rng))
    _give_everyone_one(owner, counts, labels, domains, bound, where)
    return owner


def _give_everyone_one(owner, counts, labels, domains, bound, where: str) -> None:
    """Move one test sample to each client without any, in place."""
    clients = len(counts)
    sizes = np.bincount(owner, minlength=clients)
    for client in np.flatnonzero(sizes == 0):
        fitting = (counts[client] > 0)[labels] & (sizes > 1)[owner]
        if bound is not None:
            fitting &= domains == bound[client]
        if not fitting.any():
            raise FedbenchError(
                f"{where}.clients: client {client} gets no test sample, and no other client has one to spare of the "
                "classes that it trains on; ask for fewer clients or use a larger test split"
            )
        donor = np.argmax(np.bincount(owner[fitting], minlength=clients))
        owner[np.flatnonzero(fitting & (owner == donor))[0]] = client
        sizes[donor] -= 1
        sizes[client] += 1


def natural_tests(
    groups: np.ndarray, owner: np.ndarray, test_groups: np.ndarray, names: tuple[str, ...], where: str
) -> np.ndarray:
    """Leave every test sample with its natural client.

    Parameters
    ----------
    groups, owner : int64 [n], natural group and client of each training sample
    test_groups : int64 [m], natural group of each test sample
    names : of the groups

    Returns
    -------
    int64 [m], client of each test sample
    """
    client_of = np.full(int(max(groups.max(), test_groups.max())) + 1, -1, dtype=np.int64)
    client_of[groups] = owner
    owners = client_of[test_groups]
    strangers = np.unique(test_groups[owners < 0])
    if len(strangers):
        raise FedbenchError(
            f"{where}: natural client {names[strangers[0]]} has test samples but no training samples; "
            "remove it from the data"
        )
    without = groups[~np.isin(owner, owners)]
    if len(without):
        raise FedbenchError(
            f"{where}: natural client {names[without.min()]} has no test sample; "
            "add one, or remove that client from the data"
        )
    return owners


def split_validation(samples: np.ndarray, share: float, seed: int, client: int) -> tuple[np.ndarray, np.ndarray]:
    """Set a client's validation samples aside, once and for all rounds.

    Parameters
    ----------
    samples : int64 [n], the client's training samples, n >= 2
    share : round(share * n) are set aside, but at least one, and at least one stays; 0 sets none aside

    Returns
    -------
    sorted training and validation samples
    """
    if share == 0:
        return np.sort(samples), np.zeros(0, dtype=np.int64)
    size = min(max(round(share * len(samples)), 1), len(samples) - 1)
    mixed = stream(seed, "partition-validation", client).permutation(np.sort(samples))
    return np.sort(mixed[size:]), np.sort(mixed[:size])
