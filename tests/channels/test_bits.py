"""Numbers packed without gaps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.channels._bits import pack_bits, packed_length, unpack_bits


@given(width=st.integers(1, 8), data=st.data())
@settings(max_examples=60, deadline=None)
def test_round_trip(width, data):
    codes = np.array(data.draw(st.lists(st.integers(0, 2**width - 1), max_size=50)), np.uint8)
    packed = pack_bits(codes, width)
    assert len(packed) == packed_length(len(codes), width) == -(-len(codes) * width // 8)
    np.testing.assert_array_equal(unpack_bits(packed + b"\xff\xff", len(codes), width), codes)


@pytest.mark.parametrize(
    ("codes", "width", "expected"),
    [
        ([1, 2, 15], 4, bytes([0x21, 0x0F])),  # the first number is the low nibble
        ([1, 0, 1, 1, 0, 0, 0, 0, 1], 1, bytes([0b00001101, 1])),
        ([1, 7, 2], 3, bytes([0b10_111_001, 0b0])),
        ([200], 8, bytes([200])),
    ],
)
def test_by_hand(codes, width, expected):
    assert pack_bits(np.array(codes, np.uint8), width) == expected
