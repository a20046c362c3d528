"""FLITE: the latent's gradient by the chain rule, one Adam step by hand, and its frozen parts."""

import copy

import torch
from torch.nn import functional
from toy import classifier, first_adam_step, make

OPTIONS = {"method": "flite", "dimension": 16, "rank": 4}
RATE, DECAY = 1e-2, 1e-4


def test_first_adam_step_by_the_chain_rule():
    model = classifier("resnet-gn", depth=8)
    reference = copy.deepcopy(model).requires_grad_(True)
    run = make(OPTIONS, model, optimizer="adam", learning_rate=RATE, weight_decay=DECAY)
    task = run.method.task
    run.server.round(1)
    steps = []
    for own in run.population.trainers:
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
    row = run.server.round(1)
    assert row["uplink_bytes_per_client"] == 4 * 16 * len(run.method.task.names)
    assert row["identity_error"] < 1e-6
    for name, leaf in model.state_dict().items():
        assert torch.equal(leaf, before[name]), name


def test_a_trained_head_travels_with_the_latent():
    run = make({**OPTIONS, "train_head": True}, classifier("resnet-gn", depth=8), optimizer="adam")
    assert set(run.shared) == {"latent", "head.weight", "head.bias"}
    run.server.round(1)
    assert not torch.equal(run.state.shared["head.bias"], run.shared["head.bias"])


def test_averaged_latents_give_averaged_weights_after_training():
    run = make(OPTIONS, classifier("resnet-gn", depth=8), optimizer="adam", learning_rate=RATE, local_epochs=5)
    trained = run.server.trainer.train([1, 0], {"latent": run.shared["latent"].expand(2, -1, -1)}, {}, 1, 1.0)
    weights = run.method.task.weights(trained.result.trained)
    run.server.round(1)
    mean = run.method.task.weights({"latent": run.state.shared["latent"].unsqueeze(0)})
    for name, leaf in weights.items():
        torch.testing.assert_close(leaf.mean(0), mean[name][0], rtol=1e-5, atol=1e-6)
