"""One communication round: select, send, train, receive, aggregate, and one commit."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedbench.channels.channel import Channel, Delivery, downlink_bytes
from fedbench.engine.chunk import Chunk
from fedbench.engine.client_store import ClientStore
from fedbench.engine.clients import ClientTrainer
from fedbench.engine.declared import declared_values
from fedbench.engine.state import FederationState
from fedbench.models.optim import cosine
from fedbench.randomness import stream
from fedbench.tree import Tree, concatenate, expand, norm, subtract

if TYPE_CHECKING:
    from fedbench.config.entries import Training

# (seed, round, number of clients, participation) -> the round's clients, as positions among those that can be drawn
Sampler = Callable[[int, int, int, float], list[int]]


def sample_cohort(seed: int, round_number: int, clients: int, participation: float) -> list[int]:
    """The round's clients, sorted: max(1, round(participation * clients)) without replacement."""
    size = max(1, round(participation * clients))
    chosen = stream(seed, "cohort", round_number).choice(clients, size=size, replace=False)
    return sorted(int(client) for client in chosen)


def lr_factor(training: Training, round_number: int) -> float:
    """What a round (counted from 1) multiplies the learning rate with."""
    return 1.0 if training.schedule == "constant" else cosine(round_number - 1, training.rounds)


@dataclass(frozen=True)
class RoundResult:
    """A round that is done.

    Attributes
    ----------
    state : afterwards; a round that diverged changes nothing in it but its number
    cohort : who took part
    train_loss : mean of the cohort's losses
    learning_rate : the round's
    uplink_bytes, downlink_bytes : of each client of the cohort
    diagnostics : the method's own columns
    update_norm : length of the mean message as it arrived; None where nothing travelled
    diverged : whether a loss, a message or their mean is not finite
    """

    state: FederationState
    cohort: list[int]
    train_loss: float
    learning_rate: float
    uplink_bytes: list[int]
    downlink_bytes: list[int]
    diagnostics: dict[str, float]
    update_norm: float | None
    diverged: bool


@dataclass(frozen=True)
class Work:
    """What a cohort hands back, stacked in its order: messages, new private leaves, what was observed, losses [K]."""

    messages: Tree
    private: Tree
    observed: Tree
    losses: torch.Tensor


@dataclass(frozen=True)
class Received:
    """What the server has of a cohort's messages, and the channel's state then; nothing where none travelled."""

    delivery: Delivery | None = None
    channel: Tree = field(default_factory=dict)
    update_norm: float | None = None


