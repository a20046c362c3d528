"""FedSA-LoRA: both factors train by hand on a plain model with merged adapters; A travels, B stays."""

import copy
from dataclasses import replace

import pytest
import torch
from by_hand import VIT, lora_loss
from support import MODELS, make_spec, objection
from toy import classifier, gradients, make

from fedbench.config.reading import parse_entry

RATE = 0.1


@pytest.mark.parametrize("head", ["shared", "private"])
def test_two_rounds_by_hand(head):
    model = classifier("small-vit", **VIT)
    run = make({"method": "fedsa-lora", "rank": 2, "lora_alpha": 6.0, "head": head}, model, learning_rate=RATE)
    stays = (".B", "head.weight", "head.bias") if head == "private" else (".B",)
    start = copy.deepcopy(run.method.global_weights(run.shared))
    assert set(run.shared) == {name for name in start if not name.endswith(stays)}
    plain = classifier("small-vit", **VIT)
    shared = {name: leaf for name, leaf in start.items() if not name.endswith(stays)}
    privates = [{name: leaf for name, leaf in start.items() if name.endswith(stays)}] * 2
    for number in (1, 2):  # in the first round B = 0, so that A has no gradient; in the second it moves
        run.round(number)
        ends = []
        for client in range(2):
            leaves = {**shared, **privates[client]}
            found = gradients(leaves, lora_loss(plain, run, client))
            ends.append({name: leaf - RATE * found[name] for name, leaf in leaves.items()})
        before = shared
        shared = {name: (ends[0][name] + ends[1][name]) / 2 for name in shared}
        privates = [{name: end[name] for name in privates[0]} for end in ends]
        for name, leaf in run.state.shared.items():
            torch.testing.assert_close(leaf, shared[name], rtol=1e-4, atol=1e-6)
        for client in range(2):
            assert run.state.private[client].keys() == privates[client].keys()
            for name, leaf in run.state.private[client].items():
                torch.testing.assert_close(leaf, privates[client][name], rtol=1e-4, atol=1e-6)
    assert any(not torch.equal(before[name], shared[name]) for name in shared if name.endswith(".A"))


def test_the_shared_model_has_no_residual():
    run = make({"method": "fedsa-lora", "rank": 2}, classifier("small-vit", **VIT))
    run.round(1)
    weights = run.method.global_weights(run.state.shared)
    assert all(not leaf.any() for name, leaf in weights.items() if name.endswith(".B"))


def test_what_it_cannot_run_with():
    assert "needs LoRA sites" in objection(make_spec("fedsa-lora", "mlp"))
    assert objection(make_spec("fedsa-lora", "vit", method_options={"head": "private"})) is None
    spec = make_spec("fedsa-lora", "vit", method_options={"head": "private"})
    frozen = parse_entry("models", "vit", {**MODELS["vit"], "head": "frozen-orthogonal"})
    assert "head of its own" in objection(replace(spec, model=frozen))
