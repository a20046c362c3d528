"""FedAvgM, FedAdam and FedYogi: the server takes the mean change as a gradient of its own optimiser.

Reddi et al., "Adaptive Federated Optimization" (ICLR 2021), algorithm 2; with Delta the clients' mean change,

    m <- beta1 m + (1 - beta1) Delta
    FedAdam   v <- beta2 v + (1 - beta2) Delta^2
    FedYogi   v <- v - (1 - beta2) Delta^2 sign(v - Delta^2)
    x <- x + eta m / (sqrt(v) + tau),        m = 0 and v = tau^2 at the start,

and FedAvgM (Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution", 2019)

    m <- beta m + Delta,   x <- x + eta m.

As in the paper there is no bias correction. Changes keep the clients' scale, so eta and tau have to be
tuned together with the local rate; the paper searches eta over powers of ten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.methods.fedavg import FedAvg, TrainableOptions
from fedbench.options import PositiveFloat, ShareBelowOne, options
from fedbench.registry import METHODS
from fedbench.tree import add

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tree import Tree

FIRST, SECOND = "first.", "second."


@options
class MomentumOptions(TrainableOptions):
    """FedAvg's options and the server's momentum."""

    server_learning_rate: PositiveFloat = 1.0
    """Server's step along its momentum; more moves the shared weights further in a round (eta)."""
    server_momentum: ShareBelowOne = 0.9
    """Part of the server's momentum that stays from round to round; more carries earlier rounds on for longer
    (beta)."""


@METHODS.register("fedavgm", MomentumOptions)
class FedAvgM(FedAvg):
    """FedAvg with momentum at the server."""

    options: MomentumOptions
    additive = False

    def init_server(self, shared: Tree) -> Tree:
        return {FIRST + name: leaf.new_zeros(leaf.shape) for name, leaf in shared.items()}

    def aggregate(self, shared: Tree, mean_message: Tree, server: Tree, share: float) -> tuple[Tree, Tree]:
        choice = self.options
        moment = {name: choice.server_momentum * server[FIRST + name] + mean_message[name] for name in shared}
        after = {FIRST + name: leaf for name, leaf in moment.items()}
        return add(shared, moment, choice.server_learning_rate), after


@options
class AdaptiveOptions(TrainableOptions):
    """FedAvg's options and the server's adaptive optimiser."""

    server_learning_rate: PositiveFloat = 0.01
    """Server's step, of about this size for each value; more moves the shared weights further in a round (eta)."""
    server_betas: tuple[ShareBelowOne, ShareBelowOne] = (0.9, 0.99)
    """Parts of both moments that stay from round to round; more averages over more rounds (beta1, beta2)."""
    adaptivity: PositiveFloat = 1e-3
    """Number added to the root of the second moment; more makes the steps less adaptive (tau)."""


@METHODS.register("fedadam", AdaptiveOptions)
class FedAdam(FedAvg):
    """FedAvg with Adam at the server."""

    options: AdaptiveOptions
    additive = False

    def init_server(self, shared: Tree) -> Tree:
        moments = {FIRST + name: leaf.new_zeros(leaf.shape) for name, leaf in shared.items()}
        squares = {
            SECOND + name: leaf.new_full(leaf.shape, self.options.adaptivity**2) for name, leaf in shared.items()
        }
        return {**moments, **squares}

    def aggregate(self, shared: Tree, mean_message: Tree, server: Tree, share: float) -> tuple[Tree, Tree]:
        choice, decay = self.options, self.options.server_betas[0]
        after, moments, squares = {}, {}, {}
        for name, leaf in shared.items():
            change = mean_message[name]
            moment = moments[FIRST + name] = decay * server[FIRST + name] + (1 - decay) * change
            square = squares[SECOND + name] = self.second_moment(server[SECOND + name], change.square())
            after[name] = leaf + choice.server_learning_rate * moment / (square.sqrt() + choice.adaptivity)
        return after, {**moments, **squares}

    def second_moment(self, old: Tensor, square: Tensor) -> Tensor:
        """v after a change with this elementwise square."""
        decay = self.options.server_betas[1]
        return decay * old + (1 - decay) * square


@METHODS.register("fedyogi", AdaptiveOptions)
class FedYogi(FedAdam):
    """FedAvg with Yogi at the server, whose second moment forgets more slowly."""

    def second_moment(self, old: Tensor, square: Tensor) -> Tensor:
        return old - (1 - self.options.server_betas[1]) * square * (old - square).sign()
