"""Payloads of every channel: exact round trips, honest sizes."""

import numpy as np
import pytest
import torch
from channel_cases import (
    CASES,
    FEEDBACK,
    SINGLE,
    make_channel,
    name_of,
    stacked_messages,
    streams,
    template_of,
    weights_of,
)
from hypothesis import given, settings

from fedbench.channels import _indices
from fedbench.channels._values import flatten, split
from fedbench.errors import FedbenchError
from fedbench.tree import count, rows, weighted_mean

single_case = pytest.mark.parametrize("case", SINGLE, ids=name_of)


def same(first, second):
    """Equal bits, so that -0 and 0 differ."""
    return all(torch.equal(leaf.view(torch.int32), second[name].view(torch.int32)) for name, leaf in first.items())


@single_case
@given(messages=stacked_messages())
@settings(max_examples=15, deadline=None)
def test_transmitting_is_packing_and_unpacking(case, messages):
    channel = make_channel(case, template_of(messages))
    delivered, sizes = channel.transmit(messages, streams)
    assert list(delivered) == list(messages)
    for position, size in enumerate(sizes):
        payload = channel.pack(rows(messages, position), streams(position))
        assert isinstance(payload, bytes)
        assert len(payload) == size
        decoded = channel.unpack(payload)
        assert list(decoded) == list(messages)
        for name, leaf in decoded.items():
            assert leaf.dtype == torch.float32
            assert leaf.shape == messages[name].shape[1:]
        assert same(decoded, rows(delivered, position))


@pytest.mark.parametrize(
    ("case", "error_feedback"),
    [(case, False) for case in CASES] + [(case, True) for case in FEEDBACK],
    ids=lambda value: name_of(value) if isinstance(value, dict) else ("feedback" if value else "plain"),
)
@given(messages=stacked_messages())
@settings(max_examples=8, deadline=None)
def test_uplink_delivers_the_weighted_mean(case, error_feedback, messages):
    channel = make_channel(case, template_of(messages), error_feedback)
    before = {name: leaf.clone() for name, leaf in messages.items()}
    weights = weights_of(messages)
    memory = {name: leaf.expand(len(weights), *leaf.shape) for name, leaf in channel.init_memory().items()}
    delivery, server = channel.uplink(messages, weights, memory, channel.init_server(), streams)
    assert same(before, messages), "a channel must not write on its input"
    assert server.keys() == channel.init_server().keys()
    assert len(delivery.uplink_bytes) == len(delivery.downlink_bytes) == len(weights)
    assert list(delivery.mean) == list(messages)
    if case in SINGLE:
        delivered, sizes = getattr(channel, "inner", channel).transmit(messages, streams)
        assert delivery.uplink_bytes == sizes
        for name, leaf in weighted_mean(delivered, weights).items():
            assert torch.equal(leaf, delivery.mean[name])


@single_case
def test_empty_message_is_no_byte(case):
    channel = make_channel(case, {})
    assert channel.pack({}, streams(0)) == b""
    assert channel.unpack(b"") == {}


@given(messages=stacked_messages())
@settings(max_examples=30, deadline=None)
def test_values_flatten_in_the_templates_order(messages):
    template = template_of(messages)
    message = rows(messages, 0)
    backwards = dict(reversed(message.items()))
    assert torch.equal(flatten(message, template), flatten(backwards, template))
    assert same(split(flatten(message, template), template), message)


