"""signSGD: one bit per value, and one magnitude per tensor.

Bernstein et al., "signSGD: Compressed Optimisation for Non-Convex Problems" (ICML 2018). With the mean magnitude of
each tensor as its scale (Karimireddy et al., "Error Feedback Fixes SignSGD", ICML 2019, equation for scaled sign)
the server decodes ``mean |x| * sign(x)``; use that with `error_feedback`. `signsgd-majority` is Bernstein et al.'s
vote (algorithm 3): the server keeps only the sign that weighs more. The paper then steps by the learning rate;
here messages are whole changes of the weights, so the step is the mean of the clients' scales.

Packed 8 signs per byte, after a float32 scale per tensor. A zero has no sign: a coin is tossed, so that it is
right on average.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedbench.channels._bits import pack_bits, packed_length, unpack_bits
from fedbench.channels._values import flatten, require_finite, split
from fedbench.channels.channel import Channel, Delivery, Streams
from fedbench.lazy import torch
from fedbench.options import options
from fedbench.registry import CHANNELS
from fedbench.tree import count, weighted_mean

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tree import Tree

TIE = 1e-5  # a tally below is a draw: equal weights need not sum to exactly zero in float32


@options
class SignOptions:
    """Signs have no options."""


@CHANNELS.register("signsgd", SignOptions)
class SignSGD(Channel):
    """The sign of every value, and each tensor's mean magnitude."""

    def pack(self, message: Tree, rng: np.random.Generator) -> bytes:
        require_finite(message, "signsgd")
        values = flatten(message, self.template).numpy()
        leaves = [message[name] for name in self._tensors]
        scales = np.array([float(leaf.abs().mean(dtype=torch.float64)) for leaf in leaves], "<f4")
        positive = np.where(values == 0, rng.integers(0, 2, len(values)), values > 0)
        return scales.tobytes() + pack_bits(positive.astype(np.uint8), 1)

    def unpack(self, payload: bytes) -> Tree:
        size, length = count(self.template), 4 * len(self._tensors)
        scales = iter(np.frombuffer(payload[:length], "<f4"))
        signs = unpack_bits(payload[length:], size, 1).astype(np.float32) * 2 - 1
        message = split(torch.from_numpy(signs), self.template)
        return {name: leaf * float(next(scales)) if leaf.numel() else leaf for name, leaf in message.items()}

    @property
    def _tensors(self) -> list[str]:
        """The leaves that hold anything."""
        return [name for name, leaf in self.template.items() if leaf.numel()]


@CHANNELS.register("signsgd-majority", SignOptions)
class SignMajority(Channel):
    """The sign that most clients send, times the mean of their magnitudes."""

    @staticmethod
    def objection(options: SignOptions, error_feedback: bool) -> str | None:
        if error_feedback:
            return (
                "a vote's outcome is nobody's own message, so there is no residual; use signsgd, or drop error_feedback"
            )
        return None

    def uplink(
        self, messages: Tree, weights: Tensor, memory: Tree, server: Tree, streams: Streams
    ) -> tuple[Delivery, Tree]:
        received, sizes = SignSGD(self.options, self.template).transmit(messages, streams)
        tally = weighted_mean({name: leaf.sign() for name, leaf in received.items()}, weights)
        scale = weighted_mean({name: leaf.abs() for name, leaf in received.items()}, weights)
        mean = {name: leaf.sign() * (leaf.abs() > TIE) * scale[name] for name, leaf in tally.items()}
        return Delivery(mean, memory, sizes, [0] * len(sizes), self._outcome_bytes(mean)), server

    def _outcome_bytes(self, mean: Tree) -> int:
        """Length of the outcome: scales, signs of what moves and, after ties, a bit per value for whether it moves."""
        size, moving = count(mean), sum(int(leaf.count_nonzero()) for leaf in mean.values())
        which = packed_length(size, 1) if moving < size else 0
        return 4 * sum(leaf.numel() > 0 for leaf in mean.values()) + which + packed_length(moving, 1)
