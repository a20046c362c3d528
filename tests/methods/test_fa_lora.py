"""FA+LoRA: one Adam step of the adapters and the head against a model with merged weights."""

import copy
from dataclasses import replace

import torch
from torch.nn import functional
from toy import classifier, first_adam_step, gradients, make

OPTIONS = {"method": "fa-lora", "rank": 2, "lora_alpha": 6.0}


def merged(model, leaves):
    """The classifier whose sites have weight W + s (A B)^T, s = alpha / r = 3."""
    weights = dict(model.named_parameters())
    for site in model.sites:
        down, up = leaves[f"lora.{site.name}.A"], leaves[f"lora.{site.name}.B"]
        weights[f"{site.name}.weight"] = weights[f"{site.name}.weight"] + 3.0 * (down @ up).T
    weights["head.weight"], weights["head.bias"] = leaves["head.weight"], leaves["head.bias"]
    return weights


def test_first_adam_step_equals_that_of_the_merged_model():
    model = classifier("small-vit", patch=4, dim=12, depth=2, heads=2)
    reference = copy.deepcopy(model)
    decay, rate = 1e-2, 1e-3
    run = make(OPTIONS, model, optimizer="adam", learning_rate=rate, weight_decay=decay)
    start = {n: leaf + 0.1 if n.endswith(".B") else leaf for n, leaf in run.shared.items()}
    run.state = replace(run.state, shared=start)
    run.round(1)
    changes = []
    for own in run.population.train_samples:
        images, labels = run.population.pixels[own], run.population.targets[own]

        def loss(leaves, images=images, labels=labels):
            logits = torch.func.functional_call(reference, merged(reference, leaves), (images,))
            return functional.cross_entropy(logits, labels)

        found = gradients(start, loss)
        changes.append({n: first_adam_step(found[n], rate, decay, start[n]) for n in start})
    for name in start:
        expected = (changes[0][name] + changes[1][name]) / 2
        # the sign of a gradient near zero is rounding: compare where every client's is clear
        clear = torch.stack([change[name].abs() for change in changes]).amin(0) > 0.99 * rate
        assert clear.float().mean() > 0.9
        change = run.state.shared[name] - start[name]
        torch.testing.assert_close(change[clear], expected[clear], rtol=1e-3, atol=1e-7)


def test_adapters_start_at_zero_residual():
    model = classifier("small-vit", patch=4, dim=12, depth=2, heads=2)
    images = torch.randn(5, 1, 8, 8)
    expected = copy.deepcopy(model)(images)
    run = make(OPTIONS, model)
    stacked = {name: leaf.unsqueeze(0) for name, leaf in run.shared.items()}
    torch.testing.assert_close(run.method.task.logits(stacked, images.unsqueeze(0))[0], expected)
