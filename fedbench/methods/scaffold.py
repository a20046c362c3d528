"""SCAFFOLD: control variates correct each local step for the client's drift.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning" (ICML 2020), algorithm 1
with option II. From the received x and c, a client makes K steps y <- y - eta (g(y) - c_k + c) and then

    c_k+ = c_k - c + (x - y) / (K eta);

y - x and c_k+ - c_k go up, x and c come down, so both directions carry twice the weights' bytes. The server sets
x <- x + eta_g mean(y - x) and c <- c + |S| / N mean(c_k+ - c_k). The correction enters as the gradient of the linear
penalty <c - c_k, y>. Option II takes (x - y) / (K eta) for the mean gradient, which holds for plain SGD only, and not
where the corrected gradient is clipped. Weight decay counts as part of the loss, so its gradient is in c_k and c.
A training for evaluation goes without the correction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedbench.methods._own_copy import SHARED, shared_part
from fedbench.methods.fedavg import FedAvg, TrainableOptions, trainable_objection
from fedbench.methods.method import Group, LocalResult, Phase
from fedbench.options import PositiveFloat, options
from fedbench.registry import METHODS
from fedbench.tree import zeros_like

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedbench.config.spec import RunSpec
    from fedbench.tree import Tree

SERVER, CLIENT = "control.", "own_control."


@options
class ScaffoldOptions(TrainableOptions):
    """FedAvg's options and the server's step."""

    server_learning_rate: PositiveFloat = 1.0
    """Server's step along the mean of the clients' changes; 1 takes the mean, more goes beyond it (eta_g)."""


@METHODS.register("scaffold", ScaffoldOptions)
class Scaffold(FedAvg):
    """Control variates correct local steps for client drift; weights and variates travel."""

    options: ScaffoldOptions
    additive = False

    @staticmethod
    def objection(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        name, training = spec.method.name, spec.training
        if training.optimizer != "sgd" or training.momentum:
            return (
                f"method {name} reads mean gradients off the distance covered, which needs plain SGD; "
                "set its training to optimizer: sgd, momentum: 0"
            )
        if training.clip is not None:
            return (
                f"method {name} reads mean gradients off the distance covered, and clipping would shorten that and the "
                "correction with it; set its training to clip: null"
            )
        if training.aggregation != "uniform":
            return f"method {name}: its control variate is the clients' plain mean; set aggregation: uniform"
        if spec.channel.common.codec != "dense":
            return (
                f"method {name} sends weights and control variates, whose scales differ, so codec "
                f"{spec.channel.common.codec} would code one at the other's cost; use a dense channel"
            )
        return trainable_objection(options, provides, spec)

    def init_shared(self, rng: np.random.Generator) -> Tree:
        start = self.task.init(rng)
        return {**start, **_renamed(zeros_like(start), SERVER)}

    def init_private(self, rng: np.random.Generator, shared: Tree) -> Tree:
        return _renamed(zeros_like(shared_part(shared)), CLIENT)

    def phases(self) -> tuple[Phase, ...]:
        return (Phase((Group(SHARED),), view=shared_part, penalty=self.penalty),)

    def evaluation_phases(self, epochs: int) -> tuple[Phase, ...]:
        return tuple(replace(phase, penalty=None) for phase in super().evaluation_phases(epochs))

    def penalty(self, local: Tree, received: Tree) -> Tensor:
        """<c - c_k, y>, [K]: its gradient is the correction."""
        return sum(
            ((local[SERVER + name] - local[CLIENT + name]) * leaf).flatten(1).sum(1)
            for name, leaf in shared_part(local).items()
        )

    def finish(self, result: LocalResult) -> tuple[Tree, Tree]:
        change, control, private = {}, {}, {}
        for name, start in shared_part(result.received).items():
            change[name] = result.trained[name] - start
            length = result.steps.to(start).view(-1, *[1] * (start.dim() - 1)) * result.learning_rate
            old, server = result.trained[CLIENT + name], result.received[SERVER + name]
            private[CLIENT + name] = old - server - change[name] / length
            control[SERVER + name] = private[CLIENT + name] - old
        return {**change, **control}, private

    def aggregate(self, shared: Tree, mean_message: Tree, server: Tree, share: float) -> tuple[Tree, Tree]:
        steps = {False: self.options.server_learning_rate, True: share}
        return {
            name: leaf + steps[name.startswith(SERVER)] * mean_message[name] for name, leaf in shared.items()
        }, server

    def global_weights(self, shared: Tree) -> Tree:
        return shared_part(shared)

    def personal(self, shared: Tree, private: Tree) -> Tree:
        return shared_part(shared)


def _renamed(tree: Tree, prefix: str) -> Tree:
    return {prefix + name: leaf for name, leaf in tree.items()}
