"""Feature skew: clients differ in domain, not in labels."""

from __future__ import annotations

import numpy as np

from fedbench.options import options
from fedbench.partition._dealing import clients_of_domains, deal_evenly
from fedbench.partition.scheme import Draw, Pool
from fedbench.registry import PARTITION_SCHEMES


@options
class DomainOptions:
    """`domain` has no options of its own."""


@PARTITION_SCHEMES.register("domain", DomainOptions)
def domain(options: DomainOptions, pool: Pool, clients: int, rng: np.random.Generator) -> Draw:
    """Each client holds one domain; clients are divided over domains equally, samples at random inside each."""
    bound = clients_of_domains(pool, clients)
    owner = np.empty(len(pool), dtype=np.int64)
    for number in np.unique(bound):
        samples = np.flatnonzero(pool.domains == number)
        owner[samples] = deal_evenly(len(samples), np.flatnonzero(bound == number), rng)
    return Draw(owner, domains=bound)
