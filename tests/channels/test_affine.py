"""Affine quantisation: an example by hand, half a step at most, an exact zero, the three readings of a range."""

import struct

import numpy as np
import pytest
import torch
from channel_cases import make_channel, stacked_messages, streams, template_of
from hypothesis import given, settings

from fedbench.tree import rows

# rounding of value / scale in float32, in steps
SLACK = 1e-4


def affine(template, error_feedback=False, **chosen):
    return make_channel({"codec": "affine", **chosen}, template, error_feedback)


def test_int4_by_hand():
    # from -1 to 2 in 15 steps of 0.2; zero is code 5
    message = {"x": torch.tensor([-1.0, 0.0, 0.31, 2.0, 0.09])}
    channel = affine(message, bits=4)
    payload = channel.pack(message, streams(0))
    # 5 + round(x / 0.2): 0, 5, 5 + 2, 15, 5 + 0
    assert payload == struct.pack("<fi", 0.2, 5) + bytes([0x50, 0xF7, 0x05])
    torch.testing.assert_close(channel.unpack(payload)["x"], torch.tensor([-1.0, 0.0, 0.4, 2.0, 0.0]))


@pytest.mark.parametrize(("bits", "length"), [(4, 648), (8, 1288)])
def test_size_of_flites_latent(bits, length):
    message = {"latent": torch.randn(20, 64, generator=torch.Generator().manual_seed(0))}
    assert len(affine(message, bits=bits).pack(message, streams(0))) == length


@pytest.mark.parametrize(("reading", "ranges"), [("model", 1), ("tensor", 3), ("channel", 2 + 1 + 1)])
def test_ranges_by_reading(reading, ranges):
    template = {
        "matrix": torch.empty(2, 3),
        "vector": torch.empty(5),
        "none": torch.empty(0, 4),
        "one": torch.empty(()),
    }
    message = {name: torch.ones_like(leaf) for name, leaf in template.items()}
    payload = affine(template, bits=4, range=reading).pack(message, streams(0))
    assert len(payload) == 8 * ranges + 6  # twelve values in six bytes


def test_an_odd_number_of_values_takes_half_a_byte_more():
    message = {"x": torch.ones(3), "y": torch.ones(4)}
    assert len(affine(message, bits=4).pack(message, streams(0))) == 16 + 4


def steps_of(channel, message):
    """The step of every value, by hand from the ranges."""
    levels = 2**channel.options.bits - 1

    def step(values):
        return max((max(float(values.max()), 0) - min(float(values.min()), 0)) / levels, 2**-126) if len(values) else 0

    everything = torch.cat([leaf.flatten() for leaf in message.values()])
    steps = {}
    for name, leaf in message.items():
        if channel.options.range == "model":
            steps[name] = torch.full_like(leaf, step(everything))
        elif channel.options.range == "channel" and leaf.dim() > 1:
            steps[name] = torch.stack([torch.full_like(row, step(row.flatten())) for row in leaf])
        else:
            steps[name] = torch.full_like(leaf, step(leaf.flatten()))
    return steps


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("reading", ["model", "tensor", "channel"])
@pytest.mark.parametrize("stochastic", [False, True])
@given(messages=stacked_messages())
@settings(max_examples=25, deadline=None)
def test_round_trip_is_within_half_a_step(bits, reading, stochastic, messages):
    message = rows(messages, 0)
    channel = affine(message, bits=bits, range=reading, stochastic=stochastic)
    decoded = channel.unpack(channel.pack(message, streams(0)))
    limit = 1.5 if stochastic else 0.5  # a clipped end costs half a step of its own
    for name, step in steps_of(channel, message).items():
        assert bool(((decoded[name] - message[name]).abs() <= (limit + SLACK) * step).all())
        assert bool((decoded[name][message[name] == 0] == 0).all()), "zero is coded exactly"


def test_stochastic_rounding_is_right_on_average():
    values = torch.cat([torch.tensor([-1.0, 2.0]), torch.full((20_000,), 0.05)])
    channel = affine({"x": values}, bits=4, stochastic=True)
    decoded = channel.unpack(channel.pack({"x": values}, streams(0)))["x"][2:]
    # a quarter of a step of 0.2: a binomial mean with standard deviation 0.2 * sqrt(3 / 16 / 20000) = 6e-4
    assert set(np.round(decoded.unique().numpy(), 5)) == {0.0, np.float32(0.2).round(5)}
    assert abs(float(decoded.mean()) - 0.05) < 5 * 6.2e-4
    nearest = affine({"x": values}, bits=4)
    assert bool((nearest.unpack(nearest.pack({"x": values}, streams(0)))["x"][2:] == 0).all())


def test_weights_are_coded_where_asked():
    """Weights 0..15 in steps of one: a change of 0.4 is lost, one of 0.6 becomes a step."""
    shared = {"w": torch.arange(16.0), "own": torch.zeros(2)}
    change = {"w": torch.zeros(1, 16), "extra": torch.tensor([[0.0, 30.0]])}
    change["w"][0, 3:5] = torch.tensor([0.4, 0.6])
    channel = affine(template_of(change), bits=4, of="weights").relative_to(shared)
    delivered, sizes = channel.transmit(change, streams)
    assert delivered["w"][0].tolist() == [0.0] * 4 + [1.0] + [0.0] * 11
    assert delivered["extra"][0].tolist() == [0.0, 30.0], "a leaf that nobody received is coded as it is"
    assert sizes == [16 + 9]
    update = affine(template_of(change), bits=4)
    assert update.relative_to(shared) is update


def test_error_feedback_around_coded_weights():
    """A change too small for the weights' grid arrives once enough of it has gathered."""
    shared, channel = {"w": torch.arange(16.0)}, affine({"w": torch.empty(16)}, True, bits=4, of="weights")
    change = {"w": torch.zeros(1, 16)}
    change["w"][0, 3] = 0.4
    memory, arrived = {"w": torch.zeros(1, 16)}, []
    for _ in range(5):
        bound = channel.relative_to(shared)
        delivery, _ = bound.uplink(change, torch.ones(1, dtype=torch.float64), memory, {}, streams)
        memory = delivery.memory
        shared = {"w": shared["w"] + delivery.mean["w"]}
        arrived.append(float(delivery.mean["w"][3]))
    assert arrived == [0.0, 1.0, 0.0, 1.0, 0.0]
