"""The contracts of channels."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fedbench.channels._error_feedback import ErrorFeedback
from fedbench.channels.channel import Channel
from fedbench.registry import CHANNELS
from fedbench.testing.cases import ChannelCase
from fedbench.testing.planning import imports_no_torch
from fedbench.tree import Tree, add, rows, weighted_mean


def payloads_are_what_arrives(case: ChannelCase) -> None:
    """Each client's message arrives as its unpacked payload, and costs that payload's length."""
    if not _one_by_one(case):
        return
    channel, messages = case.make(), case.messages()
    arrived, sizes = channel.transmit(messages, case.streams)
    assert list(arrived) == list(messages)
    for position, size in enumerate(sizes):
        payload = channel.pack(rows(messages, position), case.streams(position))
        assert isinstance(payload, bytes)
        assert len(payload) == size, f"client {position}: counted {size} bytes, packed {len(payload)}"
        decoded = channel.unpack(payload)
        for name, leaf in rows(arrived, position).items():
            assert decoded[name].dtype == torch.float32
            assert torch.equal(decoded[name], leaf), f"client {position}: {name} arrives otherwise than unpacked"


def payloads_follow_from_message_and_stream(case: ChannelCase) -> None:
    """The same message and generator give the same bytes: a resumed run sends what the interrupted one sent."""
    if not _one_by_one(case):
        return
    channel, message = case.make(), rows(case.messages(), 0)
    payloads = [channel.pack(message, case.streams(0)) for _ in range(2)]
    assert payloads[0] == payloads[1] == case.make().pack(message, case.streams(0))


def empty_messages_are_no_byte(case: ChannelCase) -> None:
    """A method without shared leaves sends nothing."""
    if not _one_by_one(case):
        return
    channel = case.make(empty=True)
    assert channel.pack({}, case.streams(0)) == b""
    assert channel.unpack(b"") == {}


def uplink_delivers_one_mean(case: ChannelCase) -> None:
    """The server gets one value for each of the template's, bytes for each client, and the clients their memories."""
    channel, messages = case.make(), case.messages()
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    memory = _memory(channel, len(weights))
    delivery, server = channel.uplink(messages, weights, memory, channel.init_server(), case.streams)
    assert list(delivery.mean) == list(messages)
    assert all(leaf.shape == messages[name].shape[1:] for name, leaf in delivery.mean.items())
    assert len(delivery.uplink_bytes) == len(delivery.downlink_bytes) == len(weights)
    assert delivery.memory.keys() == memory.keys()
    assert server.keys() == channel.init_server().keys()
    if _one_by_one(case):
        arrived, sizes = channel.transmit(messages, case.streams)
        assert delivery.uplink_bytes == sizes
        _same(delivery.mean, weighted_mean(arrived, weights), "the mean is not that of the messages that arrived")


def inputs_stay_as_they_were(case: ChannelCase) -> None:
    """A channel makes new trees."""
    channel, messages = case.make(), case.messages()
    memory, server = _memory(channel, 3), channel.init_server()
    copies = [{name: leaf.clone() for name, leaf in tree.items()} for tree in (messages, memory, server)]
    channel.uplink(messages, torch.full((3,), 1 / 3, dtype=torch.float64), memory, server, case.streams)
    for tree, copy in zip((messages, memory, server), copies, strict=True):
        _same(tree, copy, "a tree that the channel was given is written on")


def nothing_is_lost(case: ChannelCase) -> None:
    """With error feedback, what arrived and what the client remembers add up to what it wanted to send."""
    entry = CHANNELS[case.codec]
    if not _one_by_one(case) or entry.target.objection(entry.options(**case.options), True):
        return
    channel, messages = case.make(error_feedback=True), case.messages()
    assert isinstance(channel, ErrorFeedback)
    memory = {name: 0.25 * leaf.flip(0) for name, leaf in messages.items()}
    wanted = add(messages, memory)
    arrived, _ = channel.inner.transmit(wanted, case.streams)
    weights = torch.full((3,), 1 / 3, dtype=torch.float64)
    delivery, _ = channel.uplink(messages, weights, memory, channel.init_server(), case.streams)
    for name, leaf in wanted.items():
        kept = delivery.memory[name]
        scale = leaf.abs() + arrived[name].abs() + kept.abs()
        lost = (arrived[name].double() + kept.double() - leaf.double()).abs()
        assert bool((lost <= 1e-6 * scale).all()), f"{name}: what arrived and what is kept do not make the message"


def planning_imports_no_torch(case: ChannelCase) -> None:
    """Planning reads every plug-in's options in each of thousands of jobs."""
    imports_no_torch(CHANNELS[case.codec].target)


CHANNEL_CHECKS: dict[str, Callable[[ChannelCase], None]] = {
    check.__name__: check
    for check in (
        payloads_are_what_arrives,
        payloads_follow_from_message_and_stream,
        empty_messages_are_no_byte,
        uplink_delivers_one_mean,
        inputs_stay_as_they_were,
        nothing_is_lost,
        planning_imports_no_torch,
    )
}


def _one_by_one(case: ChannelCase) -> bool:
    """Whether clients send by themselves; a codec that runs the whole exchange has no payload of one client."""
    target = CHANNELS[case.codec].target
    return target.uplink is Channel.uplink


def _memory(channel: Channel, clients: int) -> Tree:
    return {name: leaf.expand(clients, *leaf.shape).clone() for name, leaf in channel.init_memory().items()}


def _same(tree: Tree, other: Tree, complaint: str) -> None:
    for name, leaf in tree.items():
        assert torch.equal(leaf, other[name]), f"{complaint}: {name}"
