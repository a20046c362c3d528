"""DGC: two rounds by hand, warm-up, clipping, and what waits."""

import pytest
import torch
from channel_cases import make_channel, stacked_messages, streams, template_of, weights_of
from hypothesis import given, settings

from fedbench.channels.top_k import TopK, TopKOptions

ONE = torch.ones(1, dtype=torch.float64)


def start(template, clients=1, **chosen):
    channel = make_channel({"codec": "dgc", **chosen}, template)
    memory = {name: leaf.expand(clients, *leaf.shape) for name, leaf in channel.init_memory().items()}
    return channel, memory, channel.init_server()


def test_rounds_by_hand():
    message = {"x": torch.tensor([[4.0, 2.0, 1.0]])}
    channel, memory, server = start(template_of(message), density=0.34, momentum=0.5, warmup_rounds=0)
    sent = []
    for _ in range(3):
        delivery, server = channel.uplink(message, ONE, memory, server, streams)
        memory = delivery.memory
        sent.append(delivery.mean["x"].tolist())
    # u = (4, 2, 1), v = (4, 2, 1): 4 is sent, its u and v become 0
    # u = (4, 3, 1.5), v = (4, 5, 2.5): 5 is sent
    # u = (6, 2, 1.75), v = (10, 2, 4.25): 10 is sent
    assert sent == [[4, 0, 0], [0, 5, 0], [10, 0, 0]]
    assert memory["velocity.x"].tolist() == [[0.0, 2.0, 1.75]]
    assert memory["residual.x"].tolist() == [[0.0, 2.0, 4.25]]
    assert int(server["rounds"]) == 3


def test_density_falls_as_in_the_paper():
    channel, _, _ = start({"x": torch.empty(5)}, density=0.001, warmup_rounds=4)
    shares = [channel.density(number) for number in range(1, 7)]
    assert shares == pytest.approx([0.251, 0.0631, 0.01585, 0.00398, 0.001, 0.001], rel=2e-3)


def test_warmup_counts_the_channels_rounds():
    message = {"x": torch.arange(1.0, 101.0).unsqueeze(0)}
    channel, memory, server = start(template_of(message), density=0.01, warmup_rounds=1)
    kept = []
    for _ in range(3):
        delivery, server = channel.uplink(message, ONE, memory, server, streams)
        kept.append(int(delivery.mean["x"].count_nonzero()))
        bytes_of = TopK(TopKOptions(density=channel.density(len(kept))), {"x": message["x"][0]})
        assert delivery.uplink_bytes == [len(bytes_of.pack({"x": message["x"][0]}, streams(0)))]
    assert kept == [10, 1, 1]


def test_clipping_by_the_cohorts_size():
    # limit 2 / sqrt(4) = 1 over both leaves: norm 5 is cut to 1, norm 0.5 stays
    message = {"x": torch.tensor([3.0, 0.3, 0.0, 0.0]), "y": torch.tensor([[4.0], [0.4], [0.0], [0.0]])}
    channel, memory, server = start(template_of(message), 4, density=1.0, clip=2.0)
    weights = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    delivery, _ = channel.uplink(message, weights, memory, server, streams)
    torch.testing.assert_close(delivery.mean, {"x": torch.tensor(0.6), "y": torch.tensor([0.8])})
    delivery, _ = channel.uplink(message, weights.roll(1), memory, server, streams)
    torch.testing.assert_close(delivery.mean, {"x": torch.tensor(0.3), "y": torch.tensor([0.4])})


@pytest.mark.parametrize("density", [1e-9, 0.3])
@given(messages=stacked_messages())
@settings(max_examples=30, deadline=None)
def test_without_momentum_it_is_top_k_with_error_feedback(density, messages):
    template, weights = template_of(messages), weights_of(messages)
    channel, memory, server = start(template, len(weights), density=density, momentum=0.0, warmup_rounds=0)
    known = make_channel({"codec": "top-k", "density": density}, template, error_feedback=True)
    residual = {name: leaf / 2 for name, leaf in messages.items()}
    memory |= {f"residual.{name}": leaf for name, leaf in residual.items()}
    delivery, _ = channel.uplink(messages, weights, memory, server, streams)
    expected, _ = known.uplink(messages, weights, residual, {}, streams)
    assert delivery.uplink_bytes == expected.uplink_bytes
    for name, leaf in expected.mean.items():
        assert torch.equal(delivery.mean[name], leaf)
        assert torch.equal(delivery.memory[f"residual.{name}"], expected.memory[name])
