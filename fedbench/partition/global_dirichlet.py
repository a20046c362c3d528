"""Label skew over all domains at once: the "global-0.1" setting of the FedSDG paper."""

from __future__ import annotations

import numpy as np

from fedbench.partition._dealing import DirichletOptions, deal_dirichlet
from fedbench.partition.scheme import Draw, Pool
from fedbench.registry import PARTITION_SCHEMES


@PARTITION_SCHEMES.register("global-dirichlet", DirichletOptions)
def global_dirichlet(options: DirichletOptions, pool: Pool, clients: int, rng: np.random.Generator) -> Draw:
    """Domains are pooled, then each class is divided by Dir(alpha), so that clients mix domains."""
    pool.require_domains()
    return Draw(deal_dirichlet(pool.labels, np.arange(len(pool)), range(clients), options, rng))
