"""Signs by hand, one by one and by vote."""

import struct

import torch
from channel_cases import make_channel, streams, template_of
from hypothesis import given, settings
from hypothesis import strategies as st


def test_scaled_signs_by_hand():
    message = {"x": torch.tensor([1.0, -2.0, 6.0]), "none": torch.empty(0), "y": torch.tensor([[-4.0]])}
    channel = make_channel({"codec": "signsgd"}, message)
    payload = channel.pack(message, streams(0))
    assert payload == struct.pack("<ff", 3.0, 4.0) + bytes([0b0101])
    decoded = channel.unpack(payload)
    assert decoded["x"].tolist() == [3.0, -3.0, 3.0]
    assert decoded["y"].tolist() == [[-4.0]]
    assert decoded["none"].shape == (0,)


def test_zeros_toss_a_coin():
    message = {"x": torch.cat([torch.zeros(10_000), torch.ones(10_000)])}
    channel = make_channel({"codec": "signsgd"}, message)
    decoded = channel.unpack(channel.pack(message, streams(0)))["x"]
    assert bool((decoded[10_000:] == 0.5).all())
    assert abs(float(decoded[:10_000].sign().sum())) < 5 * 100


def vote(messages, weights):
    channel = make_channel({"codec": "signsgd-majority"}, template_of(messages))
    delivery, _ = channel.uplink(messages, torch.tensor(weights, dtype=torch.float64), {}, {}, streams)
    return delivery


def test_majority_by_hand():
    messages = {"x": torch.tensor([[1.0, -1.0, 1.0, -1.0], [-3.0, -3.0, 3.0, 3.0], [2.0, -2.0, -2.0, -2.0]])}
    delivery = vote(messages, [1 / 3] * 3)
    # scales 1, 3, 2, mean 2; two of three say +, -, +, -
    torch.testing.assert_close(delivery.mean["x"], torch.tensor([2.0, -2.0, 2.0, -2.0]))
    assert delivery.uplink_bytes == [4 + 1] * 3
    assert delivery.change_bytes == 4 + 1
    # the second client outweighs the others
    torch.testing.assert_close(vote(messages, [0.2, 0.6, 0.2]).mean["x"].sign(), torch.tensor([-1.0, -1.0, 1.0, 1.0]))


def test_a_draw_is_no_step():
    # six equal weights of 1/6 do not sum to zero exactly in floating point
    signs = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    for order in (torch.arange(6), torch.tensor([3, 0, 4, 1, 5, 2])):
        messages = {"x": torch.stack([signs[order], torch.ones(6)], 1)}
        delivery = vote(messages, [1 / 6] * 6)
        assert float(delivery.mean["x"][0]) == 0
        torch.testing.assert_close(delivery.mean["x"][1], torch.tensor(1.0))
        assert delivery.change_bytes == 4 + 1 + 1  # scale, which of them move, the sign of the one that does


@given(values=st.lists(st.floats(0.125, 10, width=32) | st.floats(-10, -0.125, width=32), min_size=1, max_size=30))
@settings(max_examples=30, deadline=None)
def test_a_single_voter_decides(values):
    messages = {"x": torch.tensor([values])}
    delivered, _ = make_channel({"codec": "signsgd"}, template_of(messages)).transmit(messages, streams)
    torch.testing.assert_close(vote(messages, [1.0]).mean["x"], delivered["x"][0])
