"""DiLoCo: many local steps, and Nesterov momentum on their mean change.

Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models" (2023), algorithm 1. With
Delta the clients' mean change after H local steps, the outer gradient is -Delta and the outer step PyTorch's Nesterov:

    b <- mu b + Delta,    x <- x + eta (Delta + mu b),    eta = 0.7, mu = 0.9

H and the inner optimiser come from the run's training options; the paper's are `local_steps: 500` and
`optimizer: adamw`. eta = 1 and mu = 0 are local SGD (Stich, ICLR 2019). In the paper workers keep the inner
optimiser's moments over rounds; here, as for every method, a participation begins with fresh ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.methods.fedavg import FedAvg, TrainableOptions
from fedbench.options import PositiveFloat, ShareBelowOne, options
from fedbench.registry import METHODS
from fedbench.tree import add

if TYPE_CHECKING:
    from fedbench.tree import Tree

MOMENTUM = "momentum."


@options
class DiLoCoOptions(TrainableOptions):
    """FedAvg's options and the outer optimiser."""

    outer_learning_rate: PositiveFloat = 0.7
    """Outer learning rate, along the mean of the clients' changes; more moves the shared weights further (eta)."""
    outer_momentum: ShareBelowOne = 0.9
    """Nesterov momentum of the outer steps; more carries earlier rounds on for longer (mu)."""


@METHODS.register("diloco", DiLoCoOptions)
class DiLoCo(FedAvg):
    """FedAvg with many local steps and Nesterov momentum at the server."""

    options: DiLoCoOptions
    additive = False

    def init_server(self, shared: Tree) -> Tree:
        return {MOMENTUM + name: leaf.new_zeros(leaf.shape) for name, leaf in shared.items()}

    def aggregate(self, shared: Tree, mean_message: Tree, server: Tree, share: float) -> tuple[Tree, Tree]:
        rate, momentum = self.options.outer_learning_rate, self.options.outer_momentum
        buffer = {name: momentum * server[MOMENTUM + name] + mean_message[name] for name in shared}
        step = add({name: mean_message[name] for name in shared}, buffer, momentum)
        return add(shared, step, rate), {MOMENTUM + name: leaf for name, leaf in buffer.items()}
