"""Top-k: only the largest magnitudes of the whole message travel.

Aji & Heafield, "Sparse Communication for Distributed Gradient Descent" (EMNLP 2017). The k = density * n
largest magnitudes over all tensors together (at least one) are sent as float32 with their positions in the
shortest of three codings (:mod:`fedbench.channels._indices`). Among equal magnitudes at the threshold the
lower position wins, so that the payload does not depend on a sort's order. Use with `error_feedback`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.channels import _indices
from fedbench.channels._values import flatten, require_finite, split, to_bytes
from fedbench.channels.channel import Channel
from fedbench.lazy import torch
from fedbench.options import PositiveShare, options
from fedbench.registry import CHANNELS
from fedbench.tree import count

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedbench.tree import Tree


@options
class TopKOptions:
    """How much of a message travels."""

    density: PositiveShare = 0.01
    """Share of the values that is sent, the largest first; more costs more bytes and loses less."""


@CHANNELS.register("top-k", TopKOptions)
class TopK(Channel):
    """The largest magnitudes of the whole message, with their positions."""

    options: TopKOptions

    @property
    def kept(self) -> int:
        """Values per message."""
        size = count(self.template)
        return min(size, max(1, round(self.options.density * size)))

    def choose(self, flat: Tensor) -> Tensor:
        """Sorted positions of the kept values."""
        magnitudes = flat.abs()
        threshold = magnitudes.topk(self.kept).values[-1]
        above = (magnitudes > threshold).nonzero().flatten()
        ties = (magnitudes == threshold).nonzero().flatten()[: self.kept - len(above)]
        return torch.cat([above, ties]).sort().values

    def pack(self, message: Tree, rng: np.random.Generator) -> bytes:
        require_finite(message, "top-k")
        flat = flatten(message, self.template)
        if not len(flat):
            return b""
        positions = self.choose(flat)
        return _indices.encode(positions.numpy(), len(flat)) + to_bytes(flat[positions])

    def unpack(self, payload: bytes) -> Tree:
        size = count(self.template)
        flat = torch.zeros(size)
        if size:
            positions, length = _indices.decode(memoryview(payload), self.kept, size)
            flat[torch.from_numpy(positions)] = torch.frombuffer(bytearray(payload[length:]), dtype=torch.float32)
        return split(flat, self.template)
