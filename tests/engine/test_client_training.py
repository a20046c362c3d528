"""Stacked training of ragged clients against a plain loop over clients, written with torch alone."""

import copy

import numpy as np
import pytest
import torch
from support import SIZES, base_weights, make_spec, play
from torch.nn import functional

from fedbench.engine.batches import client_batches
from fedbench.engine.clients import ClientTrainer
from fedbench.engine.gradients import clip_each
from fedbench.engine.population import Population
from fedbench.errors import FedbenchError
from fedbench.methods.fedavg import FedAvg
from fedbench.methods.method import Group, Phase
from fedbench.models.make_model import make_model
from fedbench.randomness import stream
from fedbench.tree import expand, rows

LARGEST_FIRST = sorted(range(len(SIZES)), key=lambda client: -SIZES[client])
ROUND = 2


def plain_batches(population, client, steps, phase=0, batch_size=20):
    """The client's batches, one after another, without padding."""
    samples = population.train_samples[client]
    rng = stream(0, "batches", ROUND, phase, client)
    for batch in client_batches(rng, samples, min(batch_size, len(samples)), steps):
        batch = batch[batch >= 0]
        yield population.images(batch), population.labels(batch)


def plain_step(model, parameters, optimiser, images, labels, clip, penalty=lambda: 0.0):
    loss = functional.cross_entropy(model(images), labels)
    optimiser.zero_grad()
    (loss + penalty()).backward()
    if clip is not None:
        torch.nn.utils.clip_grad_norm_(parameters, clip)
    optimiser.step()
    return float(loss.detach())


def fresh_model(run):
    model = copy.deepcopy(run.method.task.classifier)
    return model.requires_grad_(True)


OPTIMISERS = {
    "sgd": ({"momentum": 0.9}, lambda p, t: torch.optim.SGD(p, t.learning_rate, 0.9, weight_decay=t.weight_decay)),
    "adam": ({}, lambda p, t: torch.optim.Adam(p, t.learning_rate, t.betas, weight_decay=t.weight_decay)),
    "adamw": ({}, lambda p, t: torch.optim.AdamW(p, t.learning_rate, t.betas, weight_decay=t.weight_decay)),
}


