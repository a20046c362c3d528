"""Every method says before anything runs why it cannot run with a model, a channel or a schedule."""

import json
from pathlib import Path

import pytest
from support import MODELS, make_spec, objection
from toy import classifier, make

from fedbench.config.reading import load
from fedbench.config.spec import Cell, resolve
from fedbench.errors import FedbenchError
from fedbench.registry import METHODS

SMOKE = Path(__file__).parents[2] / "workflow/configs/smoke.yaml"
ADAPTERS = {"fa-lora", "local-only", "fedper", "fedrep", "fedbabu", "ditto", "pfedme"}
ADAPTERS |= {"feddpa", "fedsa-lora", "ffa-lora", "fedsdg"}
OWN_HEAD = ("fedper", "fedrep", "fedbabu")


def refusal(model: str, *assignments: str) -> str | None:
    """What planning says about the method `mine`."""
    config = load([SMOKE], ["models.frozen={backbone: resnet-gn, depth: 8, head: frozen-etf}", *assignments])
    try:
        resolve(config, Cell("digits", "dirichlet", model, "mine", 0))
    except FedbenchError as error:
        return str(error)
    return None


@pytest.mark.parametrize("method", sorted(ADAPTERS))
def test_adapters_need_a_transformer(method):
    for model in MODELS:
        reason = objection(make_spec(method, model))
        assert (reason is None) == (model == "vit")
        assert reason is None or ("LoRA" in reason and reason.endswith("use a ViT"))
    assert "LoRA" in refusal("tiny-resnet", f"methods.mine={{method: {method}}}")


@pytest.mark.parametrize("method", OWN_HEAD)
def test_heads_of_ones_own_need_a_trainable_head(method):
    entry = f"methods.mine={{method: {method}, trainable: full}}"
    assert "the head of model frozen is frozen-etf" in refusal("frozen", entry)
    assert refusal("tiny-resnet", entry) is None
    shares_nothing = f"methods.mine={{method: {method}, trainable: head}}"
    assert "would share nothing" in refusal("tiny-resnet", shares_nothing)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("{method: scaffold, channel: top-10}", "use a dense channel"),
        ("{method: scaffold, training: {optimizer: adam}}", "plain SGD"),
        ("{method: fedrep, trainable: full, training: {local_steps: 3}}", "remove training.local_steps"),
        ("{method: pfedme, trainable: full, training: {learning_rate: 0.2}}", "SGD diverges"),
        ("{method: local-only, trainable: full, channel: top-10}", "sends nothing that channel top-10 could code"),
        ("{method: base, channel: top-10}", "sends nothing that channel top-10 could code"),
        ("{method: base, training: {fine_tune_epochs: 3}}", "set its training to fine_tune_epochs: 0"),
        ("{method: base, training: {held_out: 0.25, held_out_epochs: 3}}", None),
        ("{method: scaffold, training: {clip: 1.0}}", "clip: null"),
        (
            "{method: fedavg, training: {betas: [1.0, 1.0]}}",
            "training of digits/dirichlet/tiny-resnet/mine/seed0.betas.0",
        ),
        ("{method: fedavg, training: {held_out: 0.9}}", "leaves none to train"),
        ("{method: fedprox, trainable: lora}", "no LoRA sites"),
        ("{method: fedadam, channel: top-10}", None),
        ("{method: fedprox, channel: top-10, training: {held_out: 0.25}}", None),
    ],
)
def test_reasons_at_planning_time(entry, expected):
    found = refusal("tiny-resnet", f"methods.mine={entry}")
    assert found is None if expected is None else expected in found


@pytest.mark.parametrize(
    ("model", "width", "trainable"),
    [("tiny-vit", 16, "lora"), ("narrow-vit", 8, "lora"), ("narrow-resnet", 4, "conv-lora")],
)
def test_adapters_have_no_more_rank_than_their_layers(model, width, trainable):
    """For every method with adapters, and each of its ranks."""
    narrow = [
        "models.narrow-vit={backbone: small-vit, dim: 16, heads: 2, mlp_ratio: 0.5}",
        "models.narrow-resnet={backbone: resnet-gn, depth: 8, width: 0.25}",
    ]
    training = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": 0.01}  # what every method takes
    tested = set()
    for method in METHODS:
        keys = METHODS.keys_of(method)
        if method == "flite" or (trainable == "conv-lora" and "trainable" not in keys):
            continue
        for option in {"rank", "private_rank"}.intersection(keys):
            entry = {
                "method": method,
                "training": training,
                **({"trainable": trainable} if "trainable" in keys else {}),
            }
            fitting, larger = ({**entry, option: rank} for rank in (width, width + 1))
            assert refusal(model, *narrow, f"methods.mine={json.dumps(fitting)}") is None
            reason = f"mine: {option} {width + 1} exceeds the width {width} of model {model}; lower it"
            assert reason in refusal(model, *narrow, f"methods.mine={json.dumps(larger)}")
            tested.add(method)
    assert tested >= ({"fedavg", "fedprox"} if trainable == "conv-lora" else ADAPTERS)


def test_ranks_that_no_adapter_has_do_not_matter():
    assert refusal("tiny-vit", "methods.mine={method: fedavg, trainable: full, rank: 999}") is None


@pytest.mark.parametrize("method", METHODS)
def test_training_for_evaluation_is_made_or_refused(method):
    spec = make_spec(method, fine_tune_epochs=2)
    if objection(spec) is None:
        run = make({"method": method}, classifier(**MODELS[spec.model.name]))
        assert {phase.epochs for phase in run.method.evaluation_phases(2)} == {2}


@pytest.mark.parametrize("method", METHODS)
def test_only_private_branches_and_gates_have_no_weight_decay(method):
    """What the option's text says; methods differ in what travels, not in how that is regularised."""
    run = make({"method": method}, classifier(**MODELS[make_spec(method).model.name]))
    for phase in run.method.phases():
        for group in phase.groups:
            private = group.prefixes in (("private.",), ("gate.",))
            assert group.weight_decay == (0.0 if private else None)


def test_every_method_runs_with_some_model():
    for method in METHODS:
        assert any(objection(make_spec(method, model)) is None for model in MODELS), method