class Server:
    """Makes one state of a federation into the next.

    Parameters
    ----------
    trainer : trains chunks of clients
    channel : carries messages
    chunk : clients trained at once
    create_private : client -> the private leaves that it begins with
    held_out : clients that are never in a cohort
    sampler : draws each round's cohort
    """

    def __init__(
        self,
        trainer: ClientTrainer,
        channel: Channel,
        chunk: Chunk,
        create_private: Callable[[int], Tree],
        held_out: Collection[int] = (),
        sampler: Sampler = sample_cohort,
    ):
        self.trainer, self.channel, self.chunk = trainer, channel, chunk
        self.create_private, self.sampler = create_private, sampler
        self.method, self.training, self.seed = trainer.method, trainer.training, trainer.seed
        self.device = trainer.population.device
        self.held_out = frozenset(held_out)

    @property
    def members(self) -> list[int]:
        """The clients that can be drawn."""
        return [client for client in range(len(self.trainer.population.train_samples)) if client not in self.held_out]

    def private(self, state: FederationState) -> ClientStore:
        """What clients keep to themselves."""
        return ClientStore(self.create_private, state.private)

    def memory(self, state: FederationState) -> ClientStore:
        """What the channel keeps with each client."""
        return ClientStore(lambda client: self.channel.init_memory(), state.memory)

    def round(self, state: FederationState, number: int) -> RoundResult:
        """Run round `number`, counted from 1, on `state`, which stays as it is.

        Raises
        ------
        StopNow
            If a stop was requested.
        """
        cohort, factor = self._select(number), lr_factor(self.training, number)
        sent = self._send(state, cohort, number)
        work = self._train(state, cohort, number, factor)
        weights = self._weights(cohort)
        # a norm is finite exactly if all values are (and no square overflows), and takes one pass
        finite = bool(torch.isfinite(work.losses).all()) and math.isfinite(norm(work.messages))
        diagnostics, received = {}, Received()
        if finite:
            found = self.method.diagnostics(state.shared, work.messages, weights, work.observed)
            diagnostics = declared_values(self.method, found)
            received = self._receive(state, cohort, work, weights, number)
            finite = received.update_norm is None or math.isfinite(received.update_norm)
        new = replace(state, round_number=number)
        if finite:
            new = self._commit(new, cohort, work, received, self._aggregate(state, cohort, received))
        return RoundResult(
            state=new,
            cohort=cohort,
            train_loss=float(work.losses.mean()),
            learning_rate=factor * self.training.learning_rate,
            **self._bytes(sent, received),
            diagnostics=diagnostics,
            update_norm=received.update_norm,
            diverged=not finite,
        )

    def _select(self, number: int) -> list[int]:
        members = self.members
        drawn = self.sampler(self.seed, number, len(members), self.training.participation)
        return [members[position] for position in drawn]

    def _send(self, state: FederationState, cohort: list[int], number: int) -> list[int]:
        """Bytes down for each client: the last change where it took part in the round before, else everything."""
        if not self.method.communicates:
            return [0] * len(cohort)
        full, recent = downlink_bytes(state.shared, None, None), number - 1
        return [state.update_bytes if state.seen.get(client, -1) == recent else full for client in cohort]

    def _train(self, state: FederationState, cohort: list[int], number: int, factor: float) -> Work:
        order = sorted(cohort, key=lambda client: (-self.trainer.steps(client), client))
        done = self.chunk.each(order, lambda clients: self._train_chunk(state, clients, number, factor))
        back = torch.tensor([order.index(client) for client in cohort])
        parts = [work for _, work in done]
        messages, private, observed = (
            _reorder([getattr(work, name) for work in parts], back) for name in ("messages", "private", "observed")
        )
        return Work(messages, private, observed, torch.cat([work.losses for work in parts]).cpu()[back])

    def _train_chunk(self, state: FederationState, clients: Sequence[int], number: int, factor: float) -> Work:
        received = expand(state.shared, len(clients))
        own = self.private(state).gather(clients, self.device)
        trained = self.trainer.train(clients, received, own, number, factor)
        message, private = self.method.finish(trained.result)
        return Work(message, private, self.method.observe(own, private, trained.gradients), trained.losses)

    def _receive(
        self, state: FederationState, cohort: list[int], work: Work, weights: torch.Tensor, number: int
    ) -> Received:
        if not work.messages:
            return Received()
        streams = [stream(self.seed, "channel", number, client) for client in cohort]
        memory = self.memory(state).gather(cohort, self.device)
        channel = self.channel.relative_to(state.shared)
        delivery, after = channel.uplink(work.messages, weights, memory, state.channel, streams.__getitem__)
        return Received(delivery, after, norm(delivery.mean))

    def _aggregate(self, state: FederationState, cohort: list[int], received: Received) -> dict[str, Any]:
        """The server's own part of the new state."""
        delivery = received.delivery
        if delivery is None:
            return {}
        share = len(cohort) / len(self.members)
        shared, server = self.method.aggregate(state.shared, delivery.mean, state.server, share)
        compact = delivery.change_bytes if self.method.additive else None
        update_bytes = downlink_bytes(shared, subtract(shared, state.shared), compact)
        return {"shared": shared, "server": server, "channel": received.channel, "update_bytes": update_bytes}

    def _commit(
        self, state: FederationState, cohort: list[int], work: Work, received: Received, of_server: dict[str, Any]
    ) -> FederationState:
        taken = self._everyone() if self.method.pooled else cohort
        memory = state.memory
        if received.delivery is not None:
            memory = self.memory(state).updated(cohort, received.delivery.memory)
        return replace(
            state,
            **of_server,
            private=self.private(state).updated(cohort, work.private),
            memory=memory,
            seen={**state.seen, **dict.fromkeys(taken, state.round_number)},
            participations={
                **state.participations,
                **{client: state.participations.get(client, 0) + 1 for client in taken},
            },
        )

    def _everyone(self) -> list[int]:
        """The clients whose data pooled training sees."""
        population = self.trainer.population
        return [client for client in range(population.clients) if client not in population.held_out]

    def _bytes(self, sent: list[int], received: Received) -> dict[str, list[int]]:
        if received.delivery is None or not self.method.communicates:
            return {"uplink_bytes": [0] * len(sent), "downlink_bytes": sent}
        extra = received.delivery.downlink_bytes
        down = [first + more for first, more in zip(sent, extra, strict=True)]
        return {"uplink_bytes": received.delivery.uplink_bytes, "downlink_bytes": down}

    def _weights(self, cohort: list[int]) -> torch.Tensor:
        sizes = np.array([len(self.trainer.population.train_samples[client]) for client in cohort], np.float64)
        weights = (
            sizes / sizes.sum() if self.training.aggregation == "samples" else np.full(len(cohort), 1 / len(cohort))
        )
        return torch.from_numpy(weights).to(self.device)


def _reorder(parts: Sequence[Tree], index: torch.Tensor) -> Tree:
    whole = concatenate(parts)
    if torch.equal(index, torch.arange(len(index))):
        return whole
    return {name: leaf[index.to(leaf.device)] for name, leaf in whole.items()}
