"""FFA-LoRA: B and head by hand on a plain model with merged adapters; A never moves and never travels."""

import torch
from by_hand import VIT, lora_loss
from toy import classifier, gradients, make

RATE = 0.1


def started():
    return make(
        {"method": "ffa-lora", "rank": 2, "lora_alpha": 6.0}, classifier("small-vit", **VIT), learning_rate=RATE
    )


def test_two_rounds_by_hand():
    run, plain = started(), classifier("small-vit", **VIT)
    frozen = {n: leaf.clone() for n, leaf in run.method.global_weights(run.shared).items() if n.endswith(".A")}
    assert len(frozen) == 4
    assert not any(name.endswith(".A") for name in run.shared)
    shared = run.shared
    for number in (1, 2):
        row = run.round(number)
        ends = []
        for client in range(2):
            found = gradients({**frozen, **shared}, lora_loss(plain, run, client))
            ends.append({name: leaf - RATE * found[name] for name, leaf in shared.items()})
        shared = {name: (ends[0][name] + ends[1][name]) / 2 for name in shared}
        for name, leaf in run.state.shared.items():
            torch.testing.assert_close(leaf, shared[name], rtol=1e-4, atol=1e-6)
        assert row["uplink_bytes_per_client"] == 4 * sum(leaf.numel() for leaf in shared.values())
    for name, leaf in run.method.global_weights(run.state.shared).items():
        assert torch.equal(leaf, {**frozen, **run.state.shared}[name])


def test_the_mean_model_has_the_mean_residual():
    """What freezing A is for: with both factors averaged the mean of the products is not the product of the means."""
    run = started()
    received = {name: leaf.expand(2, *leaf.shape) for name, leaf in run.shared.items()}
    trained = run.method.with_frozen(run.trainer.train([1, 0], received, {}, 1, 1.0).result.trained)
    run.round(1)
    shared = run.method.global_weights(run.state.shared)
    for site in run.method.task.classifier.sites:
        down, up = f"lora.{site.name}.A", f"lora.{site.name}.B"
        torch.testing.assert_close((trained[down] @ trained[up]).mean(0), shared[down] @ shared[up])
