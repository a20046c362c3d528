"""PowerSGD: exact for updates of low rank, nothing lost, better from round to round, and its bytes."""

from itertools import pairwise

import pytest
import torch
from channel_cases import make_channel, stacked_messages, streams, template_of, weights_of
from hypothesis import given, settings

from fedbench.channels._values import to_bytes
from fedbench.channels.powersgd import orthonormal
from fedbench.tree import weighted_mean

ONE = torch.ones(1, dtype=torch.float64)


def start(template, rank, clients):
    channel = make_channel({"codec": "powersgd", "rank": rank}, template)
    memory = {name: leaf.expand(clients, *leaf.shape) for name, leaf in channel.init_memory().items()}
    return channel, memory, channel.init_server()


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_one_step_by_hand():
    """[[3, 0, 0], [4, 0, 0], ...] has the columns' direction (3, 4, 0, 0) / 5 whatever Q is."""
    matrix = torch.zeros(1, 4, 3)
    matrix[0, :2, 0] = torch.tensor([3.0, 4.0])
    channel, memory, server = start({"m": matrix[0]}, 1, 1)
    server["right.m"] = torch.tensor([[2.0], [1.0], [0.0]])
    delivery, server = channel.uplink({"m": matrix}, ONE, memory, server, streams)
    # P = M Q = (6, 8, 0, 0), normalised (0.6, 0.8, 0, 0) up to its sign; Q = M^T P = (5, 0, 0)
    torch.testing.assert_close(server["right.m"].abs(), torch.tensor([[5.0], [0.0], [0.0]]))
    torch.testing.assert_close(delivery.mean["m"], matrix[0])
    torch.testing.assert_close(delivery.memory["m"], torch.zeros(1, 4, 3))
    assert delivery.uplink_bytes == [4 * 4 + 4 * 3]
    assert delivery.downlink_bytes == [4 * 4], "only P: the first Q needs no sending"
    assert delivery.change_bytes == 0
    delivery, _ = channel.uplink({"m": matrix}, ONE, delivery.memory, server, streams)
    assert delivery.downlink_bytes == [4 * 4 + 4 * 3], "P, and the Q that the exchange began with"


@pytest.mark.parametrize("shape", [(12, 10), (16, 4, 3, 3)])
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_updates_of_at_most_the_rank_are_exact(shape, rank):
    columns = normal(1, *shape)[0].flatten(1).shape[1]
    for true_rank in range(1, rank + 1):
        # two clients whose updates share a column space
        left = normal(shape[0], true_rank)
        messages = {"w": (left @ normal(2, true_rank, columns, seed=1)).view(2, *shape)}
        channel, memory, server = start(template_of(messages), rank, 2)
        weights = torch.tensor([0.25, 0.75], dtype=torch.float64)
        delivery, _ = channel.uplink(messages, weights, memory, server, streams)
        torch.testing.assert_close(delivery.mean["w"], weighted_mean(messages, weights)["w"], rtol=1e-4, atol=1e-5)
        assert float(delivery.memory["w"].abs().max()) < 1e-4


@given(messages=stacked_messages())
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("rank", [1, 2])
def test_message_and_residual_are_neither_lost_nor_doubled(rank, messages):
    """Over the weighted clients: message + old residual = delivered + new residual."""
    channel, memory, server = start(template_of(messages), rank, len(next(iter(messages.values()))))
    memory = {name: messages[name].flip(0) / 2 for name in memory}
    weights = weights_of(messages)
    delivery, _ = channel.uplink(messages, weights, memory, server, streams)
    for name, leaf in messages.items():
        wanted = leaf.double() + (memory[name].double() if name in memory else 0)
        after = delivery.mean[name].double()
        if name in memory:
            after = after + torch.tensordot(weights, delivery.memory[name].double(), dims=1)
        scale = max(1e-30, float(wanted.abs().max()))
        torch.testing.assert_close(after, torch.tensordot(weights, wanted, dims=1), rtol=0, atol=scale * 1e-5)


def test_a_client_keeps_what_its_own_factors_dropped():
    """Not what the mean dropped: a client whose message is of the rank keeps nothing, whatever the others send."""
    channel, memory, server = start({"w": torch.empty(6, 5)}, 1, 2)
    left, rights = normal(6, 1), normal(2, 1, 5, seed=1)
    messages = {"w": left @ rights}
    delivery, _ = channel.uplink(messages, weights_of(messages), memory, server, streams)
    assert float((messages["w"] - delivery.mean["w"]).abs().max()) > 0.1, "the clients differ from their mean"
    assert float(delivery.memory["w"].abs().max()) < 1e-5


def test_what_is_sent_whole():
    template = {
        "matrix": torch.empty(20, 30),
        "bias": torch.empty(20),
        "small": torch.empty(2, 3),
        "one": torch.empty(()),
    }
    channel, memory, server = start(template, 2, 3)
    assert channel.factored == {"matrix": (20, 30)}, "a 2 x 3 matrix has fewer values than its factors"
    messages = {name: normal(3, *leaf.shape) for name, leaf in template.items()}
    weights = weights_of(messages)
    delivery, server = channel.uplink(messages, weights, memory, server, streams)
    for name in ("bias", "small", "one"):
        assert torch.equal(delivery.mean[name], weighted_mean(messages, weights)[name])
    whole = b"".join(to_bytes(messages[name][0]) for name in ("bias", "small", "one"))
    left, right = to_bytes(torch.empty(20, 2)), to_bytes(server["right.matrix"])
    assert delivery.uplink_bytes == [len(left) + len(right) + len(whole)] * 3
    assert delivery.change_bytes == len(whole)
    assert list(delivery.mean) == list(template)


def test_warm_start_improves_over_rounds():
    """Without residuals, a repeated message's error falls to that of the best approximation of the rank."""
    matrix = normal(30, 20)
    channel, memory, server = start({"m": matrix}, 2, 1)
    errors = []
    for _ in range(20):
        delivery, server = channel.uplink({"m": matrix.unsqueeze(0)}, ONE, memory, server, streams)
        errors.append(float((delivery.mean["m"] - matrix).norm()))
    values = torch.linalg.svdvals(matrix)
    best = float(values[2:].norm())
    assert all(later <= earlier + 1e-4 for earlier, later in pairwise(errors))
    assert errors[0] > 1.05 * best
    assert errors[-1] < 1.01 * best


def test_residuals_deliver_everything_in_time():
    matrix = normal(12, 10)
    channel, memory, server = start({"m": matrix}, 1, 1)
    total = torch.zeros_like(matrix)
    for number in range(60):
        message = matrix if number == 0 else torch.zeros_like(matrix)
        delivery, server = channel.uplink({"m": message.unsqueeze(0)}, ONE, memory, server, streams)
        memory = delivery.memory
        total += delivery.mean["m"]
    torch.testing.assert_close(total, matrix, rtol=0, atol=1e-3)


@pytest.mark.parametrize("rank", [1, 3])
def test_orthonormal_spans_the_columns(rank):
    matrix = normal(50, rank) * 1e-6
    basis = orthonormal(matrix)
    torch.testing.assert_close(basis.T @ basis, torch.eye(rank), rtol=0, atol=1e-6)
    torch.testing.assert_close(basis @ (basis.T @ matrix), matrix, rtol=1e-4, atol=1e-11)
    dependent = torch.cat([matrix[:, :1], matrix[:, :1] * 2], 1)
    basis = orthonormal(dependent)
    torch.testing.assert_close(basis.T @ basis, torch.eye(2), rtol=0, atol=1e-6)
    assert bool(torch.isfinite(orthonormal(torch.zeros(5, 2))).all())
