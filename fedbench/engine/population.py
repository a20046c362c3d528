"""The clients' data on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedbench.config.spec import held_out_size
from fedbench.errors import FedbenchError
from fedbench.models.images import ImageReader, crop_flip, normalise, padding
from fedbench.randomness import stream

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.data.store import Store
    from fedbench.models.classifier import Classifier
    from fedbench.partition.partition import Partition


READY_BYTES = 2**28  # a data set whose normalised images take no more than this is normalised once


def draw_held_out(seed: int, clients: int, share: float) -> list[int]:
    """The clients that stay out of the federation, sorted; they depend on nothing but the arguments.

    Raises
    ------
    FedbenchError
        If no client would be left to train.
    """
    size = held_out_size(clients, share)
    if size >= clients:
        raise FedbenchError(
            f"training.held_out {share:g} of {clients} clients leaves none to train; lower it or add clients"
        )
    return sorted(int(client) for client in stream(seed, "held-out").choice(clients, size=size, replace=False))


class Population:
    """All clients' samples, and batches of them as normalised images.

    Parameters
    ----------
    store, partition : the prepared data and who holds what
    classifier : for the input statistics and size that its trunk wants
    device : where batches are needed
    pooled : one pseudo-client that trains on everyone's training samples
    held_out : clients that are evaluated and never train in the federation
    """

    def __init__(
        self,
        store: Store,
        partition: Partition,
        classifier: Classifier,
        device: torch.device,
        pooled: bool = False,
        held_out: Sequence[int] = (),
    ):
        self.device, self.held_out = device, held_out
        self.train, self.validation, self.test = partition.train, partition.validation, partition.test
        members = [samples for client, samples in enumerate(partition.train) if client not in held_out]
        self.train_samples = [np.sort(np.concatenate(members))] if pooled else partition.train
        self.domains, self.domain_names = store.domains, store.domain_names
        self.pad = padding(*store.shape[1:])
        self._read = ImageReader(store.images, device)
        self._labels = torch.from_numpy(np.asarray(store.labels)).to(device)
        self._statistics = (classifier.mean, classifier.std, classifier.input_size)
        self._ready = None
        if store.images.nbytes * 4 <= READY_BYTES and classifier.input_size in (None, store.shape[1:]):
            self._ready = normalise(self._read(np.arange(len(store.images))), *self._statistics)

    @property
    def clients(self) -> int:
        return len(self.test)

    def images(self, indices: np.ndarray, crops: tuple[np.ndarray, np.ndarray] | None = None) -> Tensor:
        """Normalised images at `indices` (any shape), [*indices.shape, C, H, W]; augmented where crops are given."""
        if self._ready is not None and crops is None:
            return self._ready[torch.from_numpy(indices).to(self.device)]
        raw = self._read(indices.reshape(-1))
        if crops is not None:
            offsets, flips = (torch.from_numpy(draw) for draw in crops)
            raw = crop_flip(raw, offsets, flips, self.pad)
        images = normalise(raw, *self._statistics)
        return images.view(*indices.shape, *images.shape[1:])

    def labels(self, indices: np.ndarray) -> Tensor:
        return self._labels[torch.from_numpy(indices).to(self.device)]
