"""FedAvg whose clients pay for leaving the received weights."""

from __future__ import annotations

from fedbench.methods.fedavg import FedAvg, TrainableOptions
from fedbench.methods.method import Group, Phase
from fedbench.options import NonNegativeFloat, options
from fedbench.registry import METHODS


@options
class SparseProxOptions(TrainableOptions):
    """FedAvg's options and the penalty's weight."""

    mu: NonNegativeFloat = 0.01
    """Penalty on the absolute distance to the received weights; more lets clients drift less (mu)."""


@METHODS.register("sparse-prox", SparseProxOptions)
class SparseProx(FedAvg):
    """FedAvg with a proximal term on absolute distances."""

    options: SparseProxOptions

    def phases(self) -> tuple[Phase, ...]:
        def proximal(local, received):
            distances = [(local[name] - received[name]).abs().flatten(1).sum(1) for name in received]
            return self.options.mu * sum(distances)

        return (Phase((Group(("",)),), penalty=proximal),)
