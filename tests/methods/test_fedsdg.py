"""FedSDG: objective, optimiser groups and what travels, one step by hand."""

import pytest
import torch
from toy import classifier, first_adam_step, gradients, make

from fedbench.models.dual_lora import DualLoraTask
from fedbench.models.task import Batch
from fedbench.randomness import stream
from fedbench.tree import select

RATE, DECAY = 1e-3, 1e-2
VIT = {"patch": 4, "dim": 12, "depth": 2, "heads": 2}


def start(training=None, **options):
    run = make(
        {"method": "fedsdg", "rank": 2, "private_rank": 2, "lora_alpha": 4.0, **options},
        classifier("small-vit", **VIT),
        optimizer="adam",
        learning_rate=RATE,
        weight_decay=DECAY,
        **(training or {}),
    )
    run.private = [run.method.init_private(stream(0, "private", client), run.shared) for client in range(2)]
    return run


def objective(run, client, leaves):
    """CE + lambda1 * sum of gates + lambda2 * squared norm of the private LoRA, written out."""
    own = run.population.train_samples[client]
    batch = Batch(run.population.pixels[own][None], run.population.targets[own][None])
    task = DualLoraTask(classifier("small-vit", **VIT), 2, 4.0, 2)
    value = task.losses({name: leaf.unsqueeze(0) for name, leaf in leaves.items()}, batch)[0]
    for name, leaf in leaves.items():
        if name.startswith("gate."):
            value = value + 0.01 * torch.sigmoid(leaf)
        if name.startswith("private."):
            value = value + 0.001 * (leaf**2).sum()
    return value


def test_one_round_by_hand():
    run = start()
    run.round(1)
    changes = []
    for client, private in enumerate(run.private):
        leaves = {**run.shared, **private}
        found = gradients(leaves, lambda leaves, client=client: objective(run, client, leaves))
        change = {}
        for name, leaf in leaves.items():
            if name.startswith(("lora.", "head.")):
                change[name] = first_adam_step(found[name], RATE, DECAY, leaf)
            else:  # no decay on private parts; gates have their own, larger rate
                change[name] = first_adam_step(found[name], 0.1 if name.startswith("gate.") else RATE)
        changes.append(change)
        for name, leaf in private.items():
            rate = 0.1 if name.startswith("gate.") else RATE
            clear = found[name].abs() > 1e-6
            assert clear.float().mean() > 0.8
            moved = run.state.private[client][name] - leaf
            torch.testing.assert_close(moved[clear], change[name][clear], rtol=2e-3, atol=1e-4 * rate)
    for name, leaf in run.shared.items():
        expected = (changes[0][name] + changes[1][name]) / 2
        clear = torch.stack([change[name].abs() for change in changes]).amin(0) > 0.99 * RATE
        moved = run.state.shared[name] - leaf
        torch.testing.assert_close(moved[clear], expected[clear], rtol=2e-3, atol=1e-7)


def test_penalty_by_hand():
    run = start()
    local = {name: torch.stack([tree[name] for tree in run.private]) for name in run.private[0]}
    sites = run.method.task.classifier.sites
    for position, site in enumerate(sites):
        local[f"gate.{site.name}"] = torch.tensor([0.0, float(position)])
    expected = []
    for client in range(2):
        gates = [0.5] * len(sites) if client == 0 else [1 / (1 + 2.718281828459045**-p) for p in range(len(sites))]
        squares = sum(float((leaf[client] ** 2).sum()) for n, leaf in local.items() if n.startswith("private."))
        expected.append(0.01 * sum(gates) + 0.001 * squares)
    torch.testing.assert_close(run.method.penalty(local, {}), torch.tensor(expected))


def test_a_blocks_gate_counts_for_each_of_its_mappings():
    run = start(gate_level="block", private_penalty=0.0)
    local = {name: torch.stack([tree[name] for tree in run.private]) for name in run.private[0]}
    assert len(select(local, "gate.")) == VIT["depth"]
    local |= {name: torch.zeros_like(leaf) for name, leaf in select(local, "gate.").items()}
    torch.testing.assert_close(run.method.penalty(local, {}), torch.full((2,), 0.01 * 0.5 * 2 * VIT["depth"]))


