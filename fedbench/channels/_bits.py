"""Small numbers packed without gaps: `width` bits each, the lowest bit first."""

import numpy as np


def packed_length(count: int, width: int) -> int:
    """Bytes of `count` numbers of `width` bits."""
    return -(-count * width // 8)


def pack_bits(codes: np.ndarray, width: int) -> bytes:
    """Pack numbers below ``2**width`` (uint8 [n], width at most 8); at width 4 the first is the low nibble."""
    if width == 8:
        return codes.tobytes()
    return np.packbits(np.unpackbits(codes[:, None], 1, width, "little"), bitorder="little").tobytes()


def unpack_bits(data: bytes | memoryview, count: int, width: int) -> np.ndarray:
    """Undo :func:`pack_bits`: the first `count` numbers, uint8 [count]."""
    read = np.frombuffer(data[: packed_length(count, width)], np.uint8)
    if width == 8:
        return read
    bits = np.unpackbits(read, count=count * width, bitorder="little").reshape(count, width)
    return np.packbits(bits, 1, "little").reshape(count)
