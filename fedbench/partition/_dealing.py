"""Building blocks that several schemes share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedbench.errors import FedbenchError
from fedbench.options import PositiveFloat, options
from fedbench.partition.scheme import Pool

# Beyond these a Dirichlet distribution cannot be told from its limit (one client takes all; equal shares), and the
# generator's gamma variates leave the range of float64.
SMALLEST_ALPHA, LARGEST_ALPHA = 1e-100, 1e100


Counts = Literal["proportional", "multinomial"]


@options
class DirichletOptions:
    """How each class is divided among clients."""

    alpha: PositiveFloat
    """How even the clients' label shares are: less is more skewed; 0.1 is strong skew, 100 is close to iid (alpha)."""
    counts: Counts = "proportional"
    """How shares of a class become numbers of samples: cut in proportion, at the floor of the cumulative shares, as
    FL-bench and NIID-Bench do; or drawn sample by sample, so that small shares more often get none."""


def deal_dirichlet(
    labels: np.ndarray,
    samples: np.ndarray,
    clients: Sequence[int],
    options: DirichletOptions,
    rng: np.random.Generator,
) -> np.ndarray:
    """Deal samples class by class: q ~ Dir(alpha) over the clients, then counts by these shares.

    Parameters
    ----------
    labels : int64 [n], of the whole pool
    samples : int64 [m], positions in the pool to deal
    clients : who takes part
    options : alpha, and what becomes of shares

    Returns
    -------
    int64 [m], the client of each of `samples`
    """
    clients = np.asarray(clients, dtype=np.int64)
    result = np.empty(len(samples), dtype=np.int64)
    for label in np.unique(labels[samples]):
        places = rng.permutation(np.flatnonzero(labels[samples] == label))
        shares = rng.dirichlet(np.full(len(clients), np.clip(options.alpha, SMALLEST_ALPHA, LARGEST_ALPHA)))
        if options.counts == "proportional":
            counts = proportional(shares, len(places))
        else:
            counts = rng.multinomial(len(places), shares / shares.sum())
        result[places] = np.repeat(clients, counts)
    return result


def proportional(shares: np.ndarray, samples: int) -> np.ndarray:
    """Cut `samples` samples at the floor of the cumulative shares [K], which sum to one; returns counts, int64 [K]."""
    cuts = np.floor(np.cumsum(shares)[:-1] * samples).astype(np.int64)
    return np.diff(np.minimum(cuts, samples), prepend=0, append=samples)


def deal_evenly(samples: int, clients: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Deal `samples` samples at random in equal numbers (within one); returns the client of each, int64."""
    order = np.resize(rng.permutation(np.asarray(clients, dtype=np.int64)), samples)
    return rng.permutation(order)


def clients_of_domains(pool: Pool, clients: int, wanted: dict[str, int] | None = None) -> np.ndarray:
    """Bind clients to domains, in the order of the domains; returns int64 [K].

    Equally (the first domains get one more where it does not come out even), or as `wanted` says for every domain.

    Raises
    ------
    FedbenchError
        If a domain would be left without a client, or `wanted` does not fit the domains or the number of clients.
    """
    domains = pool.require_domains()
    if wanted is None:
        if clients < len(domains):
            raise FedbenchError(
                f"{pool.where}.clients: {clients} clients for {len(domains)} domains; every domain needs a client"
            )
        counts = [len(part) for part in np.array_split(np.arange(clients), len(domains))]
    else:
        names = [pool.domain_names[domain] for domain in domains]
        path = f"{pool.where}.clients_per_domain"
        if set(wanted) != set(names):
            wrong = sorted(set(wanted) ^ set(names))[0]
            problem = "is no domain of" if wrong in wanted else "is missing, but is a domain of"
            raise FedbenchError(f"{path}: {wrong!r} {problem} the clients' data; name each of {', '.join(names)}")
        counts = [wanted[name] for name in names]
        if sum(counts) != clients:
            raise FedbenchError(f"{path}: adds up to {sum(counts)}, but 'clients' is {clients}; make them equal")
    return np.repeat(domains, counts)
