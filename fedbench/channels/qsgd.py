"""QSGD: magnitudes rounded at random to a few levels, unbiased.

Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding" (NeurIPS 2017),
equation 4: ``Q(v_i) = |v| * sign(v_i) * l_i / s``, where l_i is s |v_i| / |v| rounded up with a probability equal to
its fraction, else down. |v| is the Euclidean norm of a tensor, or of buckets of consecutive values; section 4's
variant divides by the largest magnitude instead.

The paper codes levels with Elias' recursive code. Here a payload is norms (float32), then the shorter of two forms,
named by a byte: every value in the same ceil(log2(2 s + 1)) bits, or the number of values that are not zero, their
positions (:mod:`fedbench.channels._indices`), and sign and level of those in ceil(log2(2 s)) bits. A bitmap of
positions costs about what Elias' code spends on a zero, one bit.

Error feedback needs a codec whose error is smaller than its message. By lemma 3.1 a bucket of d values has an error of
at most min(d / s^2, sqrt(d) / s) of the squared norm, below one only if s^2 > d; divided by the largest magnitude, two
levels are enough for the largest error to be below the largest value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from annotated_types import Ge, Le

from fedbench.channels import _indices
from fedbench.channels._bits import pack_bits, unpack_bits
from fedbench.channels._values import flatten, require_finite, split
from fedbench.channels.channel import Channel
from fedbench.lazy import torch
from fedbench.options import PositiveInt, options
from fedbench.registry import CHANNELS
from fedbench.tree import count

if TYPE_CHECKING:
    from fedbench.tree import Tree

EVERY, NONZERO = range(2)


@options
class QSGDOptions:
    """How magnitudes become levels."""

    levels: Annotated[int, Ge(1), Le(127)] = 7
    """Levels above zero that magnitudes are rounded to; more cost more bits and err less, and 7 fit in 4 bits with
    their sign (s)."""
    norm: Literal["euclidean", "largest"] = "euclidean"
    """What magnitudes are divided by: the Euclidean norm or the largest magnitude."""
    bucket: PositiveInt | None = None
    """Consecutive values of a tensor that share a norm; fewer cost more bytes and err less, none is the whole
    tensor."""


@CHANNELS.register("qsgd", QSGDOptions)
class QSGD(Channel):
    """Signs and randomly rounded levels of all magnitudes, and a norm per tensor or bucket."""

    options: QSGDOptions

    @staticmethod
    def objection(options: QSGDOptions, error_feedback: bool) -> str | None:
        if not error_feedback:
            return None
        if options.norm == "largest":
            enough = options.levels > 1
        else:
            enough = options.bucket is not None and options.levels**2 > options.bucket
        if enough:
            return None
        return (
            "error feedback diverges where an error can exceed its message; drop error_feedback (QSGD is unbiased), or "
            "give norm: largest with levels of at least 2, or a bucket smaller than levels squared"
        )

    def pack(self, message: Tree, rng: np.random.Generator) -> bytes:
        require_finite(message, "qsgd")
        values = flatten(message, self.template).numpy()
        if not len(values):
            return b""
        lengths, s = self._lengths, self.options.levels
        norms = self._norms(values, lengths)
        # a row of zeros needs some divisor; below the smallest normal number nothing is worth a level
        share = np.abs(values) / np.repeat(np.maximum(norms, np.finfo(np.float32).tiny), lengths)
        drawn = np.floor(share * s + rng.random(len(values), np.float32))
        levels = np.minimum(drawn, s).astype(np.uint8)  # a share may exceed one by rounding
        negative = ((values < 0) & (levels > 0)).astype(np.uint8)
        every = bytes([EVERY]) + pack_bits(levels + negative * np.uint8(s), (2 * s).bit_length())
        where = np.flatnonzero(levels)
        signed = 2 * (levels[where] - 1) + negative[where]
        positions = len(where).to_bytes(4, "little") + _indices.encode(where, len(values))
        nonzero = bytes([NONZERO]) + positions + pack_bits(signed, (2 * s - 1).bit_length())
        return norms.tobytes() + min(every, nonzero, key=len)

    def unpack(self, payload: bytes) -> Tree:
        size, lengths, s = count(self.template), self._lengths, self.options.levels
        if not size:
            return split(torch.empty(0), self.template)
        norms = np.frombuffer(payload[: 4 * len(lengths)], "<f4")
        form, body = payload[4 * len(lengths)], memoryview(payload)[4 * len(lengths) + 1 :]
        if form == EVERY:
            codes = unpack_bits(body, size, (2 * s).bit_length()).astype(np.int16)
            levels = np.where(codes > s, s - codes, codes)
        else:
            total = int.from_bytes(body[:4], "little")
            where, length = _indices.decode(body[4:], total, size)
            codes = unpack_bits(body[4 + length :], total, (2 * s - 1).bit_length()).astype(np.int16)
            levels = np.zeros(size, np.int16)
            levels[where] = (codes // 2 + 1) * (1 - 2 * (codes % 2))
        values = levels.astype(np.float32) / np.float32(s) * np.repeat(norms, lengths)
        return split(torch.from_numpy(values), self.template)

    @property
    def _lengths(self) -> np.ndarray:
        """Values in each bucket."""
        lengths = []
        for leaf in self.template.values():
            size, bucket = leaf.numel(), self.options.bucket or leaf.numel()
            lengths += [min(bucket, size - start) for start in range(0, size, bucket)] if size else []
        return np.array(lengths, np.int64)

    def _norms(self, values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        starts = np.cumsum(lengths) - lengths
        if self.options.norm == "largest":
            return np.maximum.reduceat(np.abs(values), starts).astype("<f4")
        norms = np.sqrt(np.add.reduceat(values.astype(np.float64) ** 2, starts))
        # any divisor that no magnitude exceeds makes the code right on average
        return np.minimum(norms, np.finfo(np.float32).max).astype("<f4")
