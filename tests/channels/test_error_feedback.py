"""Error feedback loses nothing: message + old residual = delivered + new residual."""

import pytest
import torch
from channel_cases import FEEDBACK, make_channel, name_of, stacked_messages, streams, template_of, weights_of
from hypothesis import given, settings

from fedbench.tree import add, weighted_mean, zeros_like


def sum_of(first, second):
    return {name: leaf.double() + second[name].double() for name, leaf in first.items()}


def assert_balanced(before, after, scale):
    """Equal up to float rounding of values of magnitude `scale`."""
    for name, leaf in before.items():
        torch.testing.assert_close(after[name], leaf, rtol=0, atol=float(scale) * 3e-7)


def largest(*trees):
    return max([float(leaf.abs().max()) for tree in trees for leaf in tree.values() if leaf.numel()], default=0.0)


@pytest.mark.parametrize("case", FEEDBACK, ids=name_of)
@given(messages=stacked_messages(), residuals=stacked_messages())
@settings(max_examples=10, deadline=None)
def test_nothing_is_lost(case, messages, residuals):
    messages = {name: leaf / 4 for name, leaf in messages.items()}  # the sum stays within fp16
    # any old residual of the same shapes: the drawn ones where they fit, else half the message
    memory = {
        name: residuals[name] / 4 if name in residuals and residuals[name].shape == leaf.shape else leaf / 2
        for name, leaf in messages.items()
    }
    channel = make_channel(case, template_of(messages), error_feedback=True)
    wanted = add(messages, memory)
    delivered, sizes = channel.inner.transmit(wanted, streams)
    delivery, _ = channel.uplink(messages, weights_of(messages), memory, {}, streams)
    assert delivery.uplink_bytes == sizes
    assert_balanced(sum_of(messages, memory), sum_of(delivered, delivery.memory), largest(messages, memory))


@pytest.mark.parametrize("case", FEEDBACK, ids=name_of)
def test_many_rounds_deliver_the_sum_of_all_messages(case):
    """What is missing after any number of rounds is exactly what the clients still hold."""
    generator = torch.Generator().manual_seed(0)
    template = {"matrix": torch.empty(5, 3), "vector": torch.empty(11), "scalar": torch.empty(())}
    channel = make_channel(case, template, error_feedback=True)
    start = channel.init_memory()
    assert all(bool((leaf == 0).all()) for leaf in start.values())
    clients, server = 3, channel.init_server()
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    memory = {name: leaf.expand(clients, *leaf.shape) for name, leaf in start.items()}
    wanted, delivered = zeros_like(template), zeros_like(template)
    for _ in range(12):
        messages = {n: torch.randn(clients, *leaf.shape, generator=generator) for n, leaf in template.items()}
        delivery, server = channel.uplink(messages, weights, memory, server, streams)
        memory = delivery.memory
        wanted = add(wanted, weighted_mean(messages, weights))
        delivered = add(delivered, delivery.mean)
    missing = weighted_mean(memory, weights)
    assert_balanced(sum_of(wanted, zeros_like(template)), sum_of(delivered, missing), 30)


def test_every_value_travels_in_time():
    """At one value a round, a constant message of four values is delivered in turn."""
    message = {"x": torch.tensor([[4.0, 3.0, 2.0, 1.0]])}
    channel = make_channel({"codec": "top-k", "density": 1e-9}, template_of(message), error_feedback=True)
    memory, sent = {"x": torch.zeros(1, 4)}, []
    for _ in range(5):
        delivery, _ = channel.uplink(message, torch.ones(1, dtype=torch.float64), memory, {}, streams)
        memory = delivery.memory
        sent.append(delivery.mean["x"].tolist())
    # residual + message: [4 3 2 1] -> [4 6 4 2] -> [8 3 6 3] -> [4 6 8 4] -> [8 9 2 5]
    assert sent == [[4, 0, 0, 0], [0, 6, 0, 0], [8, 0, 0, 0], [0, 0, 8, 0], [0, 9, 0, 0]]
