"""Centralised: one step on the union of all clients' samples."""

import torch
from torch.nn import functional
from toy import classifier, make


def test_one_step_is_plain_sgd_on_the_union():
    model = classifier("mlp", hidden=6)
    reference = classifier("mlp", hidden=6).requires_grad_(True)
    run = make({"method": "centralised"}, model)
    row = run.round(1)
    assert row["cumulative_bytes"] == 0
    functional.cross_entropy(reference(run.population.pixels), run.population.targets).backward()
    for name, leaf in reference.named_parameters():
        torch.testing.assert_close(run.state.shared[name], leaf.detach() - 0.1 * leaf.grad, rtol=1e-5, atol=1e-6)