def test_a_private_head_decays_and_private_lora_does_not():
    run = start(head="private")
    (phase,) = run.method.phases()
    decays = {prefix: group.weight_decay for group in phase.groups for prefix in group.prefixes}
    assert decays == {"lora.": None, "head.": None, "private.": 0.0, "gate.": 0.0}, "None is the run's"


def test_only_shared_lora_and_head_travel():
    run = start()
    row = run.round(1)
    assert set(run.state.shared) == {*select(run.shared, "lora."), "head.weight", "head.bias"}
    baseline = make({"method": "fa-lora", "rank": 2, "lora_alpha": 4.0}, classifier("small-vit", **VIT))
    assert row["uplink_bytes"] == baseline.round(1)["uplink_bytes"]
    assert all(name.startswith(("private.", "gate.")) for name in run.state.private[0])


def test_a_private_head_stays_and_starts_from_the_common_one():
    run = start(head="private")
    assert set(run.shared) == set(select(run.shared, "lora."))
    torch.testing.assert_close(run.private[0]["head.weight"], run.private[1]["head.weight"], rtol=0, atol=0)
    run.round(1)
    assert not torch.equal(run.state.private[0]["head.weight"], run.state.private[1]["head.weight"])
    assert "head.weight" in run.method.global_weights(run.state.shared)


@pytest.mark.parametrize("value", [0.0, 0.047, 0.5, 1.0])
def test_a_fixed_gate_has_no_logit_and_no_penalty(value):
    run = start(gate="fixed", gate_value=value)
    assert not select(run.private[0], "gate.")
    run.round(1)
    stacked = {name: leaf.unsqueeze(0) for name, leaf in run.state.private[0].items()}
    gates = run.method.gates(stacked)
    assert len(gates) == 4
    assert all(float(gate) == pytest.approx(value) for gate in gates.values())


def test_global_evaluation_has_the_gate_at_zero():
    run = start()
    run.round(1)
    images = run.population.pixels[None]
    shared = {name: leaf.unsqueeze(0) for name, leaf in run.method.global_weights(run.state.shared).items()}
    closed = {name: leaf.unsqueeze(0) for name, leaf in run.state.private[0].items()}
    closed = {name: torch.full_like(leaf, -1e4) if name.startswith("gate.") else leaf for name, leaf in closed.items()}
    task = run.method.task
    torch.testing.assert_close(task.logits(shared, images), task.logits({**shared, **closed}, images))


def test_the_schedule_holds_for_gates_too():
    """Round 2 of 3 of the cosine is at three quarters of each group's own rate."""
    run = start({"schedule": "cosine", "rounds": 3})
    run.round(2)
    for client, private in enumerate(run.private):
        found = gradients({**run.shared, **private}, lambda leaves, client=client: objective(run, client, leaves))
        for prefix, rate in (("gate.", 0.1), ("private.", RATE)):
            for name, leaf in select(private, prefix).items():
                clear = found[name].abs() > 1e-6
                moved = run.state.private[client][name] - leaf
                expected = first_adam_step(found[name], 0.75 * rate)
                torch.testing.assert_close(moved[clear], expected[clear], rtol=2e-2, atol=1e-3 * rate)


@pytest.mark.parametrize("clip", [None, 1e-3])
def test_gate_drift_and_gradient_variance_by_hand(clip):
    run = start({"clip": clip})  # what is clipped is not what varies
    row = run.round(1)
    slopes, drifts = [], []
    for client, private in enumerate(run.private):  # one local step each, so the pooled steps are the two clients
        found = gradients({**run.shared, **private}, lambda leaves, client=client: objective(run, client, leaves))
        slopes.append([float(leaf) for leaf in select(found, "gate.").values()])
        after = run.state.private[client]
        drifts += [
            abs(float(torch.sigmoid(after[name]) - torch.sigmoid(leaf)))
            for name, leaf in select(private, "gate.").items()
        ]
    assert len(slopes[0]) == 4
    expected = sum(((first - second) / 2) ** 2 for first, second in zip(*slopes, strict=True)) / 4
    assert expected > 0
    assert row["gate_gradient_variance"] == pytest.approx(expected, rel=1e-3)
    assert row["gate_drift"] == pytest.approx(sum(drifts) / len(drifts), rel=1e-5)
    assert row["gate_drift"] > 1e-4


def test_fixed_gates_do_not_drift_and_have_no_gradient():
    row = start(gate="fixed").round(1)
    assert row["gate_drift"] == 0
    assert "gate_gradient_variance" not in row
