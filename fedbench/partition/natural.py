"""Clients as the data have them: writers, users, hospitals."""

from __future__ import annotations

import numpy as np

from fedbench.errors import FedbenchError
from fedbench.options import options
from fedbench.partition.scheme import Draw, Pool
from fedbench.registry import PARTITION_SCHEMES


@options
class NaturalOptions:
    """`natural` has no options of its own."""


@PARTITION_SCHEMES.register("natural", NaturalOptions)
def natural(options: NaturalOptions, pool: Pool, clients: int, rng: np.random.Generator) -> Draw:
    """A column of the data set names each sample's client; nothing is drawn or moved."""
    if pool.groups is None:
        raise FedbenchError(
            f"{pool.where}: this data set does not say which client a sample belongs to; "
            "give image-folder its 'clients' file or use another scheme"
        )
    found, owner = np.unique(pool.groups, return_inverse=True)
    if len(found) != clients:
        raise FedbenchError(f"{pool.where}.clients: {clients}, but the data have {len(found)} clients; set it to that")
    return Draw(owner.astype(np.int64), names=tuple(pool.group_names[group] for group in found))