def test_dense_rounds_to_nearest_even():
    # between 1 and 1 + 2**-10 (fp16) or 1 + 2**-7 (bf16): halfway goes to the even neighbour, past it upwards
    for dtype, step in (("fp16", 2.0**-10), ("bf16", 2.0**-7)):
        message = {"x": torch.tensor([[1 + step / 2, 1 + 1.5 * step, 1 + 0.51 * step, 1 / 3]])}
        channel = make_channel({"codec": "dense", "dtype": dtype}, template_of(message))
        delivered, sizes = channel.transmit(message, streams)
        assert delivered["x"][0, :3].tolist() == [1.0, 1 + 2 * step, 1 + step]
        assert abs(delivered["x"][0, 3] - 1 / 3) <= step / 4
        assert sizes == [8]


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_dense_payloads_are_the_values_in_the_templates_order(dtype):
    """NumPy's bytes of each value, little-endian; bf16 is the upper half of fp32, for values that it holds exactly."""
    values = {"b": np.array([[1.5, -2.0], [0.25, 96.0]], "<f4"), "a": np.array([-0.0, 3.0, 2.0**-20], "<f4")}
    message = {name: torch.from_numpy(array) for name, array in values.items()}
    channel = make_channel({"codec": "dense", "dtype": dtype}, message)
    as_bytes = {
        "fp32": lambda array: array.tobytes(),
        "fp16": lambda array: array.astype("<f2").tobytes(),
        "bf16": lambda array: (array.view("<u4") >> 16).astype("<u2").tobytes(),
    }[dtype]
    payload = channel.pack(dict(reversed(message.items())), streams(0))
    assert payload == as_bytes(values["b"].ravel()) + as_bytes(values["a"])
    assert same(channel.unpack(payload), message)
    delivered, sizes = channel.transmit({name: torch.stack([leaf, -leaf]) for name, leaf in message.items()}, streams)
    assert sizes == [7 * (4 if dtype == "fp32" else 2)] * 2
    assert same(rows(delivered, 0), message)


def test_dense_fp32_is_exact():
    message = {"x": torch.tensor([[1e-45, 3.4e38, -0.0, 1 / 3]])}
    delivered, sizes = make_channel({"codec": "dense", "dtype": "fp32"}, template_of(message)).transmit(
        message, streams
    )
    assert same(delivered, message)
    assert sizes == [16]


def test_value_beyond_fp16_is_a_clear_error():
    message = {"x": torch.tensor([[1.0, -7e4]])}
    channel = make_channel({"codec": "dense", "dtype": "fp16"}, template_of(message))
    for send in (lambda: channel.transmit(message, streams), lambda: channel.pack(rows(message, 0), streams(0))):
        with pytest.raises(FedbenchError, match=r"7e\+04 does not fit fp16; use bf16 or fp32") as error:
            send()
        assert "\n" not in str(error.value)
    bf16 = make_channel({"codec": "dense", "dtype": "bf16"}, template_of(message))
    assert torch.isfinite(bf16.transmit(message, streams)[0]["x"]).all()


@given(messages=stacked_messages())
@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("density", [1e-9, 0.1, 0.5, 1.0])
def test_top_k_keeps_the_largest_of_the_whole_message(density, messages):
    template = template_of(messages)
    channel = make_channel({"codec": "top-k", "density": density}, template)
    kept = min(count(template), max(1, round(density * count(template))))
    assert channel.kept == kept
    flat = flatten(rows(messages, 0), template)
    payload = channel.pack(rows(messages, 0), streams(0))
    sent = flatten(channel.unpack(payload), template)
    # by hand: falling magnitude, then rising position
    order = sorted(range(len(flat)), key=lambda position: (-abs(float(flat[position])), position))[:kept]
    expected = torch.zeros(len(flat))
    expected[order] = flat[order]
    assert torch.equal(sent, expected)
    positions = torch.tensor(sorted(order)).numpy()
    assert len(payload) == len(_indices.encode(positions, len(flat))) + 4 * kept


def test_ties_go_to_the_lower_position_across_tensors():
    message = {"b": torch.tensor([[1.0, -1.0, 1.0]]), "a": torch.tensor([[-1.0, 1.0]])}
    channel = make_channel({"codec": "top-k", "density": 0.8}, template_of(message))
    delivered, _ = channel.transmit(message, streams)
    assert delivered["b"].tolist() == [[1.0, -1.0, 1.0]]
    assert delivered["a"].tolist() == [[-1.0, 0.0]]
