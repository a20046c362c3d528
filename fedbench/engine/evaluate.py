"""Accuracy of every client: with its own weights, and with the shared ones.

A client that never took part is evaluated with the shared weights. Where a method keeps nothing private,
one pass over all samples with the shared weights serves both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedbench.lazy import functional
from fedbench.randomness import stream
from fedbench.tree import expand, to_device

if TYPE_CHECKING:
    from fedbench.engine.clients import ClientTrainer
    from fedbench.engine.store import ClientStore
    from fedbench.methods.base import Phase
    from fedbench.tree import Tree

IMAGES = {"cpu": 256, "cuda": 2048}  # per forward pass


@dataclass(frozen=True)
class Evaluation:
    """Accuracies in 0..1; vectors are [clients], float64.

    Attributes
    ----------
    personal, validation : own weights on own test and validation samples (validation is NaN without any)
    shared : shared weights on own test samples
    global_accuracy, global_loss : shared weights on the whole test split
    held_out : clients that are not in the federation; means over clients leave them out
    """

    personal: np.ndarray
    validation: np.ndarray
    shared: np.ndarray
    global_accuracy: float
    global_loss: float
    held_out: Sequence[int] = ()


class Evaluator:
    """Evaluates a method's clients.

    Parameters
    ----------
    trainer : for the method, the data and the arithmetic
    chunk : clients whose own weights are on the device at once
    """

    def __init__(self, trainer: ClientTrainer, chunk: int):
        self.trainer = trainer
        self.method, self.population = trainer.method, trainer.population
        self.chunk = chunk
        self.images = IMAGES[self.population.device.type]

    def evaluate(self, shared: Tree, store: ClientStore, trained: Sequence[int]) -> Evaluation:
        """Evaluate all clients; `trained` are those that have taken part and hold private leaves.

        Where the method fine-tunes before evaluation, every client does, also one that never took part. Held-out
        clients train for as long as the run gives them, and without that have the shared weights.
        """
        population = self.population
        weights = expand(to_device(self.method.global_weights(shared), population.device), 1)
        correct, losses = self._shared_pass(weights, np.concatenate(population.test))
        own = np.array([part.mean() for part in _cut(correct, population.test)])
        validation = self._validation(weights)
        personal = own.copy()
        for clients, phases, new in self._chunks(trained):
            received, private = expand(shared, len(clients)), store.gather(clients, population.device)
            if new:
                private = self.method.newcomer(received, private)
            if phases:
                received, private = self.trainer.fine_tune(phases, clients, received, private)
            stacked = self.method.personal(received, private)
            if self.method.context_images:
                stacked = {**stacked, **self._context(stacked, clients)}
            personal[clients] = self._own_accuracies(stacked, [population.test[c] for c in clients])
            if not np.isnan(validation[clients]).all():
                validation[clients] = self._own_accuracies(stacked, [population.validation[c] for c in clients])
        return Evaluation(personal, validation, own, float(correct.mean()), float(losses.mean()), population.held_out)

    def _chunks(self, trained: Sequence[int]) -> Iterator[tuple[list[int], tuple[Phase, ...], bool]]:
        """(clients, their training for evaluation, whether they never took part) for all with weights of their own."""
        population, training = self.population, self.trainer.training
        epochs = training.fine_tune_epochs if training.held_out_epochs is None else training.held_out_epochs
        tuned = self.method.evaluation_phases(training.fine_tune_epochs)
        tuned_held_out = self.method.evaluation_phases(epochs)
        never = set(range(population.clients)).difference(trained, population.held_out)
        parts = [(trained, tuned, False)]
        parts += [(never, tuned, True)] if tuned else []
        parts += [(population.held_out, tuned_held_out, True)] if tuned_held_out else []
        for members, phases, new in parts:
            order = sorted(members, key=lambda client: (-len(population.train[client]), client))
            for start in range(0, len(order), self.chunk):
                yield order[start : start + self.chunk], phases, new

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
        return np.array([part.mean() if len(part) else np.nan for part in _cut(correct, parts)])

    @torch.inference_mode()
    def _shared_pass(self, weights: Tree, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(correct, loss) of each sample under one set of weights."""
        correct, losses = [], []
        for start in range(0, len(indices), self.images):
            batch = indices[None, start : start + self.images]
            labels = self.population.labels(batch)[0]
            logits = self._logits(weights, batch)[0]
            correct.append(logits.argmax(1) == labels)
            losses.append(functional.cross_entropy(logits, labels, reduction="none"))
        return torch.cat(correct).double().cpu().numpy(), torch.cat(losses).double().cpu().numpy()

    @torch.inference_mode()
    def _own_accuracies(self, stacked: Tree, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Accuracy of each client's weights on its own samples, [K]; NaN for a client without samples."""
        lengths = np.array([len(part) for part in parts])
        hits = torch.zeros(len(parts), dtype=torch.float64, device=self.population.device)
        width = max(1, self.images // len(parts))
        for start in range(0, int(lengths.max()), width):
            here = [k for k, length in enumerate(lengths) if length > start]
            block = np.zeros((len(here), min(width, int(lengths.max()) - start)), np.int64)
            mask = np.zeros(block.shape, bool)
            for row, k in enumerate(here):
                piece = parts[k][start : start + width]
                block[row, : len(piece)], mask[row, : len(piece)] = piece, True
            index = torch.tensor(here, device=self.population.device)
            logits = self._logits({name: leaf[index] for name, leaf in stacked.items()}, block)
            right = (logits.argmax(2) == self.population.labels(block)) & torch.from_numpy(mask).to(logits.device)
            hits[index] += right.sum(1)
        with np.errstate(invalid="ignore"):
            return hits.cpu().numpy() / np.where(lengths, lengths, np.nan)

    def _logits(self, stacked: Tree, indices: np.ndarray) -> torch.Tensor:
        with self.trainer.autocast():
            return self.method.task.logits(stacked, self.population.images(indices)).float()


def _cut(values: np.ndarray, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Undo the concatenation of the clients' parts."""
    return np.split(values, np.cumsum([len(part) for part in parts])[:-1])
