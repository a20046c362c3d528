"""Feature and label skew: the "dom-0.1" setting of the FedSDG paper."""

from __future__ import annotations

import numpy as np

from fedbench.options import PositiveFloat, PositiveInt, options
from fedbench.partition._dealing import Counts, DirichletOptions, clients_of_domains, deal_dirichlet
from fedbench.partition.scheme import Draw, Pool
from fedbench.registry import PARTITION_SCHEMES


@options
class DomainDirichletOptions(DirichletOptions):
    """How each class of a domain is divided among the domain's clients."""

    alpha: PositiveFloat
    """How even the label shares are inside each domain: less is more skewed (alpha)."""
    counts: Counts = "proportional"
    """How shares become numbers of samples, as in `dirichlet`."""
    clients_per_domain: dict[str, PositiveInt] | None = None
    """Clients of each domain by its name; equally divided where not given."""


@PARTITION_SCHEMES.register("domain-dirichlet", DomainDirichletOptions)
def domain_dirichlet(options: DomainDirichletOptions, pool: Pool, clients: int, rng: np.random.Generator) -> Draw:
    """Clients are divided over domains; inside a domain each class is divided by Dir(alpha)."""
    bound = clients_of_domains(pool, clients, options.clients_per_domain)
    owner = np.empty(len(pool), dtype=np.int64)
    for number in np.unique(bound):
        samples = np.flatnonzero(pool.domains == number)
        owner[samples] = deal_dirichlet(pool.labels, samples, np.flatnonzero(bound == number), options, rng)
    return Draw(owner, domains=bound)
