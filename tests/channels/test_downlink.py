"""The downlink's size: the cheapest lossless form of what a client lacks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.channels import _indices
from fedbench.channels.channel import dense_bytes, downlink_bytes


def brute_force(changed, size):
    """Length of the sparse payload, and of the dense one."""
    positions = np.flatnonzero(changed)
    return min(len(_indices.encode(positions, size)) + 4 * len(positions), 4 * size)


@given(changed=st.lists(st.booleans(), min_size=1, max_size=400), share=st.sampled_from([None, 0.0, 0.8, 0.9, 1.0]))
@settings(max_examples=80, deadline=None)
def test_cheapest_form_of_a_change(changed, share):
    changed = np.array(changed)
    if share is not None:
        changed = np.arange(len(changed)) < share * len(changed)
    # over two tensors, one of them without a dimension: positions count through both
    flat = torch.from_numpy(np.where(changed, 0.5, 0.0)).float()
    change = {"b": flat[0], "a": flat[1:]}
    shared = {name: torch.ones_like(leaf) for name, leaf in change.items()}
    assert downlink_bytes(shared, change, None) == brute_force(changed, len(changed))


@pytest.mark.parametrize(
    ("changed", "size", "expected"),
    [
        (0, 1000, 1),  # nothing changed: the byte that names the coding
        (3, 1000, 1 + 3 + 3 * 4),  # three gaps of one byte
        (500, 1000, 1 + 125 + 500 * 4),  # a bitmap
        (900, 1000, 1 + 125 + 900 * 4),  # still shorter than 4000
        (1000, 1000, 4000),  # dense
    ],
)
def test_hand_numbers(changed, size, expected):
    change = {"x": torch.zeros(size)}
    change["x"][:changed] = 1.0
    assert downlink_bytes({"x": torch.zeros(size)}, change, None) == expected


def test_without_a_recent_copy_everything_is_sent():
    shared = {"x": torch.zeros(10, 3), "y": torch.zeros(())}
    assert downlink_bytes(shared, None, None) == dense_bytes(shared) == 31 * 4


def test_the_codecs_own_form_counts_where_it_is_shorter():
    shared = {"x": torch.zeros(100)}
    change = {"x": torch.ones(100)}
    assert downlink_bytes(shared, change, 60) == 60
    assert downlink_bytes(shared, change, 4000) == 400


def test_nothing_shared_is_no_byte():
    assert downlink_bytes({}, None, None) == 0
    assert downlink_bytes({}, {}, None) == 0
