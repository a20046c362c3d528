"""Values near float32's largest and smallest: decoded as finite numbers, or refused in one line, by every channel."""

import numpy as np
import pytest
import torch
from channel_cases import CASES, FEEDBACK, SINGLE, make_channel, name_of, streams, template_of, weights_of
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.errors import FedbenchError
from fedbench.tree import rows, weighted_mean

LARGEST = float(np.finfo(np.float32).max)
TINY = float(np.finfo(np.float32).tiny)
VALUES = st.one_of(
    st.sampled_from([0.0, -0.0, LARGEST, -LARGEST, LARGEST / 2, TINY, -TINY, TINY / 3, 1e-45, -1e-45, 1e20, -1e20]),
    st.floats(-LARGEST, LARGEST, width=32),
    st.floats(-TINY, TINY, width=32),
)
WRAPPED = [(case, False) for case in CASES] + [(case, True) for case in FEEDBACK]


@st.composite
def extreme_messages(draw):
    """One to three clients' messages: a matrix that PowerSGD factors, and a vector."""
    clients = draw(st.integers(1, 3))

    def values(size):
        return draw(st.lists(VALUES, min_size=clients * size, max_size=clients * size))

    return {
        "matrix": torch.tensor(values(20), dtype=torch.float32).reshape(clients, 4, 5),
        "vector": torch.tensor(values(3), dtype=torch.float32).reshape(clients, 3),
    }


def finite(tree):
    return all(bool(leaf.isfinite().all()) for leaf in tree.values())


def check_refusal(message):
    assert "\n" not in message
    assert "lower the learning rate" in message or "does not fit" in message


@pytest.mark.parametrize(
    ("case", "error_feedback"), WRAPPED, ids=lambda v: name_of(v) if isinstance(v, dict) else "feedback" * v or "plain"
)
@given(rounds=st.lists(extreme_messages(), min_size=2, max_size=2))
@settings(max_examples=12, deadline=None)
def test_finite_messages_arrive_finite_or_are_refused(case, error_feedback, rounds):
    """Over two rounds, so that memories are large as well."""
    clients = min(len(messages["vector"]) for messages in rounds)
    rounds = [rows(messages, slice(clients)) for messages in rounds]
    channel = make_channel(case, template_of(rounds[0]), error_feedback)
    memory = {name: leaf.expand(clients, *leaf.shape) for name, leaf in channel.init_memory().items()}
    server = channel.init_server()
    for messages in rounds:
        try:
            delivery, server = channel.uplink(messages, weights_of(messages), memory, server, streams)
        except FedbenchError as refusal:
            check_refusal(str(refusal))
            return
        memory = delivery.memory
        assert finite(delivery.mean)
        assert finite(memory)
        assert finite(server)


# 16-bit floats are not scale free; a Euclidean norm that exceeds float32 has a test of its own
SCALE_FREE = [
    (case, value)
    for case in SINGLE
    for value in (LARGEST, 1e38, 1e20, TINY, TINY / 3, 1e-45)
    if "16" not in case.get("dtype", "") and not (case.get("norm") == "euclidean" and value == LARGEST)
]


@pytest.mark.parametrize(("case", "value"), SCALE_FREE, ids=lambda v: name_of(v) if isinstance(v, dict) else f"{v:g}")
def test_extreme_values_are_decoded_as_well_as_any_other(case, value):
    """The error is that of the same message at size 1, up to the smallest normal number."""
    signs = torch.tensor([1.0, -1.0, 1.0, 0.0, 1.0, -0.5])
    errors = []
    for size in (value, 1.0):
        message = {"x": (signs.double() * size).float().unsqueeze(0)}
        received = make_channel(case, template_of(message)).transmit(message, streams)[0]
        assert finite(received)
        errors.append(float((received["x"].double() - message["x"].double()).abs().max()) / size)
    floor = TINY / value  # scales below the smallest normal number are as coarse as that
    assert errors[0] <= errors[1] * (1 + 1e-5) + 1e-5 + floor


@pytest.mark.parametrize("bits", [8, 4])
def test_affine_clips_the_grid_at_the_largest_number(bits):
    """The grid from -0.99 to 1 of the largest number ends up to half a step above it."""
    message = {"x": torch.tensor([[LARGEST, -0.99 * LARGEST, 0.0]])}
    channel = make_channel({"codec": "affine", "bits": bits}, template_of(message))
    received = channel.transmit(message, streams)[0]["x"][0].double() / LARGEST
    step = 1.99 / (2**bits - 1)
    assert received[2] == 0
    assert (received - message["x"][0].double() / LARGEST).abs().max() <= step / 2 + 1e-6


def test_qsgd_is_right_on_average_where_the_norm_exceeds_float32():
    message = {"x": torch.tensor([[2.4e38, -2.4e38, 1.2e38, 0.0]])}
    channel = make_channel({"codec": "qsgd", "levels": 7}, template_of(message))
    sent = torch.stack(
        [channel.unpack(channel.pack(rows(message, 0), np.random.default_rng(n)))["x"].double() for n in range(400)]
    )
    # a level is a seventh of the norm: the mean of 400 is off by at most 3.4e38 / 7 / 2 / 20 in one standard deviation
    assert (sent.mean(0) - message["x"][0].double()).abs().max() < 5 * 3.4e38 / 7 / 2 / 20


def test_weights_change_within_float32_or_are_refused():
    """Affine of weights: the sum of weights and change, and the change that follows from it, may leave float32."""
    message = {"x": torch.tensor([[3.4e38, 1.0]])}
    channel = make_channel({"codec": "affine", "bits": 4, "of": "weights"}, template_of(message))
    near = channel.relative_to({"x": torch.tensor([-1e37, -3.4e38])})
    assert finite(near.transmit(message, streams)[0])
    with pytest.raises(FedbenchError, match=r"channel affine: message leaf 'x' holds NaN or infinity"):
        channel.relative_to({"x": torch.tensor([3e38, 0.0])}).transmit(message, streams)


def test_dgc_clips_by_a_norm_whose_square_exceeds_float32():
    message = {"x": torch.tensor([[3e30, 4e30]])}
    channel = make_channel({"codec": "dgc", "density": 1.0, "clip": 5.0}, template_of(message))
    memory = {name: leaf.unsqueeze(0) for name, leaf in channel.init_memory().items()}
    weights = torch.ones(1, dtype=torch.float64)
    delivery, _ = channel.uplink(message, weights, memory, channel.init_server(), streams)
    assert delivery.mean["x"].tolist() == pytest.approx([3.0, 4.0])


def test_powersgd_names_the_leaf_whose_factors_do_not_fit():
    message = {"matrix": torch.full((1, 8, 8), 3e38)}
    channel = make_channel({"codec": "powersgd", "rank": 1}, template_of(message))
    memory = {"matrix": torch.zeros(1, 8, 8)}
    with pytest.raises(FedbenchError, match=r"channel powersgd: message leaf 'matrix' is so large"):
        channel.uplink(message, torch.ones(1), memory, channel.init_server(), streams)


def test_means_of_the_largest_number_are_that_number():
    """Ten weights of 0.1 sum to more than one in float32."""
    stacked = {"x": torch.tensor([LARGEST, -LARGEST, float("inf")]).expand(10, 3)}
    mean = weighted_mean(stacked, torch.full((10,), 0.1 + 1e-9, dtype=torch.float64))["x"]
    assert mean.tolist() == [LARGEST, -LARGEST, float("inf")]
