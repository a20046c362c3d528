"""Augmented training batches: pixels cropped and mirrored in NumPy, on whichever path images reach the device."""

import numpy as np
import pytest
import torch
from support import SIZES, make_spec, play
from torch.nn import functional

from fedbench.engine import population
from fedbench.engine.results import evaluation_columns
from fedbench.models.images import draw_crop_flip
from fedbench.randomness import stream
from fedbench.tree import expand

PAD = 1  # an eighth of eight pixels
MEAN, STD = 0.5, 0.25


def by_hand(image, row, column, flip):
    """One normalised crop of a stored image [C, H, W]: black around it, mirrored left to right where asked."""
    _, height, width = image.shape
    padded = np.pad(image, ((0, 0), (PAD, PAD), (PAD, PAD)))
    crop = padded[:, row : row + height, column : column + width]
    return ((crop[:, :, ::-1] if flip else crop) / 255 - MEAN) / STD


@pytest.mark.parametrize("ready_bytes", [2**28, 0], ids=["normalised once", "normalised by batch"])
def test_crops_and_flips_reach_the_images(ready_bytes, tmp_path, digits, ragged, monkeypatch):
    monkeypatch.setattr(population, "READY_BYTES", ready_bytes)
    run = play(digits, ragged, make_spec(model="mlp"))
    indices = np.arange(18).reshape(2, 9)
    offsets = np.array([(row, column) for row in range(3) for column in range(3)] * 2)
    flips = np.repeat([False, True], 9)
    found = run.trainer.population.images(indices, (offsets, flips)).numpy()
    plain = run.trainer.population.images(indices).numpy()
    for position, index in enumerate(indices.ravel()):
        image = digits.images[index]
        wanted = by_hand(image, *offsets[position], flips[position])
        np.testing.assert_allclose(found[divmod(position, 9)], wanted, atol=1e-5)
        np.testing.assert_allclose(plain[divmod(position, 9)], (image / 255 - MEAN) / STD, atol=1e-5)


def test_a_local_step_is_on_the_augmented_images(tmp_path, digits, ragged):
    """The last client of a chunk of two, whose batch is padded to the other's width."""
    spec = make_spec(model="mlp", augmentation="crop-flip", learning_rate=0.1, local_steps=1)
    run = play(digits, ragged, spec)
    trained = run.trainer.train([5, 0], expand(run.state.shared, 2), {}, 3, 1.0).result.trained
    assert SIZES[0] < spec.training.batch_size < SIZES[5]
    order = stream(0, "batches", 3, 0, 0).permutation(ragged.train[0])
    offsets, flips = draw_crop_flip(stream(0, "augmentation", 3, 0, 0), len(order), PAD)
    crops = [by_hand(digits.images[n], *o, f) for n, o, f in zip(order, offsets, flips, strict=True)]
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in run.state.shared.items()}
    images = torch.from_numpy(np.stack(crops)).float()
    logits = torch.func.functional_call(run.method.task.classifier, leaves, (images,))
    functional.cross_entropy(logits, torch.from_numpy(digits.labels[order])).backward()
    for name, leaf in leaves.items():
        torch.testing.assert_close(trained[name][1], (leaf - 0.1 * leaf.grad).detach(), rtol=1e-4, atol=1e-6)


def test_what_is_evaluated_is_not_augmented(tmp_path, digits, ragged):
    columns = ("test_accuracy_mean", "global_accuracy", "global_loss", "val_accuracy")
    found = []
    for augmentation in ("none", "crop-flip"):
        run = play(digits, ragged, make_spec(model="mlp", augmentation=augmentation))
        row = evaluation_columns(run.evaluate())
        found.append([row[column] for column in columns])
    assert found[0] == found[1]
