"""Channels: what becomes of messages between clients and server, and how many bytes that is.

Bytes are lengths of what is serialised. Both ends know the message's names, shapes and the codec from the
run's spec, so a payload carries values and whatever the codec needs to decode them, and no header.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedbench.channels._indices import sparse_size
from fedbench.lazy import torch
from fedbench.tree import count, rows, stack, weighted_mean

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedbench.tree import Tree

Streams = Callable[[int], "np.random.Generator"]


@dataclass(frozen=True)
class Delivery:
    """One round's uplink.

    Attributes
    ----------
    mean : Tree
        The weighted mean of the messages as the server decoded them.
    memory : Tree
        The clients' channel memories afterwards, stacked.
    uplink_bytes : list of int, per client
    downlink_bytes : list of int, per client
        Extra bytes that the exchange itself sent down within the round (two-step codecs).
    change_bytes : int or None
        Bytes of a compact lossless form of `mean`, where the codec knows one. Where clients send one by one, that is
        all of their payloads, passed on: cheaper than the dense mean for few clients or very short codes.
    """

    mean: Tree
    memory: Tree
    uplink_bytes: list[int]
    downlink_bytes: list[int]
    change_bytes: int | None = None


class Channel:
    """A codec for trees; subclasses implement `pack` and `unpack`, or `uplink` where clients interact.

    Parameters
    ----------
    options : the codec's option class
    template : Tree
        One client's message (values do not matter): names, shapes and dtypes that both ends know.
    """

    def __init__(self, options: Any, template: Tree):
        self.options = options
        self.template = {name: torch.empty_like(leaf, device="cpu") for name, leaf in template.items()}

    @staticmethod
    def objection(options: Any, error_feedback: bool) -> str | None:
        """Why these options, or error feedback around them, make no sense; None if they do.

        Called when a config is validated, without torch.
        """
        return None

    def relative_to(self, shared: Tree) -> Channel:
        """This channel for messages that are changes of `shared`, which clients have received.

        Only codecs that code something else than the change make use of it.
        """
        return self

    def init_memory(self) -> Tree:
        """One client's channel memory before its first message; {} if the codec keeps none."""
        return {}

    def init_server(self) -> Tree:
        """State that server and clients share about the channel (for example a warm start); {} if none."""
        return {}

    def pack(self, message: Tree, rng: np.random.Generator) -> bytes:
        """Serialise one client's message (CPU tensors)."""
        raise NotImplementedError

    def unpack(self, payload: bytes) -> Tree:
        """What the server makes of a payload."""
        raise NotImplementedError

    def transmit(self, messages: Tree, streams: Streams) -> tuple[Tree, list[int]]:
        """Send K messages through the codec, one by one.

        Parameters
        ----------
        messages : stacked tree
        streams : position in the cohort -> that client's generator for this round

        Returns
        -------
        (messages as decoded, payload lengths)
        """
        decoded, sizes = [], []
        clients = next(iter(messages.values())).shape[0]
        for position in range(clients):
            message = {name: leaf.cpu() for name, leaf in rows(messages, position).items()}
            payload = self.pack(message, streams(position))
            decoded.append(self.unpack(payload))
            sizes.append(len(payload))
        devices = {name: leaf.device for name, leaf in messages.items()}
        return {name: leaf.to(devices[name]) for name, leaf in stack(decoded).items()}, sizes

    def uplink(
        self, messages: Tree, weights: Tensor, memory: Tree, server: Tree, streams: Streams
    ) -> tuple[Delivery, Tree]:
        """Deliver a cohort's messages to the server.

        Parameters
        ----------
        messages : stacked tree, clients in cohort order
        weights : Tensor [K], summing to one
        memory : the clients' channel memories, stacked
        server : the channel's shared state

        Returns
        -------
        (delivery, new shared state)
        """
        received, sizes = self.transmit(messages, streams)
        return Delivery(weighted_mean(received, weights), memory, sizes, [0] * len(sizes), sum(sizes)), server


def dense_bytes(tree: Tree) -> int:
    """Length of the values themselves, without header."""
    return sum(leaf.numel() * leaf.element_size() for leaf in tree.values())


def downlink_bytes(shared: Tree, change: Tree | None, change_bytes: int | None) -> int:
    """Bytes of the cheapest lossless form in which a client learns the shared leaves.

    Parameters
    ----------
    shared : what the client must hold afterwards
    change : difference to what it holds now; None if it holds nothing recent
    change_bytes : length of the codec's own compact form of that difference, if it has one

    Notes
    -----
    A client that took part in the previous round can be sent the change, densely, as sorted indices and
    values, or in the codec's form; any other client needs the leaves themselves.
    """
    sizes = [dense_bytes(shared)]
    if change is not None:
        size, changed = count(change), sum(int(leaf.count_nonzero()) for leaf in change.values())

        def positions() -> np.ndarray:
            return torch.cat([leaf.flatten() for leaf in change.values()]).nonzero().flatten().cpu().numpy()

        sizes.append(sparse_size(changed, size, positions))
        if change_bytes is not None:
            sizes.append(change_bytes)
    return min(sizes)
