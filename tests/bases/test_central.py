"""Central training against a plain loop: order, augmentation, rates and the mean loss, step by step."""

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional
from toy import classifier

from fedbench.bases.central import CentralTraining
from fedbench.config.entries import BaseEntry
from fedbench.data.store import Store
from fedbench.models.images import draw_crop_flip
from fedbench.randomness import stream

SAMPLES, BATCH, EPOCHS, RATE, SEED = 20, 8, 3, 0.1, 5
STEPS = 3  # of 8, 8 and 4 samples


def tiny_store():
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (SAMPLES, 1, 8, 8), dtype=np.uint8), np.arange(SAMPLES) % 4
    zeros = np.zeros(SAMPLES, np.int64)
    return Store(images, labels, zeros, zeros, ("a", "b", "c", "d"), ("all",), None, {})


def crop(image, row, column, flip):
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))[:, row : row + 8, column : column + 8]
    return padded[:, :, ::-1] if flip else padded


def rate_of(step):
    """Linear over the first epoch, then a cosine to zero."""
    if step < STEPS:
        return RATE * (step + 1) / STEPS
    return RATE * 0.5 * (1 + np.cos(np.pi * (step - STEPS) / (STEPS * (EPOCHS - 1))))


@pytest.mark.parametrize("augmentation", ["none", "crop-flip"])
def test_three_epochs_equal_a_plain_loop(augmentation):
    store, model = tiny_store(), classifier("mlp", hidden=6)
    base = BaseEntry(
        kind="pretrain", epochs=EPOCHS, batch_size=BATCH, learning_rate=RATE, momentum=0.9, weight_decay=0.01,
        warmup_epochs=1, augmentation=augmentation, seed=SEED,
    )  # fmt: skip
    model.requires_grad_(True)
    plain = copy.deepcopy(model)
    training = CentralTraining(model, base, store, np.arange(SAMPLES), torch.device("cpu"), None, "identity")
    training.run()

    optimiser = torch.optim.SGD(plain.parameters(), lr=RATE, momentum=0.9, weight_decay=0.01)
    for epoch in range(EPOCHS):
        order = stream(SEED, "pretrain-order", epoch).permutation(SAMPLES)
        offsets, flips = draw_crop_flip(stream(SEED, "pretrain-augmentation", epoch), SAMPLES, 1)
        drawn = zip(order, offsets, flips, strict=True)
        pixels = [crop(store.images[n], *o, f) if augmentation == "crop-flip" else store.images[n] for n, o, f in drawn]
        images, labels = torch.from_numpy((np.stack(pixels) / 255 - 0.5) / 0.25).float(), store.labels[order]
        losses = []
        for step, start in enumerate(range(0, SAMPLES, BATCH)):
            part = slice(start, start + BATCH)
            each = functional.cross_entropy(plain(images[part]), torch.from_numpy(labels[part]), reduction="none")
            losses += each.tolist()
            optimiser.param_groups[0]["lr"] = rate_of(epoch * STEPS + step)
            optimiser.zero_grad()
            each.mean().backward()
            optimiser.step()
        assert training.history[epoch]["train_loss"] == pytest.approx(np.mean(losses), rel=1e-4)
        assert training.history[epoch]["lr"] == pytest.approx(rate_of(epoch * STEPS + STEPS - 1))
    for name, leaf in plain.named_parameters():
        torch.testing.assert_close(dict(model.named_parameters())[name], leaf, rtol=1e-4, atol=1e-5)
