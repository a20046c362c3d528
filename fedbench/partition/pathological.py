"""A few classes per client: McMahan et al., Communication-Efficient Learning of Deep Networks, 2017.

The paper deals shards of label-sorted data, so that a client has at most a number of classes; here every client has
exactly that number.
"""

from __future__ import annotations

import numpy as np

from fedbench.errors import FedbenchError
from fedbench.options import PositiveInt, options
from fedbench.partition._dealing import deal_evenly
from fedbench.partition.scheme import Draw, Pool
from fedbench.registry import PARTITION_SCHEMES


@options
class PathologicalOptions:
    """Options of `pathological`."""

    classes_per_client: PositiveInt = 2
    """Number of classes that each client holds; fewer is more skewed."""


@PARTITION_SCHEMES.register("pathological", PathologicalOptions)
def pathological(options: PathologicalOptions, pool: Pool, clients: int, rng: np.random.Generator) -> Draw:
    """Every client holds a fixed number of classes; each class is divided equally among its holders."""
    present, each = np.unique(pool.labels), options.classes_per_client
    path = f"{pool.where}.classes_per_client"
    if each > len(present):
        raise FedbenchError(f"{path}: {each} classes per client, but there are {len(present)}; lower it")
    if clients * each < len(present):
        raise FedbenchError(
            f"{path}: {clients} clients with {each} classes each cannot hold all {len(present)} classes; "
            "raise it or 'clients'"
        )
    # Every class gets almost the same number of holders; a client takes the classes that miss most.
    missing = np.full(len(present), clients * each // len(present))
    missing[rng.permutation(len(present))[: clients * each % len(present)]] += 1
    holds = np.zeros((clients, len(pool.class_names)), dtype=bool)
    for client in rng.permutation(clients):
        chosen = np.lexsort((rng.random(len(present)), -missing))[:each]
        missing[chosen] -= 1
        holds[client, present[chosen]] = True
    owner = np.empty(len(pool), dtype=np.int64)
    for label in present:
        samples = np.flatnonzero(pool.labels == label)
        owner[samples] = deal_evenly(len(samples), np.flatnonzero(holds[:, label]), rng)
    return Draw(owner, classes=holds)
