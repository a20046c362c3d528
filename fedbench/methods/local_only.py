"""Local-only: every client trains by itself, nothing travels.

Clients take part in the same cohorts as in a federated run of the same seed and so make exactly as many
local steps as the federated methods spend on them. The run's weight decay is on all that trains, as in FedAvg and
FA+LoRA, which differ from it in nothing but the exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.methods.fedavg import FedAvg, Trainable, TrainableOptions
from fedbench.options import options
from fedbench.registry import METHODS

if TYPE_CHECKING:
    import numpy as np

    from fedbench.methods.method import LocalResult
    from fedbench.tree import Tree


@options
class LocalOptions(TrainableOptions):
    """FedAvg's options with LoRA and head as the default choice of leaves."""

    trainable: Trainable = "lora"


@METHODS.register("local-only", LocalOptions)
class LocalOnly(FedAvg):
    """Each client alone with its own data, as many local steps as a federated client; 0 bytes."""

    communicates = False

    def init_shared(self, rng: np.random.Generator) -> Tree:
        return {}

    def init_private(self, rng: np.random.Generator, shared: Tree) -> Tree:
        return self.start

    def global_weights(self, shared: Tree) -> Tree:
        return self.start  # what a client that never takes part is evaluated with

    def finish(self, result: LocalResult) -> tuple[Tree, Tree]:
        return {}, result.trained
