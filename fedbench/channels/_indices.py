"""Sorted positions of the values that a sparse payload carries, in the shortest of three codings.

One byte names the coding: 32-bit little-endian positions, a bitmap of the whole vector, or the gaps
between positions as base-128 numbers (7 bits per byte, high bit set on all but the last).
"""

from collections.abc import Callable

import numpy as np

RAW, BITMAP, GAPS = range(3)
VALUE_BYTES = 4


def encode(indices: np.ndarray, size: int) -> bytes:
    """Code sorted positions below `size` (int64 [n]) in the shortest form."""
    lengths = _lengths(len(indices), size, lambda: indices)
    coding = min(lengths, key=lengths.get)
    if coding == RAW:
        body = indices.astype("<u4").tobytes()
    elif coding == BITMAP:
        bits = np.zeros(size, bool)
        bits[indices] = True
        body = np.packbits(bits).tobytes()
    else:
        body = _encode_gaps(indices)
    return bytes([coding]) + body


def decode(data: memoryview, count: int, size: int) -> tuple[np.ndarray, int]:
    """Read `count` positions; returns them and the number of bytes read."""
    coding, body = data[0], data[1:]
    if coding == RAW:
        return np.frombuffer(body[: 4 * count], "<u4").astype(np.int64), 1 + 4 * count
    if coding == BITMAP:
        length = -(-size // 8)
        return np.flatnonzero(np.unpackbits(np.frombuffer(body[:length], np.uint8), count=size)), 1 + length
    positions, length = _decode_gaps(np.frombuffer(body, np.uint8), count)
    return positions, 1 + length


def sparse_size(count: int, size: int, indices: Callable[[], np.ndarray]) -> int:
    """Length of `count` float32 values with their coded positions; `indices` is called only if the length needs it."""
    return 1 + min(_lengths(count, size, indices).values()) + VALUE_BYTES * count


def _lengths(count: int, size: int, indices: Callable[[], np.ndarray]) -> dict[int, int]:
    """Bytes of the codings that can be the shortest, without the byte that names the coding."""
    lengths = {RAW: 4 * count, BITMAP: -(-size // 8)}
    if count < lengths[BITMAP]:  # a gap takes a byte at least
        lengths[GAPS] = int(_gap_lengths(indices()).sum())
    return lengths


def _gaps(indices: np.ndarray) -> np.ndarray:
    """Distance of each position to the one before, minus one."""
    return np.diff(indices, prepend=-1) - 1


def _gap_lengths(indices: np.ndarray) -> np.ndarray:
    """Bytes that each gap takes in base 128."""
    gaps = _gaps(indices)
    lengths = np.ones(len(gaps), np.int64)
    for bits in (7, 14, 21, 28):
        lengths += gaps >= 1 << bits
    return lengths


def _encode_gaps(indices: np.ndarray) -> bytes:
    gaps, lengths = _gaps(indices), _gap_lengths(indices)
    out = np.empty(int(lengths.sum()), np.uint8)
    starts = np.cumsum(lengths) - lengths
    for digit in range(int(lengths.max(initial=0))):
        has = lengths > digit
        more = (lengths[has] > digit + 1).astype(np.uint8) << 7
        out[starts[has] + digit] = ((gaps[has] >> (7 * digit)) & 127).astype(np.uint8) | more
    return out.tobytes()


def _decode_gaps(data: np.ndarray, count: int) -> tuple[np.ndarray, int]:
    if count == 0:
        return np.empty(0, np.int64), 0
    ends = np.flatnonzero(data < 128)[:count]  # the last byte of each number
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    gaps = np.zeros(count, np.int64)
    for digit in range(int(lengths.max())):
        has = lengths > digit
        gaps[has] |= (data[starts[has] + digit].astype(np.int64) & 127) << (7 * digit)
    return np.cumsum(gaps + 1) - 1, int(ends[-1]) + 1
