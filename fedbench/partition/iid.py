"""Independent and identically distributed clients."""

from __future__ import annotations

import numpy as np

from fedbench.options import options
from fedbench.partition._dealing import deal_evenly
from fedbench.partition.scheme import Draw, Pool
from fedbench.registry import PARTITION_SCHEMES


@options
class IidOptions:
    """`iid` has no options of its own."""


@PARTITION_SCHEMES.register("iid", IidOptions)
def iid(options: IidOptions, pool: Pool, clients: int, rng: np.random.Generator) -> Draw:
    """Every client gets the same number of samples, drawn at random."""
    return Draw(deal_evenly(len(pool), range(clients), rng))
