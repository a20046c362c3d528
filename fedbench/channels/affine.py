"""Affine: every value as an 8- or 4-bit integer on a uniform grid.

Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference"
(CVPR 2018), equation 1: ``value = scale * (code - zero)``. A range of values runs from their smallest to their
largest, widened to hold 0; the zero point is an integer, so that 0 is coded exactly. Codes are packed without
gaps (int4: two per byte) and follow 8 bytes per range, the scale (float32) and the zero point (int32): FLITE's
latent of 1,280 values is 648 bytes at int4 and 1,288 at int8.

Rounding to nearest is off by at most half a step. Stochastic rounding is off by less than one and right on average,
but for values so close to a range's ends that the rounded zero point pushes them over; those are clipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedbench.channels._bits import pack_bits, unpack_bits
from fedbench.channels._values import flatten, require_finite, split
from fedbench.channels.channel import Channel
from fedbench.lazy import torch
from fedbench.options import options
from fedbench.registry import CHANNELS
from fedbench.tree import add, count, subtract, to_device, within_range, zeros_like

if TYPE_CHECKING:
    from fedbench.tree import Tree

LARGEST = float(np.finfo(np.float32).max)
RANGE = np.dtype([("scale", "<f4"), ("zero", "<i4")])


@options
class AffineOptions:
    """How values become integers."""

    bits: Literal[8, 4] = 8
    """Bits of each value that is sent; more cost more bytes and err less."""
    range: Literal["model", "tensor", "channel"] = "tensor"
    """Which values share a scale and a zero point: the whole message, a tensor, or an output channel (the first
    dimension of tensors that have two or more)."""
    of: Literal["update", "weights"] = "update"
    """What is coded: the message as it is, or the leaves that it leads to; the server then subtracts what the client
    received."""
    stochastic: bool = False
    """Whether values are rounded up or down at random, by the distance to either, instead of to nearest."""


@CHANNELS.register("affine", AffineOptions)
class Affine(Channel):
    """Every value as an 8- or 4-bit integer between the smallest and the largest."""

    options: AffineOptions
    reference: Tree | None = None

    def relative_to(self, shared: Tree) -> Channel:
        if self.options.of == "update":
            return self
        bound = Affine(self.options, self.template)
        # leaves that no client receives (a method's own extras) are coded as they are
        bound.reference = {name: leaf for name, leaf in to_device(shared, "cpu").items() if name in self.template}
        return bound

    def pack(self, message: Tree, rng: np.random.Generator) -> bytes:
        require_finite(message, "affine")
        if self.reference:
            message = add(message, self.reference)
            require_finite(message, "affine")  # two finite terms may have no finite sum
        values = flatten(message, self.template).numpy()
        codes, ranges = np.empty(len(values), np.uint8), []
        for part, rows in self._parts():
            block = values[part].reshape(rows, -1)
            found = self._ranges(block)
            zero = found["zero"][:, None].astype(np.float32)
            grid = block / found["scale"][:, None]
            grid = np.floor(grid + rng.random(grid.shape, np.float32)) if self.options.stochastic else np.rint(grid)
            codes[part] = np.clip(grid + zero, 0, self._largest).astype(np.uint8).reshape(-1)
            ranges.append(found.tobytes())
        return b"".join(ranges) + pack_bits(codes, self.options.bits)

    def unpack(self, payload: bytes) -> Tree:
        size, parts = count(self.template), list(self._parts())
        length = sum(rows for _, rows in parts) * RANGE.itemsize
        ranges = np.frombuffer(payload[:length], RANGE)
        codes = unpack_bits(payload[length:], size, self.options.bits)
        values, first = np.empty(size, np.float32), 0
        for part, rows in parts:
            here = ranges[first : first + rows]
            # float64: half a step above the largest value there may be no float32
            block = (codes[part].reshape(rows, -1) - here["zero"][:, None]) * here["scale"][:, None].astype(np.float64)
            values[part] = np.clip(block, -LARGEST, LARGEST).reshape(-1)
            first += rows
        message = split(torch.from_numpy(values), self.template)
        if not self.reference:
            return message
        change = subtract(message, {**zeros_like(message), **self.reference})
        return {name: within_range(leaf, torch.float32) for name, leaf in change.items()}

    @property
    def _largest(self) -> int:
        return 2**self.options.bits - 1

    def _parts(self) -> Iterator[tuple[slice, int]]:
        """Parts of the flat message, and how many ranges (rows of equal length) each is cut into."""
        if self.options.range == "model":
            size = count(self.template)
            yield from [(slice(0, size), 1)] if size else []
            return
        start = 0
        for leaf in self.template.values():
            if leaf.numel():
                rows = len(leaf) if self.options.range == "channel" and leaf.dim() > 1 else 1
                yield slice(start, start + leaf.numel()), rows
            start += leaf.numel()

    def _ranges(self, block: np.ndarray) -> np.ndarray:
        """Scale and zero point of each row of values [rows, n]."""
        low = np.minimum(block.min(1), 0).astype(np.float64)  # float64: the width may exceed float32's range
        high = np.maximum(block.max(1), 0).astype(np.float64)
        found = np.empty(len(block), RANGE)
        # a row of zeros needs some scale, and a subnormal one would be too coarse a number
        found["scale"] = np.maximum((high - low) / self._largest, np.finfo(np.float32).tiny)
        found["zero"] = np.rint(-low / found["scale"])
        return found
