"""Codings of sorted positions."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedbench.channels import _indices
from fedbench.channels._indices import BITMAP, GAPS, RAW, decode, encode, sparse_size


@st.composite
def positions(draw):
    """A size and some sorted positions below it, both ends among them now and then."""
    size = draw(st.one_of(st.integers(1, 300), st.integers(1, 5000)))
    chosen = draw(st.sets(st.one_of(st.integers(0, size - 1), st.sampled_from([0, size - 1])), max_size=size))
    return np.array(sorted(chosen), np.int64), size


def check(indices, size):
    """Round trip, with something behind it in the payload, and the promised length."""
    coded = encode(indices, size)
    values = bytes(4 * len(indices))
    decoded, length = decode(memoryview(coded + values), len(indices), size)
    assert length == len(coded)
    assert decoded.dtype == np.int64
    np.testing.assert_array_equal(decoded, indices)
    assert sparse_size(len(indices), size, lambda: indices) == len(coded + values)
    return coded[0]


@given(case=positions())
@example(case=(np.array([], np.int64), 1))
@example(case=(np.array([0]), 1))
@settings(max_examples=100, deadline=None)
def test_round_trip(case):
    check(*case)


@pytest.mark.parametrize(
    ("coding", "indices", "size"),
    [
        (BITMAP, np.arange(100), 100),  # 13 bytes of bits against 100 gaps
        (BITMAP, np.arange(0, 1001, 3), 1001),  # a size that is no multiple of 8
        (GAPS, np.array([0, 999_999]), 1_000_000),  # both ends
        (GAPS, np.arange(0, 100_000, 100), 100_000),  # one byte each
        (RAW, np.array([2**28]), 2**29),  # a gap of five bytes, a position of four
        (RAW, np.array([2**32 - 1]), 2**32),  # the largest position
    ],
)
def test_shortest_coding_is_chosen(coding, indices, size):
    assert check(indices.astype(np.int64), size) == coding


@given(case=positions())
@settings(max_examples=50, deadline=None)
def test_no_coding_is_shorter(case):
    indices, size = case
    lengths = [4 * len(indices), len(np.packbits(np.zeros(size, bool))), len(_indices._encode_gaps(indices))]
    assert len(encode(indices, size)) == 1 + min(lengths)


@pytest.mark.parametrize(("bits", "length"), [(0, 1), (7, 2), (14, 3), (21, 4), (28, 5)])
def test_gaps_of_every_length(bits, length):
    """The smallest gap of each length, the one before it, and back-to-back positions around them."""
    gaps = [2**bits if bits else 0, max(0, 2**bits - 1), 0, 2**bits + 5]
    indices = np.cumsum(np.array(gaps) + 1) - 1
    coded = _indices._encode_gaps(indices)
    assert len(coded) == int(_indices._gap_lengths(indices).sum())
    assert int(_indices._gap_lengths(indices)[0]) == length
    decoded, read = _indices._decode_gaps(np.frombuffer(coded + b"\xff\x00", np.uint8), len(indices))
    assert read == len(coded)
    np.testing.assert_array_equal(decoded, indices)


def test_gap_bytes_by_hand():
    # positions 3 and 304: gaps 3 and 300 = 0b10_0101100, low seven bits first with the high bit set
    assert _indices._encode_gaps(np.array([3, 304])) == bytes([3, 0b1010_1100, 0b10])
