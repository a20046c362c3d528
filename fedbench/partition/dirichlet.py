"""Label skew by Dirichlet proportions.

Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019;
in the class-wise form of Yurochkin et al. (2019) that most later work uses: proportions over clients, per class, and
each class cut in these proportions, as in NIID-Bench (Li et al., 2022) and FL-bench. NIID-Bench gives no more to a
client that has the mean size already; here it goes on receiving samples.
"""

from __future__ import annotations

import numpy as np

from fedbench.partition._dealing import DirichletOptions, deal_dirichlet
from fedbench.partition.scheme import Draw, Pool
from fedbench.registry import PARTITION_SCHEMES


@PARTITION_SCHEMES.register("dirichlet", DirichletOptions)
def dirichlet(options: DirichletOptions, pool: Pool, clients: int, rng: np.random.Generator) -> Draw:
    """Each class is divided among clients in proportions drawn from Dir(alpha)."""
    return Draw(deal_dirichlet(pool.labels, np.arange(len(pool)), range(clients), options, rng))
