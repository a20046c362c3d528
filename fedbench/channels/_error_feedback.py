"""Error feedback around any codec: what compression dropped is added to the client's next message.

Seide et al., "1-Bit Stochastic Gradient Descent" (Interspeech 2014); Karimireddy et al., "Error Feedback
Fixes SignSGD and other Gradient Compression Schemes" (ICML 2019). The invariant is
message + old residual = delivered + new residual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.channels._values import require_finite
from fedbench.channels.channel import Channel, Delivery, Streams
from fedbench.tree import add, subtract, weighted_mean, zeros_like

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tree import Tree


class ErrorFeedback(Channel):
    """A channel whose clients keep a residual; wraps codecs that transmit client by client."""

    def __init__(self, inner: Channel):
        super().__init__(inner.options, inner.template)
        self.inner = inner

    def relative_to(self, shared: Tree) -> Channel:
        inner = self.inner.relative_to(shared)
        return self if inner is self.inner else ErrorFeedback(inner)

    def init_memory(self) -> Tree:
        return zeros_like(self.template)

    def uplink(
        self, messages: Tree, weights: Tensor, memory: Tree, server: Tree, streams: Streams
    ) -> tuple[Delivery, Tree]:
        wanted = add(messages, memory)
        require_finite(wanted, "error feedback")  # two finite terms may have no finite sum
        delivered, sizes = self.inner.transmit(wanted, streams)
        residual = subtract(wanted, delivered)
        return Delivery(weighted_mean(delivered, weights), residual, sizes, [0] * len(sizes), sum(sizes)), server