@pytest.mark.parametrize(("clip", "decay"), [(None, 0.0), (0.7, 0.01)], ids=["bare", "clip-decay"])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("model", ["mlp", "resnet"])
def test_ragged_clients_train_as_if_alone(model, optimiser, clip, decay, tmp_path, digits, ragged):
    extra, make = OPTIMISERS[optimiser]
    rate = 0.05 if optimiser == "sgd" else 3e-3
    spec = make_spec(
        model=model,
        local_epochs=2 if model == "mlp" else 1,
        optimizer=optimiser,
        learning_rate=rate,
        weight_decay=decay,
        clip=clip,
        betas=[0.8, 0.95],
        **extra,
    )
    run = play(digits, ragged, spec)
    population = run.trainer.population
    received = expand(run.state.shared, len(SIZES))
    stacked = run.trainer.train(LARGEST_FIRST, received, {}, ROUND, 1.0)
    steps = [spec.training.local_epochs * -(-SIZES[client] // 20) for client in LARGEST_FIRST]
    assert stacked.result.steps.tolist() == steps
    assert len(set(steps)) > 3, "clients leave the stack at different steps"
    for position, client in enumerate(LARGEST_FIRST):
        alone = fresh_model(run)
        parameters = list(alone.parameters())
        plain = make(parameters, spec.training)
        losses = [
            plain_step(alone, parameters, plain, images, labels, clip)
            for images, labels in plain_batches(population, client, steps[position])
        ]
        assert float(stacked.losses[position]) == pytest.approx(np.mean(losses), rel=1e-4)
        for name, parameter in alone.named_parameters():
            trained = stacked.result.trained[name][position]
            # Adam turns the rounding of a gradient near zero into a part of its step
            tolerance = {"sgd": 2e-5, "adam": rate / 50, "adamw": rate / 50}[optimiser]
            worst = float((trained - parameter.detach()).abs().max())
            assert worst < tolerance, f"client {client} {name}"
            moved = float((trained - run.state.shared[name]).abs().max())
            assert moved > 20 * tolerance or moved == 0, f"{name}: the comparison would not notice an error"


class TwoPhases(FedAvg):
    """Head first, two steps per batch; then the trunk near its received weights, counting batches."""

    def init_private(self, rng, shared):
        return {"private.batches": torch.tensor(0.0), "private.kept": torch.tensor([1.0, 2.0])}

    def phases(self):
        def view(local):
            return {name: leaf for name, leaf in local.items() if not name.startswith("private.")}

        def proximal(local, received):
            squares = [(local[n] - received[n]).square().flatten(1).sum(1) for n in received if n.startswith("trunk.")]
            return 5.0 * sum(squares)

        def count(local):
            return {"private.batches": local["private.batches"] + 1}

        head = Phase((Group(("head.",)),), epochs=2, repeats=2, view=view, clip=0.3)
        trunk = Group(("trunk.",), learning_rate=0.02, weight_decay=0.0, scheduled=False)
        return head, Phase((trunk,), view=view, penalty=proximal, after_batch=count)


def distance_from_now(parameters):
    """Squared distance of parameters from their present values, as a function to call later."""
    start = [parameter.detach().clone() for parameter in parameters]
    return lambda: sum((now - then).square().sum() for now, then in zip(parameters, start, strict=True))


def make_trainer(method_class, spec, digits, ragged):
    classifier = make_model(spec.model, digits.shape, digits.classes)
    classifier.load_state_dict(base_weights(spec, digits))
    method = method_class(spec.method.options, classifier.eval(), spec.training, 0)
    population = Population(digits, ragged, classifier, torch.device("cpu"))
    return ClientTrainer(method, spec.training, population, 0)


def test_phases_against_a_plain_loop(digits, ragged):
    spec = make_spec(model="mlp", learning_rate=0.1, momentum=0.9, weight_decay=0.01, clip=2.0)
    trainer = make_trainer(TwoPhases, spec, digits, ragged)
    method, factor = trainer.method, 0.5
    shared = method.init_shared(stream(0, "shared"))
    private = expand(method.init_private(stream(0, "private"), shared), len(SIZES))
    # other weights for every client, so that a mix-up of clients shows
    scales = 1 + 0.05 * torch.arange(len(SIZES))
    received = {name: torch.stack([leaf * scale for scale in scales]) for name, leaf in shared.items()}
    stacked = trainer.train(LARGEST_FIRST, received, private, ROUND, factor)
    message, kept = method.finish(stacked.result)
    assert stacked.result.learning_rate == pytest.approx(0.05)
    assert kept.keys() == {"private.batches", "private.kept"}
    assert kept["private.kept"].tolist() == [[1.0, 2.0]] * len(SIZES)
    for position, client in enumerate(LARGEST_FIRST):
        steps = -(-SIZES[client] // 20)
        assert int(stacked.result.steps[position]) == 2 * steps
        assert float(kept["private.batches"][position]) == steps
        alone = copy.deepcopy(method.task.classifier)
        alone.load_state_dict(rows(received, position))
        head, trunk = list(alone.head.parameters()), list(alone.trunk.parameters())
        for parameter in head:
            parameter.requires_grad_(True)
        plain = torch.optim.SGD(head, 0.1 * factor, 0.9, weight_decay=0.01)
        for images, labels in plain_batches(trainer.population, client, 2 * steps):
            for _ in range(2):
                plain_step(alone, head, plain, images, labels, 0.3)
        for parameter in head:
            parameter.requires_grad_(False)
        for parameter in trunk:
            parameter.requires_grad_(True)
        plain = torch.optim.SGD(trunk, 0.02, 0.9)
        nearby = distance_from_now(trunk)
        losses = [
            plain_step(alone, trunk, plain, images, labels, 2.0, lambda nearby=nearby: 5.0 * nearby())
            for images, labels in plain_batches(trainer.population, client, steps, phase=1)
        ]
        assert float(stacked.losses[position]) == pytest.approx(np.mean(losses), rel=1e-4)
        for name, parameter in alone.named_parameters():
            torch.testing.assert_close(
                message[name][position],
                parameter.detach() - received[name][position],
                rtol=1e-3,
                atol=1e-5,
                msg=f"{client} {name}",
            )


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ((Group(("head.",)), Group(("head.weight",))), r"'head.weight' is in two optimiser groups"),
        ((Group(("nothing.",)),), r"no leaf matches the phase's groups"),
    ],
)
def test_impossible_groups_are_an_error(groups, message, digits, ragged, monkeypatch):
    trainer = make_trainer(FedAvg, make_spec(model="mlp"), digits, ragged)
    monkeypatch.setattr(trainer.method, "phases", lambda: (Phase(groups),))
    with pytest.raises(FedbenchError, match=message):
        trainer.train([5], expand(trainer.method.init_shared(stream(0, "shared")), 1), {}, 1, 1.0)


@pytest.mark.parametrize("limit", [0.1, 1.0, 1e6])
def test_clipping_is_torchs_per_client(limit):
    generator = torch.Generator().manual_seed(0)
    scales = torch.tensor([1e-4, 1.0, 30.0]).unsqueeze(1)
    buffers = [torch.zeros(3, size, requires_grad=True) for size in (7, 1, 40)]
    for buffer in buffers:
        buffer.grad = scales * torch.randn(buffer.shape, generator=generator)
    unused = torch.zeros(3, 2, requires_grad=True)  # a leaf that the loss does not reach
    expected = []
    for client in range(3):
        alone = [torch.zeros(buffer.shape[1], requires_grad=True) for buffer in buffers]
        for leaf, buffer in zip(alone, buffers, strict=True):
            leaf.grad = buffer.grad[client].clone()
        torch.nn.utils.clip_grad_norm_(alone, limit)
        expected.append([leaf.grad for leaf in alone])
    clip_each([*buffers, unused], limit)
    for client in range(3):
        for buffer, wanted in zip(buffers, expected[client], strict=True):
            torch.testing.assert_close(buffer.grad[client], wanted, rtol=1e-6, atol=0)
    assert unused.grad is None


def test_bf16_computes_in_bf16_and_keeps_weights_in_fp32(tmp_path, digits, ragged):
    trained = {}
    for precision in ("fp32", "bf16"):
        run = play(digits, ragged, make_spec(model="mlp", precision=precision, learning_rate=0.1))
        result = run.trainer.train([5, 2], expand(run.state.shared, 2), {}, 1, 1.0).result
        trained[precision] = result.trained
    for name, leaf in trained["bf16"].items():
        assert leaf.dtype == torch.float32
        torch.testing.assert_close(leaf, trained["fp32"][name], rtol=0, atol=0.02)
    assert any((leaf != trained["fp32"][name]).any() for name, leaf in trained["bf16"].items())


def test_a_client_without_a_batch_left_does_not_move(digits, ragged):
    """The small client's weights after the chunk are those of its own last step."""
    trainer = make_trainer(FedAvg, make_spec(model="mlp", optimizer="adam", momentum=0.9), digits, ragged)
    shared = trainer.method.init_shared(stream(0, "shared"))
    together = trainer.train([5, 0], expand(shared, 2), {}, 1, 1.0)
    alone = trainer.train([0], expand(shared, 1), {}, 1, 1.0)
    for name, leaf in rows(together.result.trained, 1).items():
        torch.testing.assert_close(leaf, alone.result.trained[name][0], rtol=1e-5, atol=1e-6)
