"""Dense: every value, in 32 or 16 bits.

fp16 and bf16 round each value to nearest; what the server decodes is the rounded message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fedbench.channels._values import from_bytes, to_bytes
from fedbench.channels.channel import Channel, Streams, dense_bytes
from fedbench.errors import FedbenchError
from fedbench.lazy import torch
from fedbench.options import options
from fedbench.registry import CHANNELS

if TYPE_CHECKING:
    import numpy as np

    from fedbench.tree import Tree

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@options
class DenseOptions:
    """Number format of dense payloads."""

    dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    """Number format of each value: fp32 is exact; fp16 and bf16 halve the bytes (fp16 rounds less, bf16 reaches
    further)."""


@CHANNELS.register("dense", DenseOptions)
class Dense(Channel):
    """Every value, as fp32, fp16 or bf16."""

    options: DenseOptions

    @property
    def dtype(self):
        return getattr(torch, DTYPES[self.options.dtype])

    def pack(self, message: Tree, rng: np.random.Generator) -> bytes:
        return b"".join(to_bytes(self._round(message[name])) for name in self.template)

    def unpack(self, payload: bytes) -> Tree:
        return {name: leaf.float() for name, leaf in from_bytes(payload, self.template, self.dtype).items()}

    def _round(self, leaf):
        rounded = leaf.to(self.dtype)
        if rounded is leaf:
            return leaf
        if not torch.isfinite(rounded).all() and torch.isfinite(leaf).all():
            raise FedbenchError(
                f"channel dense: a message value of {float(leaf.abs().max()):.3g} does not fit {self.options.dtype}; "
                f"use {'bf16 or ' if self.options.dtype == 'fp16' else ''}fp32"
            )
        return rounded

    def transmit(self, messages: Tree, streams: Streams) -> tuple[Tree, list[int]]:
        # Same result and lengths as packing client by client (a test compares them), without the copies.
        rounded = {name: self._round(leaf) for name, leaf in messages.items()}
        clients = next(iter(messages.values())).shape[0]
        return {name: leaf.float() for name, leaf in rounded.items()}, [dense_bytes(rounded) // clients] * clients
