"""QSGD: hand computation, bias, payload forms, and where error feedback is refused."""

import struct

import numpy as np
import pytest
import torch
from channel_cases import make_channel, stacked_messages, streams
from hypothesis import given, settings

from fedbench.channels.qsgd import QSGD, QSGDOptions
from fedbench.tree import rows


def qsgd(template, **chosen):
    return make_channel({"codec": "qsgd", **chosen}, template)


class Draws:
    """A generator whose numbers are given."""

    def __init__(self, values):
        self.values = values

    def random(self, size, dtype):
        assert size == len(self.values)
        return np.array(self.values, dtype)


def test_by_hand():
    # norm 5, two levels: magnitudes 0.6 and 0.8 are 1.2 and 1.6 levels
    message = {"x": torch.tensor([3.0, -4.0, 0.0])}
    channel = qsgd(message, levels=2)
    payload = channel.pack(message, Draws([0.0, 0.5, 0.9]))
    # levels 1, -2 and 0 in three bits each: 1, 2 + 2, 0; the form of positions would be longer
    assert payload == struct.pack("<f", 5.0) + bytes([0, 0b00_100_001, 0])
    assert channel.unpack(payload)["x"].tolist() == [2.5, -5.0, 0.0]


def test_few_nonzero_values_are_sent_with_positions():
    message = {"x": torch.zeros(1000)}
    message["x"][[10, 500]] = torch.tensor([1.0, -1.0])
    channel = qsgd(message, levels=1, norm="largest")
    payload = channel.pack(message, streams(0))
    # norm, form, count, coding, gaps 10 and 489 (1 and 2 bytes), two signs of one bit
    assert payload == struct.pack("<fBIB", 1.0, 1, 2, 2) + bytes([10, 0x80 | (489 & 127), 489 >> 7, 0b10])
    assert torch.equal(channel.unpack(payload)["x"], message["x"])


@pytest.mark.parametrize("norm", ["euclidean", "largest"])
def test_right_on_average(norm):
    values = torch.tensor([0.3, -0.7, 1.0, 0.01])
    channel = qsgd({"x": values}, levels=3, norm=norm)
    decoded = torch.stack([channel.unpack(channel.pack({"x": values}, streams(n)))["x"] for n in range(4000)])
    step = float(values.norm() if norm == "euclidean" else values.abs().max()) / 3
    # a two-point distribution: standard deviation at most half a step
    assert bool(((decoded.mean(0) - values).abs() <= 5 * 0.5 * step / 4000**0.5).all())
    assert len(decoded[:, 3].unique()) == 2


@pytest.mark.parametrize("norm", ["euclidean", "largest"])
@pytest.mark.parametrize("bucket", [None, 1, 4])
@given(messages=stacked_messages())
@settings(max_examples=25, deadline=None)
def test_off_by_less_than_a_level(norm, bucket, messages):
    message = rows(messages, 0)
    channel = QSGD(QSGDOptions(levels=5, norm=norm, bucket=bucket), message)
    payload = channel.pack(message, streams(0))
    decoded = channel.unpack(payload)
    for name, leaf in message.items():
        for start in range(0, leaf.numel(), bucket or leaf.numel()):
            here = slice(start, start + (bucket or leaf.numel()))
            values = leaf.flatten()[here].double()
            step = float(values.norm() if norm == "euclidean" else values.abs().max()) / 5
            wrong = (decoded[name].flatten()[here].double() - values).abs()
            assert bool((wrong <= step * (1 + 1e-4) + 1e-38).all())


def test_a_norm_per_bucket():
    # buckets do not cross tensors: lengths 4, 4, 2 and 1
    message = {"x": torch.ones(10), "y": torch.ones(())}
    assert QSGD(QSGDOptions(levels=1, bucket=4), message)._lengths.tolist() == [4, 4, 2, 1]


@pytest.mark.parametrize(
    ("chosen", "refused"),
    [
        ({"levels": 7}, True),
        ({"levels": 7, "bucket": 49}, True),
        ({"levels": 7, "bucket": 48}, False),
        ({"levels": 1, "norm": "largest"}, True),
        ({"levels": 2, "norm": "largest"}, False),
    ],
)
def test_error_feedback_needs_a_small_error(chosen, refused):
    assert (QSGD.objection(QSGDOptions(**chosen), True) is not None) == refused
    assert QSGD.objection(QSGDOptions(**chosen), False) is None
