"""One communication round: sample, send down, train, send up, aggregate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedbench.channels.channel import Channel, downlink_bytes
from fedbench.engine.checkpoint import State
from fedbench.engine.chunk import Chunk
from fedbench.engine.client_store import ClientStore
from fedbench.engine.clients import ClientTrainer
from fedbench.engine.declared import declared_values
from fedbench.randomness import stream
from fedbench.tree import Tree, concatenate, expand, norm, subtract

if TYPE_CHECKING:
    from fedbench.config.entries import Training


def sample_cohort(seed: int, round_number: int, clients: int, participation: float) -> list[int]:
    """The round's clients, sorted: max(1, round(participation * clients)) without replacement."""
    size = max(1, round(participation * clients))
    chosen = stream(seed, "cohort", round_number).choice(clients, size=size, replace=False)
    return sorted(int(client) for client in chosen)


def rate(training: Training, round_number: int) -> float:
    """Learning-rate factor of a round (counted from 1)."""
    if training.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (round_number - 1) / training.rounds))


class Server:
    """The federation of one run.

    Parameters
    ----------
    trainer : trains chunks of clients
    channel : carries messages
    state : what the rounds change, in place; a round that is abandoned changes nothing
    private, memory : the clients' stores, views of `state`
    chunk : clients trained at once
    held_out : clients that are never in a cohort
    """

    def __init__(
        self,
        trainer: ClientTrainer,
        channel: Channel,
        state: State,
        private: ClientStore,
        memory: ClientStore,
        chunk: Chunk,
        held_out: Sequence[int] = (),
    ):
        self.trainer, self.channel, self.state = trainer, channel, state
        self.private, self.memory = private, memory
        self.chunk, self.held_out = chunk, frozenset(held_out)
        self.method, self.training, self.seed = trainer.method, trainer.training, trainer.seed

    def round(self, round_number: int) -> dict[str, Any]:
        """Run one round; returns its row, without evaluation.

        Raises
        ------
        StopNow
            If a stop was requested; the state is then as before the round.
        """
        state, device = self.state, self.trainer.population.device
        members = [
            client for client in range(len(self.trainer.population.train_samples)) if client not in self.held_out
        ]
        drawn = sample_cohort(self.seed, round_number, len(members), self.training.participation)
        cohort = [members[position] for position in drawn]
        factor = rate(self.training, round_number)
        downlink = self._downlink(cohort, round_number)
        messages, private, observed, losses = self._train(cohort, round_number, factor)
        row: dict[str, Any] = {
            "round": round_number,
            "cohort": " ".join(map(str, cohort)),
            "train_loss": float(losses.mean()),
            "lr": factor * self.training.learning_rate,
        }
        uplink = [0] * len(cohort)
        weights = self._weights(cohort).to(device)
        # a norm is finite exactly if all values are (and no square overflows), and takes one pass
        finite = bool(torch.isfinite(losses).all()) and math.isfinite(norm(messages))
        if finite:
            found = self.method.diagnostics(state.shared, messages, weights, observed)
            row |= declared_values(self.method, found)
        if messages and finite:
            streams = [stream(self.seed, "channel", round_number, client) for client in cohort]
            memory = self.memory.gather(cohort, device)
            channel = self.channel.relative_to(state.shared)
            delivery, state.channel = channel.uplink(messages, weights, memory, state.channel, streams.__getitem__)
            shared, state.server = self.method.aggregate(
                state.shared, delivery.mean, state.server, len(cohort) / len(members)
            )
            change = subtract(shared, state.shared)
            compact = delivery.change_bytes if self.method.additive else None
            state.update_bytes = downlink_bytes(shared, change, compact)
            state.shared = shared
            self.memory.scatter(cohort, delivery.memory)
            row["update_norm"] = norm(delivery.mean)
            finite = math.isfinite(row["update_norm"])
            if self.method.communicates:
                uplink = delivery.uplink_bytes
                downlink = [down + extra for down, extra in zip(downlink, delivery.downlink_bytes, strict=True)]
        if finite:
            self.private.scatter(cohort, private)
            for client in self._everyone() if self.method.pooled else cohort:
                state.seen[client] = round_number
                state.participations[client] = state.participations.get(client, 0) + 1
        else:
            state.diverged_round = round_number
        state.round_number = round_number
        row["diverged"] = int(not finite)
        return row | self._bytes(uplink, downlink)

    def _everyone(self) -> list[int]:
        """The clients whose data pooled training sees."""
        population = self.trainer.population
        return [client for client in range(population.clients) if client not in population.held_out]

    def _downlink(self, cohort: list[int], round_number: int) -> list[int]:
        if not self.method.communicates:
            return [0] * len(cohort)
        full = downlink_bytes(self.state.shared, None, None)
        recent = round_number - 1
        return [self.state.update_bytes if self.state.seen.get(c, -1) == recent else full for c in cohort]

    def _bytes(self, uplink: list[int], downlink: list[int]) -> dict[str, Any]:
        totals = self.state.totals
        totals["uplink"] = totals.get("uplink", 0) + sum(uplink)
        totals["downlink"] = totals.get("downlink", 0) + sum(downlink)
        return {
            "uplink_bytes": sum(uplink),
            "downlink_bytes": sum(downlink),
            "uplink_bytes_per_client": sum(uplink) / len(uplink),
            "downlink_bytes_per_client": sum(downlink) / len(downlink),
            "cumulative_bytes": totals["uplink"] + totals["downlink"],
        }

    def _weights(self, cohort: list[int]) -> torch.Tensor:
        sizes = np.array([len(self.trainer.population.train_samples[client]) for client in cohort], np.float64)
        weights = (
            sizes / sizes.sum() if self.training.aggregation == "samples" else np.full(len(cohort), 1 / len(cohort))
        )
        return torch.from_numpy(weights)

    def _train(self, cohort: list[int], round_number: int, factor: float) -> tuple[Tree, Tree, Tree, torch.Tensor]:
        """Messages, new private leaves, what was observed, and losses of the cohort, stacked in cohort order."""
        order = sorted(cohort, key=lambda client: (-self.trainer.steps(client), client))
        done = self.chunk.each(order, lambda clients: self._train_chunk(clients, round_number, factor))
        messages, private, observed, losses = zip(*(result for _, result in done), strict=True)
        back = torch.tensor([order.index(client) for client in cohort])
        return (
            _reorder(messages, back),
            _reorder(private, back),
            _reorder(observed, back),
            torch.cat(losses).cpu()[back],
        )

    def _train_chunk(
        self, clients: Sequence[int], round_number: int, factor: float
    ) -> tuple[Tree, Tree, Tree, torch.Tensor]:
        received = expand(self.state.shared, len(clients))
        own = self.private.gather(clients, self.trainer.population.device)
        trained = self.trainer.train(clients, received, own, round_number, factor)
        message, private = self.method.finish(trained.result)
        return message, private, self.method.observe(own, private, trained.gradients), trained.losses


def _reorder(parts: Sequence[Tree], index: torch.Tensor) -> Tree:
    whole = concatenate(parts)
    if torch.equal(index, torch.arange(len(index))):
        return whole
    return {name: leaf[index.to(leaf.device)] for name, leaf in whole.items()}
