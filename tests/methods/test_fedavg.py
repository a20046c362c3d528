"""FedAvg: one round of SGD on a two-layer network, back-propagated by hand in NumPy."""

import numpy as np
import pytest
import torch
from toy import CLASSES, classifier, make


def hand_step(leaves, x, labels, rate):
    """One SGD step of softmax(W2 relu(W1 x + b1) + b2) on mean cross-entropy."""
    w1, b1, w2, b2 = leaves
    hidden = x @ w1.T + b1
    active = np.maximum(hidden, 0)
    logits = active @ w2.T + b2
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    error = (probabilities - np.eye(CLASSES)[labels]) / len(x)
    back = (error @ w2) * (hidden > 0)
    steps = (back.T @ x, back.sum(0), error.T @ active, error.sum(0))
    return [leaf - rate * step for leaf, step in zip(leaves, steps, strict=True)]


@pytest.mark.parametrize("epochs", [1, 3])
def test_one_round_equals_back_propagation_by_hand(epochs):
    run = make({"method": "fedavg"}, classifier("mlp", hidden=6), local_epochs=epochs)
    names = list(run.shared)
    assert [tuple(run.shared[name].shape) for name in names] == [(6, 64), (6,), (CLASSES, 6), (CLASSES,)]
    start = [run.shared[name].numpy().astype(np.float64) for name in names]
    run.round(1)
    ends = []
    for own in run.population.train_samples:
        leaves = start
        for _ in range(epochs):  # one batch per epoch, whatever its order
            x = run.population.pixels[own].flatten(1).numpy().astype(np.float64)
            leaves = hand_step(leaves, x, run.population.targets[own].numpy(), 0.1)
        ends.append(leaves)
    for position, name in enumerate(names):
        expected = (ends[0][position] + ends[1][position]) / 2
        np.testing.assert_allclose(run.state.shared[name], expected, rtol=1e-5, atol=1e-6)


def test_norm_variant_trains_normalisation_and_head_only():
    model = classifier("resnet-gn", depth=8)
    run = make({"method": "fedavg", "trainable": "norm"}, model)
    assert set(run.shared) == {*model.norm_affine, "head.weight", "head.bias"}
    run.round(1)
    for name in run.shared:
        assert not torch.equal(run.state.shared[name], run.shared[name]), name


def test_a_frozen_head_does_not_travel():
    run = make({"method": "fedavg"}, classifier("mlp", hidden=6, head="frozen-orthogonal"))
    assert set(run.shared) == {"trunk.1.weight", "trunk.1.bias"}
    head = run.method.task.classifier.head.weight.clone()
    run.round(1)
    assert set(run.state.shared) == {"trunk.1.weight", "trunk.1.bias"}
    assert not torch.equal(run.state.shared["trunk.1.weight"], run.shared["trunk.1.weight"]), "the trunk trains"
    assert torch.equal(run.method.task.classifier.head.weight, head)
