"""FedProx: FedAvg whose clients pay for leaving the received weights.

Li et al., "Federated Optimization in Heterogeneous Networks" (MLSys 2020), equation 2: a client minimises

    F_k(w) + (mu / 2) ||w - w_t||^2

over whatever leaves train (all weights, or LoRA and head).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedbench.methods.fedavg import FedAvg, TrainableOptions
from fedbench.methods.method import Phase
from fedbench.options import NonNegativeFloat, options
from fedbench.registry import METHODS
from fedbench.tree import squared_norms

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tree import Tree


@options
class FedProxOptions(TrainableOptions):
    """FedAvg's options and the penalty's weight."""

    mu: NonNegativeFloat = 0.01
    """Pull of the local weights to the received ones, on half the squared distance; more lets clients drift less
    (mu)."""


@METHODS.register("fedprox", FedProxOptions)
class FedProx(FedAvg):
    """FedAvg with a proximal term that keeps clients near the received weights."""

    options: FedProxOptions

    def phases(self) -> tuple[Phase, ...]:
        return tuple(replace(phase, penalty=self.penalty) for phase in super().phases())

    def penalty(self, local: Tree, received: Tree) -> Tensor:
        """(mu / 2) ||w - w_t||^2, [K]."""
        distance = {name: local[name] - leaf for name, leaf in received.items()}
        return 0.5 * self.options.mu * squared_norms(distance)
