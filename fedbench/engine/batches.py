"""Which samples each client sees at each local step.

Every draw is keyed by (seed, round, client, phase): neither the chunk that a client trains in nor what was
evaluated before can change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedbench.models.images import draw_crop_flip
from fedbench.randomness import stream


@dataclass(frozen=True)
class BatchPlan:
    """Batches of K clients, clients with the most steps first.

    Attributes
    ----------
    indices : int64 [steps, K, B], positions in the store; where `mask` is False, the client's first sample
    mask : bool [steps, K, B]
    active : int [steps], how many (leading) clients still train at each step
    widths : int [steps], samples in the fullest batch of the active clients
    steps : int64 [K]
    offsets, flips : augmentation of each sample, [steps, K, B, 2] and [steps, K, B], or None
    """

    indices: np.ndarray
    mask: np.ndarray
    active: np.ndarray
    widths: np.ndarray
    steps: np.ndarray
    offsets: np.ndarray | None
    flips: np.ndarray | None


def local_steps(samples: int, batch_size: int, epochs: int, steps: int | None) -> int:
    """Batches that a client with `samples` samples makes."""
    return steps if steps is not None else epochs * -(-samples // batch_size)


def client_batches(rng: np.random.Generator, samples: np.ndarray, batch_size: int, steps: int) -> np.ndarray:
    """Shuffled epochs of one client, cut into batches, [steps, batch_size]; -1 pads an epoch's last batch."""
    per_epoch = -(-len(samples) // batch_size)
    epochs = -(-steps // per_epoch)
    padded = np.full((epochs, per_epoch * batch_size), -1, np.int64)
    for epoch in range(epochs):
        padded[epoch, : len(samples)] = rng.permutation(samples)
    return padded.reshape(epochs * per_epoch, batch_size)[:steps]


def make_plan(
    clients: Sequence[int],
    samples: Sequence[np.ndarray],
    batch_size: int,
    epochs: int,
    steps: int | None,
    seed: int,
    key: tuple[int | str, ...],
    pad: int | None,
) -> BatchPlan:
    """BatchPlan the local steps of a chunk of clients.

    Parameters
    ----------
    clients : client numbers, for the keys, ordered by falling number of steps
    samples : their training samples (positions in the store)
    key : purpose and round that the draws are keyed by
    pad : crop padding in pixels where images are augmented, else None
    """
    width = min(batch_size, max(map(len, samples)))
    counts = np.array([local_steps(len(s), batch_size, epochs, steps) for s in samples])
    indices = np.full((counts.max(), len(clients), width), -1, np.int64)
    for position, (client, own, count) in enumerate(zip(clients, samples, counts, strict=True)):
        batches = client_batches(stream(seed, "batches", *key, client), own, min(batch_size, len(own)), count)
        indices[:count, position, : batches.shape[1]] = batches
    mask = indices >= 0
    first = np.array([own[0] for own in samples])
    offsets = flips = None
    if pad is not None:
        offsets, flips = np.zeros((*mask.shape, 2), np.int64), np.zeros(mask.shape, bool)
        for position, client in enumerate(clients):
            # one draw per real sample, in order: padding to the chunk's widest batch must not shift them
            own = mask[:, position]
            rng = stream(seed, "augmentation", *key, client)
            offsets[:, position][own], flips[:, position][own] = draw_crop_flip(rng, int(own.sum()), pad)
    return BatchPlan(
        indices=np.where(mask, indices, first[:, None]),
        mask=mask,
        active=(counts[None, :] > np.arange(counts.max())[:, None]).sum(1),
        widths=mask.sum(2).max(1),
        steps=counts,
        offsets=offsets,
        flips=flips,
    )
