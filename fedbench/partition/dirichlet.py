"""Label skew by Dirichlet proportions.

Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019;
in the class-wise form of Yurochkin et al. (2019) that most later work uses: proportions over clients, per class.
"""

from __future__ import annotations

import numpy as np

from fedbench.options import PositiveFloat, options
from fedbench.partition._dealing import deal_dirichlet
from fedbench.partition.base import Draw, Pool
from fedbench.registry import PARTITION_SCHEMES


@options
class DirichletOptions:
    """Options of `dirichlet`."""

    alpha: PositiveFloat
    """Concentration: 0.1 is strong skew, 100 is close to iid."""


@PARTITION_SCHEMES.register("dirichlet", DirichletOptions)
def dirichlet(options: DirichletOptions, pool: Pool, clients: int, rng: np.random.Generator) -> Draw:
    """Each class is divided among clients in proportions drawn from Dir(alpha)."""
    return Draw(deal_dirichlet(pool.labels, np.arange(len(pool)), range(clients), options.alpha, rng))
