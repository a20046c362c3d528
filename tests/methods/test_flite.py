"""FLITE: the latent's gradient by the chain rule, one Adam step by hand, and its frozen parts."""

import copy

import pytest
import torch
from support import make_spec, objection
from torch.nn import functional
from toy import classifier, first_adam_step, make

OPTIONS = {"method": "flite", "dimension": 16, "rank": 4}
RATE, DECAY = 1e-2, 1e-4


def test_first_adam_step_by_the_chain_rule():
    model = classifier("resnet-gn", depth=8)
    reference = copy.deepcopy(model).requires_grad_(True)
    run = make(OPTIONS, model, optimizer="adam", learning_rate=RATE, weight_decay=DECAY)
    task = run.method.task
    run.round(1)
    steps = []
    for own in run.population.train_samples:
        reference.zero_grad()
        functional.cross_entropy(reference(run.population.pixels[own]), run.population.targets[own]).backward()
        parameters = dict(reference.named_parameters())
        # dL/dz = V U^T dL/dtheta, at z = 0 where theta is the base
        gradient = torch.stack(
            [
                task.right[layer] @ (task.projections[layer].factor.T @ parameters[name].grad.flatten())
                for layer, name in enumerate(task.names)
            ]
        )
        steps.append(first_adam_step(gradient, RATE, DECAY, torch.zeros(())))
    clear = torch.stack(steps).abs().amin(0) > 0.99 * RATE
    assert clear.float().mean() > 0.9
    expected = (steps[0] + steps[1]) / 2
    torch.testing.assert_close(run.state.shared["latent"][clear], expected[clear], rtol=1e-3, atol=1e-7)


def test_only_the_latent_travels_and_everything_else_is_frozen():
    model = classifier("resnet-gn", depth=8)
    before = copy.deepcopy(model.state_dict())
    run = make(OPTIONS, model, optimizer="adam", learning_rate=RATE)
    row = run.round(1)
    assert row["uplink_bytes_per_client"] == 4 * 16 * len(run.method.task.names)
    assert row["identity_error"] < 1e-6
    for name, leaf in model.state_dict().items():
        assert torch.equal(leaf, before[name]), name


def test_a_trained_head_travels_with_the_latent():
    run = make({**OPTIONS, "train_head": True}, classifier("resnet-gn", depth=8), optimizer="adam")
    assert set(run.shared) == {"latent", "head.weight", "head.bias"}
    run.round(1)
    assert not torch.equal(run.state.shared["head.bias"], run.shared["head.bias"])


def test_averaged_latents_give_averaged_weights_after_training():
    run = make(OPTIONS, classifier("resnet-gn", depth=8), optimizer="adam", learning_rate=RATE, local_epochs=5)
    trained = run.trainer.train([1, 0], {"latent": run.shared["latent"].expand(2, -1, -1)}, {}, 1, 1.0)
    weights = run.method.task.weights(trained.result.trained)
    run.round(1)
    mean = run.method.task.weights({"latent": run.state.shared["latent"].unsqueeze(0)})
    for name, leaf in weights.items():
        torch.testing.assert_close(leaf.mean(0), mean[name][0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("factors", ["stored-bf16", "seeded", "rademacher", "dense"])
def test_a_round_with_other_factors(factors):
    """Latents move as with stored factors where the map is the same; every map is affine."""
    model = classifier("resnet-gn", depth=8)
    stored = make(OPTIONS, copy.deepcopy(model), learning_rate=RATE)
    run = make({**OPTIONS, "factors": factors}, model, learning_rate=RATE)
    row = run.round(1)
    assert row["identity_error"] < 1e-6
    stored.round(1)
    latent, expected = run.state.shared["latent"], stored.state.shared["latent"]
    assert float(latent.abs().max()) > 0
    if factors in ("seeded", "dense"):
        torch.testing.assert_close(latent, expected, rtol=1e-4, atol=1e-7)
        assert run.method.facts()["factors_sha256"] == stored.method.facts()["factors_sha256"]
    if factors == "stored-bf16":
        torch.testing.assert_close(latent, expected, rtol=0.05, atol=0.02 * float(expected.abs().max()))


def test_sgd_on_y_is_sgd_on_z():
    """V has orthonormal columns, so a gradient step on z moves V^T z like one on y."""
    model = classifier("resnet-gn", depth=8)
    long = make(OPTIONS, copy.deepcopy(model), learning_rate=RATE)
    short = make({**OPTIONS, "latent": "y"}, model, learning_rate=RATE)
    assert short.shared["latent"].shape == (9, 4)
    rows = [run.round(1) for run in (long, short)]
    assert rows[1]["uplink_bytes"] * 4 == rows[0]["uplink_bytes"]
    y = torch.einsum("ld,ldr->lr", long.state.shared["latent"], long.method.task.right)
    torch.testing.assert_close(short.state.shared["latent"], y, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "factor"),
    [({"match_dimension": 64}, 2.0), ({"match_dimension": 4}, 0.5), ({"match_dimension": 16, "latent": "y"}, 2.0)],
)
def test_matched_learning_rates(options, factor):
    """sqrt(match_dimension / n) times the run's, for n = d = 16 or r = 4; the head keeps the run's."""
    model = classifier("resnet-gn", depth=8)
    options = {**OPTIONS, **options, "train_head": True}
    run = make(options, model, optimizer="adam", learning_rate=RATE)
    latent, head = run.method.phases()[0].groups
    assert latent.learning_rate == pytest.approx(factor * RATE)
    assert head.learning_rate is None
    run.round(1)
    moved = run.state.shared["latent"].abs()
    assert float(moved.max()) == pytest.approx(factor * RATE, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rank": 65}, "rank 65 exceeds dimension 64; lower rank"),
        ({"rank": 65, "latent": "y"}, None),
        ({"rank": 33, "factors": "rademacher"}, "no 33 signs; lower rank to 32"),
        ({"latent": "y", "factors": "dense"}, "takes z, not y"),
    ],
)
def test_reasons_at_planning_time(options, expected):
    found = objection(make_spec("flite", "resnet", method_options=options))
    assert found is None if expected is None else expected in found
