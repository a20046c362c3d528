"""Deep gradient compression: top-k of an accumulated momentum, which clients keep.

Lin et al., "Deep Gradient Compression" (ICLR 2018), algorithm 4. For client k's message g:

    g <- g * min(1, clip / (sqrt(K) |g|))       local clipping, for a cohort of K (section 3.2)
    u <- momentum * u + g,    v <- v + u        momentum correction (equation 5)
    send the largest magnitudes of v; u = v = 0 where sent (momentum factor masking)

The momentum acts on rounds, so that a message counts 1 / (1 - momentum) times in all, where plain SGD's would count
once: clients should train without momentum of their own. Density falls exponentially over the first rounds: round t of
w warm-up rounds sends ``density ** (t / (w + 1))``, for 0.001 and w = 4 the paper's 25, 6.3, 1.6, 0.4 and then 0.1 %.
Rounds are counted in the channel's state. The paper clips by the norm of one gradient, here of a client's change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.channels._values import require_finite
from fedbench.channels.channel import Channel, Delivery, Streams
from fedbench.channels.top_k import TopK, TopKOptions
from fedbench.lazy import torch
from fedbench.options import NonNegativeInt, PositiveFloat, PositiveShare, ShareBelowOne, options
from fedbench.registry import CHANNELS
from fedbench.tree import add, weighted_mean, zeros_like

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tree import Tree

ROUNDS, VELOCITY, RESIDUAL = "rounds", "velocity.", "residual."


@options
class DGCOptions:
    """How much travels, and what accumulates."""

    density: PositiveShare = 0.001
    """Share of the values that is sent after warm-up; more costs more bytes and loses less."""
    momentum: ShareBelowOne = 0.9
    """Momentum of a client's messages over its rounds; more carries earlier ones on for longer."""
    clip: PositiveFloat | None = None
    """Largest norm of a cohort's summed message; each of K clients is clipped to clip / sqrt(K), and none clips
    nothing."""
    warmup_rounds: NonNegativeInt = 4
    """Rounds over which the density falls from near one; more send more at the beginning."""


@CHANNELS.register("dgc", DGCOptions)
class DeepGradientCompression(Channel):
    """The largest magnitudes of an accumulated momentum, ever fewer during warm-up."""

    options: DGCOptions

    @staticmethod
    def objection(options: DGCOptions, error_feedback: bool) -> str | None:
        return "dgc has its own error feedback; drop error_feedback" if error_feedback else None

    def init_memory(self) -> Tree:
        zeros = zeros_like(self.template)
        return {**_prefixed(VELOCITY, zeros), **_prefixed(RESIDUAL, zeros)}

    def init_server(self) -> Tree:
        return {ROUNDS: torch.zeros((), dtype=torch.int64)}

    def density(self, round_number: int) -> float:
        """Share that is sent in a round, counted from 1."""
        warmup = self.options.warmup_rounds
        return self.options.density ** min(1.0, round_number / (warmup + 1))

    def uplink(
        self, messages: Tree, weights: Tensor, memory: Tree, server: Tree, streams: Streams
    ) -> tuple[Delivery, Tree]:
        require_finite(messages, "dgc")
        new_server = {ROUNDS: server[ROUNDS] + 1}
        velocity = {
            name: self.options.momentum * memory[VELOCITY + name] + leaf
            for name, leaf in self._clipped(messages).items()
        }
        wanted = add({name: memory[RESIDUAL + name] for name in messages}, velocity)
        require_finite(wanted, "dgc")  # finite terms may have no finite sum
        codec = TopK(TopKOptions(density=self.density(int(new_server[ROUNDS]))), self.template)
        delivered, sizes = codec.transmit(wanted, streams)
        # what is sent is sent exactly; a zero among it is as good as not sent
        velocity = {name: leaf * (delivered[name] == 0) for name, leaf in velocity.items()}
        residual = {name: leaf * (delivered[name] == 0) for name, leaf in wanted.items()}
        memory = {**_prefixed(VELOCITY, velocity), **_prefixed(RESIDUAL, residual)}
        return Delivery(weighted_mean(delivered, weights), memory, sizes, [0] * len(sizes), sum(sizes)), new_server

    def _clipped(self, messages: Tree) -> Tree:
        if self.options.clip is None or not messages:
            return messages
        # float64: a square may exceed float32's range, and an infinite norm would silence the client
        norms = sum(
            torch.linalg.vector_norm(leaf.reshape(len(leaf), -1), dim=1, dtype=torch.float64).square()
            for leaf in messages.values()
        ).sqrt()
        limit = self.options.clip / len(norms) ** 0.5
        factors = (limit / norms.clamp(min=limit)).clamp(max=1.0)
        return {
            name: leaf * factors.view(-1, *[1] * (leaf.dim() - 1)).to(leaf.dtype) for name, leaf in messages.items()
        }


def _prefixed(prefix: str, tree: Tree) -> Tree:
    return {prefix + name: leaf for name, leaf in tree.items()}
