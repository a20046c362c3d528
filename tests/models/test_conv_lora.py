"""LoRA of convolutions: the merged weight by hand, its start, and one federated step."""

import copy
from dataclasses import replace

import torch
from torch.nn import functional
from toy import classifier, gradients, make

OPTIONS = {"method": "fa-lora", "trainable": "conv-lora", "rank": 2, "lora_alpha": 6.0}


def merged(model, leaves):
    """Convolutions with weight W + 3 sum_r B[r, out] A[(in, y, x), r]."""
    weights = {name: leaf for name, leaf in leaves.items() if name.startswith("head.")}
    parameters = dict(model.named_parameters())
    for name in model.mapped:
        weight = parameters[name]
        down = leaves[f"lora.{name}.A"].view(*weight.shape[1:], 2)
        weights[name] = weight + 3 * torch.einsum("iyxr,ro->oiyx", down, leaves[f"lora.{name}.B"])
    return weights


def test_one_sgd_step_equals_that_of_the_merged_model():
    model = classifier("resnet-gn", depth=8)
    reference = copy.deepcopy(model)
    run = make(OPTIONS, model, learning_rate=0.1)
    generator = torch.Generator().manual_seed(0)
    start = {n: leaf + 0.1 * torch.randn(leaf.shape, generator=generator) for n, leaf in run.shared.items()}
    run.state = replace(run.state, shared=start)
    row = run.round(1)
    found = []
    for own in run.population.train_samples:
        images, labels = run.population.pixels[own], run.population.targets[own]

        def loss(leaves, images=images, labels=labels):
            logits = torch.func.functional_call(reference, merged(reference, leaves), (images,))
            return functional.cross_entropy(logits, labels)

        found.append(gradients(start, loss))
    for name, leaf in start.items():
        expected = leaf - 0.1 * (found[0][name] + found[1][name]) / 2
        torch.testing.assert_close(run.state.shared[name], expected, rtol=1e-4, atol=1e-6)
    values = sum(2 * (weight[0].numel() + len(weight)) for weight in run.method.task.base.values())
    assert row["uplink_bytes_per_client"] == 4 * (values + sum(leaf.numel() for leaf in model.head.parameters()))


def test_adapters_start_at_zero_residual():
    model = classifier("resnet-gn", depth=8, head="frozen-orthogonal")
    run = make(OPTIONS, model)
    assert not any(name.startswith("head.") for name in run.shared)
    images = torch.randn(5, 1, 8, 8)
    stacked = {name: leaf.unsqueeze(0) for name, leaf in run.shared.items()}
    torch.testing.assert_close(run.method.task.logits(stacked, images.unsqueeze(0))[0], model(images))
