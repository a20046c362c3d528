"""Head-only FedAvg is softmax regression on frozen features: one SGD step by hand, in NumPy."""

import numpy as np
import torch
from toy import CLASSES, SAMPLES, classifier, make


def test_one_round_is_the_mean_of_the_clients_softmax_regression_steps():
    model = classifier("mlp", hidden=6)
    run = make({"method": "head-only"}, model)
    before = {name: leaf.numpy().astype(np.float64) for name, leaf in run.shared.items()}
    row = run.round(1)
    weight, bias, losses = [], [], []
    for own in run.population.train_samples:
        with torch.no_grad():
            features = model.trunk(run.population.pixels[own]).numpy().astype(np.float64)
        labels = np.eye(CLASSES)[run.population.targets[own].numpy()]
        logits = features @ before["head.weight"].T + before["head.bias"]
        probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        losses.append(-np.log(probabilities[labels == 1]).mean())
        error = (probabilities - labels) / len(own)
        weight.append(before["head.weight"] - 0.1 * error.T @ features)
        bias.append(before["head.bias"] - 0.1 * error.sum(0))
    np.testing.assert_allclose(run.state.shared["head.weight"], np.mean(weight, 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run.state.shared["head.bias"], np.mean(bias, 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(row["train_loss"], np.mean(losses), rtol=1e-5)
    assert row["uplink_bytes"] == len(SAMPLES) * 4 * (6 * CLASSES + CLASSES)


def test_sample_weighting_is_an_option():
    model = classifier("mlp", hidden=6)
    uniform, weighted = (make({"method": "head-only"}, model, aggregation=kind) for kind in ("uniform", "samples"))
    ends = []
    for run in (uniform, weighted):
        run.round(1)
        ends.append(run.state.shared["head.bias"] - run.shared["head.bias"])
    alone = []
    for client in range(2):
        one = make({"method": "head-only"}, model)
        one.population.train_samples = [one.population.train_samples[client]]
        one.round(1)
        alone.append(one.state.shared["head.bias"] - one.shared["head.bias"])
    torch.testing.assert_close(ends[0], (alone[0] + alone[1]) / 2)
    torch.testing.assert_close(ends[1], (3 * alone[0] + 5 * alone[1]) / 8)
