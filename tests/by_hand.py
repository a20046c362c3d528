"""A two-layer network back-propagated in NumPy, and a ViT with merged adapters: what methods are compared with."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional
from toy import CLASSES, classifier, make

Weights = dict[str, np.ndarray]
VIT = {"patch": 4, "dim": 12, "depth": 2, "heads": 2}


def mlp_run(method, **training):
    """A run on softmax(W2 relu(W1 x + b1) + b2), and its starting weights in float64."""
    run = make(method, classifier("mlp", hidden=6), **training)
    model = run.method.task.classifier
    return run, {name: leaf.detach().numpy().astype(np.float64) for name, leaf in model.named_parameters()}


def client_data(run, client) -> tuple[np.ndarray, np.ndarray]:
    """All images (flat) and labels of a client, which make one batch in any order."""
    own = run.population.train_samples[client]
    return run.population.pixels[own].flatten(1).numpy().astype(np.float64), run.population.targets[own].numpy()


def mlp_gradient(weights: Weights, data: tuple[np.ndarray, np.ndarray]) -> Weights:
    """Gradient of the mean cross-entropy, by the chain rule."""
    (x, labels), names = data, list(weights)
    w1, b1, w2, b2 = weights.values()
    hidden = x @ w1.T + b1
    active = np.maximum(hidden, 0)
    logits = active @ w2.T + b2
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    error = (exponentials / exponentials.sum(1, keepdims=True) - np.eye(CLASSES)[labels]) / len(x)
    back = (error @ w2) * (hidden > 0)
    return dict(zip(names, (back.T @ x, back.sum(0), error.T @ active, error.sum(0)), strict=True))


def combine(*terms: tuple[float, Weights]) -> Weights:
    """Linear combination of weights."""
    return {name: sum(factor * weights[name] for factor, weights in terms) for name in terms[0][1]}


def mean(*weights: Weights) -> Weights:
    return combine(*((1 / len(weights), one) for one in weights))


def part(weights: Weights, prefix: str) -> Weights:
    return {name: leaf for name, leaf in weights.items() if name.startswith(prefix)}


def assert_leaves(tree, expected: Weights, prefix: str = "", rtol: float = 1e-5) -> None:
    """The tree's leaves `prefix + name` are the expected ones; it has no others under that prefix."""
    found = {name.removeprefix(prefix): leaf for name, leaf in tree.items() if name.startswith(prefix)}
    assert found.keys() == expected.keys()
    for name, leaf in found.items():
        np.testing.assert_allclose(leaf.numpy(), expected[name], rtol=rtol, atol=2e-6, err_msg=name)


def merged_logits(model, residuals, head, images):
    """Logits of a plain model whose sites have weight W + residual^T; residuals by site name, [d_in, d_out]."""
    weights = dict(model.named_parameters())
    for site in model.sites:
        name = f"{site.name}.weight"
        weights[name] = weights[name] + residuals[site.name].T
    weights |= {f"head.{name}": leaf for name, leaf in head.items()}
    return torch.func.functional_call(model, weights, (images,))


def lora_loss(model, run, client):
    """Cross-entropy of a client as a function of its leaves, with s = 3."""
    own = run.population.train_samples[client]

    def loss(leaves):
        residuals = {
            site.name: 3.0 * leaves[f"lora.{site.name}.A"] @ leaves[f"lora.{site.name}.B"] for site in model.sites
        }
        head = {name.removeprefix("head."): leaf for name, leaf in leaves.items() if name.startswith("head.")}
        return functional.cross_entropy(
            merged_logits(model, residuals, head, run.population.pixels[own]), run.population.targets[own]
        )

    return loss
