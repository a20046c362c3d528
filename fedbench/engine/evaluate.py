"""Accuracy of every client: with its own weights, and with the shared ones.

A client that never took part is evaluated with the shared weights. Where a method keeps nothing private,
one pass over all samples with the shared weights serves both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedbench.engine.chunk import Chunk
from fedbench.lazy import functional
from fedbench.randomness import stream
from fedbench.tree import expand, to_device

if TYPE_CHECKING:
    from fedbench.engine.client_store import ClientStore
    from fedbench.engine.clients import ClientTrainer
    from fedbench.methods.method import Phase
    from fedbench.tree import Tree

IMAGES = {"cpu": 256, "cuda": 2048}  # per forward pass

Right = tuple[list[np.ndarray], list[np.ndarray]]  # which test and which validation samples of each client


@dataclass(frozen=True)
class Evaluation:
    """Accuracies in 0..1; vectors are [clients], float64.

    Attributes
    ----------
    personal, validation : own weights on own test and validation samples (validation is NaN without any)
    shared : shared weights on own test samples
    domain_personal, domain_shared : the same by domain, pooled over the federation's test samples of each, [domains]
        (NaN for a domain without any)
    global_accuracy, global_loss : shared weights on the whole test split
    held_out : clients that are not in the federation; means over clients leave them out
    diagnostics : the method's own columns of an evaluated round
    """

    personal: np.ndarray
    validation: np.ndarray
    shared: np.ndarray
    domain_personal: np.ndarray
    domain_shared: np.ndarray
    global_accuracy: float
    global_loss: float
    held_out: Sequence[int] = ()
    diagnostics: Mapping[str, Any] = field(default_factory=dict)


class Evaluator:
    """Evaluates a method's clients.

    Parameters
    ----------
    trainer : for the method, the data and the arithmetic
    chunk : clients whose own weights are on the device at once
    """

    def __init__(self, trainer: ClientTrainer, chunk: Chunk):
        self.trainer = trainer
        self.method, self.population = trainer.method, trainer.population
        self.chunk = chunk
        self.images = Chunk(IMAGES[self.population.device.type], chunk.say, "images")

    def evaluate(self, shared: Tree, store: ClientStore, trained: Sequence[int]) -> Evaluation:
        """Evaluate all clients; `trained` are those that have taken part and hold private leaves.

        Where the method fine-tunes before evaluation, every client does, also one that never took part. Held-out
        clients train for as long as the run gives them, and without that have the shared weights.
        """
        population = self.population
        weights = expand(to_device(self.method.global_weights(shared), population.device), 1)
        correct, losses = self._shared_pass(weights, np.concatenate(population.test))
        shared_right = _cut(correct, population.test)
        personal_right = list(shared_right)
        validation = self._validation(weights)
        for members, phases, new in self._groups(trained):

            def own(clients: Sequence[int], phases=phases, new=new) -> Right:
                return self._own(clients, phases, new, shared, store, validation)

            for clients, (right, right_validation) in self.chunk.each(members, own):
                for client, hits in zip(clients, right, strict=True):
                    personal_right[client] = hits
                if right_validation:
                    validation[clients] = _means(right_validation)
        return Evaluation(
            _means(personal_right),
            validation,
            _means(shared_right),
            self._by_domain(personal_right),
            self._by_domain(shared_right),
            float(correct.mean()),
            float(losses.mean()),
            population.held_out,
        )

    def _groups(self, trained: Sequence[int]) -> Iterator[tuple[list[int], tuple[Phase, ...], bool]]:
        """(clients, their training for evaluation, whether they never took part) for all with weights of their own."""
        population, training = self.population, self.trainer.training
        epochs = training.fine_tune_epochs if training.held_out_epochs is None else training.held_out_epochs
        tuned = self.method.evaluation_phases(training.fine_tune_epochs)
        tuned_held_out = self.method.evaluation_phases(epochs)
        never = set(range(population.clients)).difference(trained, population.held_out)
        parts: list[tuple[Collection[int], tuple[Phase, ...], bool]] = [(trained, tuned, False)]
        parts += [(never, tuned, True)] if tuned else []
        parts += [(population.held_out, tuned_held_out, True)] if tuned_held_out else []
        for members, phases, new in parts:
            yield sorted(members, key=lambda client: (-len(population.train[client]), client)), phases, new

    def _own(
        self,
        clients: Sequence[int],
        phases: tuple[Phase, ...],
        new: bool,
        shared: Tree,
        store: ClientStore,
        validation: np.ndarray,
    ) -> Right:
        """What `clients` get right with weights of their own: test samples and, if any of them has some, validation."""
        received, private = expand(shared, len(clients)), store.gather(clients, self.population.device)
        if new:
            private = self.method.newcomer(received, private)
        if phases:
            received, private = self.trainer.fine_tune(phases, clients, received, private)
        stacked = self.method.personal(received, private)
        if self.method.context_images:
            stacked = {**stacked, **self._context(stacked, clients)}
        test = self._own_right(stacked, self.population.test, clients)
        if np.isnan(validation[clients]).all():
            return test, []
        return test, self._own_right(stacked, self.population.validation, clients)

    @torch.inference_mode()
    def _context(self, stacked: Tree, clients: Sequence[int]) -> Tree:
        """The method's further leaves from training images that depend on the client alone."""
        size = self.method.context_images
        indices, mask = np.zeros((len(clients), size), np.int64), np.zeros((len(clients), size), bool)
        for row, client in enumerate(clients):
            own = self.population.train[client]
            drawn = stream(self.trainer.seed, "context", client).permutation(own)[:size]
            indices[row], mask[row, : len(drawn)] = own[0], True
            indices[row, : len(drawn)] = drawn
        with self.trainer.autocast():
            images = self.population.images(indices)
            return self.method.context(stacked, images, torch.from_numpy(mask).to(images.device))

    def _validation(self, weights: Tree) -> np.ndarray:
        parts = self.population.validation
        if not sum(map(len, parts)):
            return np.full(len(parts), np.nan)
        correct, _ = self._shared_pass(weights, np.concatenate(parts))
        return _means(_cut(correct, parts))

    def _by_domain(self, right: Sequence[np.ndarray]) -> np.ndarray:
        """Share of right answers among each domain's test samples, [domains]; held-out clients' are left out."""
        members = [client for client in range(self.population.clients) if client not in self.population.held_out]
        domains = self.population.domains[np.concatenate([self.population.test[client] for client in members])]
        size = len(self.population.domain_names)
        hits = np.bincount(domains, np.concatenate([right[client] for client in members]), size)
        counts = np.bincount(domains, minlength=size)
        return np.divide(hits, counts, out=np.full(size, np.nan), where=counts > 0)

    @torch.inference_mode()
    def _shared_pass(self, weights: Tree, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(correct, loss) of each sample under one set of weights."""

        def right_and_loss(part: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
            batch = part[None]
            labels, logits = self.population.labels(batch)[0], self._logits(weights, batch)[0]
            return logits.argmax(1) == labels, functional.cross_entropy(logits, labels, reduction="none")

        done = (result for _, result in self.images.each(indices, right_and_loss))
        correct, losses = (torch.cat(parts).double().cpu().numpy() for parts in zip(*done, strict=True))
        return correct, losses

    @torch.inference_mode()
    def _own_right(self, stacked: Tree, samples: Sequence[np.ndarray], clients: Sequence[int]) -> list[np.ndarray]:
        """Which of its own samples each of K clients gets right with its own weights."""
        parts = [samples[client] for client in clients]
        lengths = np.array([len(part) for part in parts])
        right = torch.zeros(len(parts), int(lengths.max()), dtype=torch.float64, device=self.population.device)

        def fill(span: range) -> None:
            here = [k for k, length in enumerate(lengths) if length > span.start]
            block = np.zeros((len(here), len(span)), np.int64)
            for row, k in enumerate(here):
                piece = parts[k][span.start : span.stop]
                block[row, : len(piece)] = piece  # what lies beyond it is cut off below
            index = torch.tensor(here, device=self.population.device)
            logits = self._logits({name: leaf[index] for name, leaf in stacked.items()}, block)
            hits = logits.argmax(2) == self.population.labels(block)
            right[index, span.start : span.stop] = hits.double()

        self.images.each(range(int(lengths.max())), fill, width=len(parts))
        return [row[:length] for row, length in zip(right.cpu().numpy(), lengths, strict=True)]

    def _logits(self, stacked: Tree, indices: np.ndarray) -> torch.Tensor:
        with self.trainer.autocast():
            return self.method.task.logits(stacked, self.population.images(indices)).float()


def _means(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Mean of each part, [K]; NaN where a client has no samples."""
    return np.array([part.mean() if len(part) else np.nan for part in parts])


def _cut(values: np.ndarray, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Undo the concatenation of the clients' parts."""
    return np.split(values, np.cumsum([len(part) for part in parts])[:-1])
