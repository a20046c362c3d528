"""Tasks: a classifier, the space in which it is trained, and the loss of K clients at once.

A task turns stacked trainables ``{name: [K, ...]}`` and a stacked batch into K losses; the sum's
gradient on the stacked leaves is each client's own gradient. Two kinds exist. *Weight tasks*
(this file) replace weights of the classifier, one set per client, under ``vmap`` or one client
after another. *Adapter tasks* (:mod:`fedbench.models.lora`) send all clients' images through the
frozen trunk as one flat batch and only the adapters and the head are per client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbench.lazy import functional, torch

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedbench.models.classifier import Classifier
    from fedbench.tree import Tree


@dataclass(frozen=True)
class Batch:
    """One step's samples of K clients.

    Attributes
    ----------
    images : Tensor [K, B, C, H, W], normalised
    labels : Tensor [K, B], int64
    mask : Tensor [K, B], bool, or None where every client fills its batch
    """

    images: Tensor
    labels: Tensor
    mask: Tensor | None = None


class Task:
    """A classifier with some trainable leaves; subclasses say which and how they act."""

    def __init__(self, classifier: Classifier):
        self.classifier = classifier
        classifier.requires_grad_(False)

    @property
    def head_trains(self) -> bool:
        return not self.classifier.head_is_frozen

    def head(self) -> Tree:
        """Copies of the head's weights where the model's head is trainable; {} where it is frozen."""
        if not self.head_trains:
            return {}
        return {f"head.{name}": leaf.detach().clone() for name, leaf in self.classifier.head.named_parameters()}

    def init(self, rng: np.random.Generator) -> Tree:
        """Initial values of the leaves that every client starts from (one set, no client axis)."""
        raise NotImplementedError

    def logits(self, stacked: Tree, images: Tensor) -> Tensor:
        """Logits [K, B, classes] of K clients' images [K, B, C, H, W]."""
        raise NotImplementedError

    def chunk(self, batch_size: int, device) -> int:
        """How many clients to train at once (a fixed rule: timing here would make results depend on the moment)."""
        raise NotImplementedError

    def losses(self, stacked: Tree, batch: Batch) -> Tensor:
        """Each client's mean cross-entropy over its own samples, [K]."""
        logits = self.logits(stacked, batch.images)
        losses = functional.cross_entropy(
            logits.flatten(0, 1).float(), batch.labels.flatten(), reduction="none"
        ).view_as(batch.labels)
        if batch.mask is None:
            return losses.mean(1)
        return (losses * batch.mask).sum(1) / batch.mask.sum(1)


class WeightTask(Task):
    """Named weights of the classifier train; the others stay as they are.

    Parameters
    ----------
    classifier : Classifier
    names : parameter names that train, in the classifier's order
    """

    # vmap turns convolutions with per-client weights into grouped ones. On the CPU those are slower than one
    # client after another (ResNet-8: 1.3 times the plain loop, CNN: 1.8), while matmuls gain (MLP: 0.6); on a
    # GPU small models gain from fewer, larger kernels.
    STACKED = 32
    SMALL = 2_000_000  # parameters

    def __init__(self, classifier: Classifier, names: list[str]):
        super().__init__(classifier)
        self.names = names
        self.size = sum(parameter.numel() for parameter in classifier.parameters())
        self.convolutional = any(parameter.dim() == 4 for parameter in classifier.parameters())

    def init(self, rng: np.random.Generator) -> Tree:
        parameters = dict(self.classifier.named_parameters())
        return {name: parameters[name].detach().clone() for name in self.names}

    def chunk(self, batch_size: int, device) -> int:
        return self.STACKED if self._stacks(device) else 1

    def _stacks(self, device) -> bool:
        """Whether several clients at once are worth it."""
        return self.size <= self.SMALL if device.type == "cuda" else not self.convolutional

    def weights(self, stacked: Tree) -> Tree:
        """The classifier's weights that the stacked leaves stand for, [K, ...] each."""
        return stacked

    def logits(self, stacked: Tree, images: Tensor) -> Tensor:
        weights = self.weights(stacked)
        clients = images.shape[0]

        def call(row: Tree, batch: Tensor) -> Tensor:
            return torch.func.functional_call(self.classifier, row, (batch,))

        if clients > 1 and self._stacks(images.device):
            return torch.func.vmap(call)(weights, images)
        if clients == 1:  # a view whose gradient is a view, where unbind's is a copy
            return call({name: leaf.squeeze(0) for name, leaf in weights.items()}, images.squeeze(0)).unsqueeze(0)
        # unbind, not indexing: its gradient is one stack instead of a zero-filled copy per client
        unbound = {name: leaf.unbind(0) for name, leaf in weights.items()}
        return torch.stack([call({n: v[k] for n, v in unbound.items()}, images[k]) for k in range(clients)])


TRAINABLE_PARTS = {
    "full": "every weight (a frozen head excepted)",
    "head": "the classification head",
    "norm": "the affine parameters of normalisation layers, and a trainable head",
}


def weight_names(classifier: Classifier, part: str) -> list[str]:
    """Names of the classifier's parameters that make up one of TRAINABLE_PARTS."""
    head = [] if classifier.head_is_frozen else ["head.weight", "head.bias"]
    if part == "full":
        return [name for name, _ in classifier.trunk.named_parameters(prefix="trunk")] + head
    if part == "norm":
        return [*classifier.norm_affine, *head]
    return head
