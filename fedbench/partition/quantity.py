"""Quantity skew: clients differ in how much they have, not in what."""

from __future__ import annotations

import numpy as np

from fedbench.data.apportion import apportion
from fedbench.options import NonNegativeFloat, options
from fedbench.partition.scheme import Draw, Pool
from fedbench.registry import PARTITION_SCHEMES


@options
class QuantityOptions:
    """Options of `quantity`."""

    sigma: NonNegativeFloat = 1.0
    """Standard deviation of the logarithm of the clients' sizes; more makes them more unequal, 0 equal (sigma)."""


@PARTITION_SCHEMES.register("quantity", QuantityOptions)
def quantity(options: QuantityOptions, pool: Pool, clients: int, rng: np.random.Generator) -> Draw:
    """Sizes follow a log-normal distribution; samples are drawn at random."""
    logarithms = options.sigma * rng.standard_normal(clients)
    # The largest is 1: a wide distribution must not overflow.
    sizes = apportion(np.exp(logarithms - logarithms.max()), len(pool), rng)
    return Draw(rng.permutation(np.repeat(np.arange(clients), sizes)))
