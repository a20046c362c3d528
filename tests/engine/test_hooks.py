"""What a method may ask of the engine beyond plain phases: order, leaves replaced before a phase, own images."""

import numpy as np
import pytest
import torch
from support import SIZES, make_spec, play

from fedbench.methods.method import Group, Phase
from fedbench.tree import expand, rows


def test_phases_in_epochs_count_them_in_any_order_of_clients(tmp_path, digits, ragged):
    """Where the run counts steps, such a phase makes whole passes: clients come in no order of their batches."""
    run = play(digits, ragged, make_spec("fedavg", "mlp", local_steps=2, learning_rate=0.1))
    everything = (Group(("trunk.", "head.")),)

    def count(local):
        return {"private.batches": local["private.batches"] + 1}

    def view(local):
        return {name: leaf for name, leaf in local.items() if not name.startswith("private.")}

    run.method.phases = lambda: (Phase(everything, view=view), Phase(everything, 2, view=view, after_batch=count))
    clients = list(range(len(SIZES)))
    private = {"private.batches": torch.zeros(len(clients))}
    together = run.trainer.train(clients, expand(run.state.shared, len(clients)), private, 1, 1.0)
    assert together.result.steps.tolist() == [2] * len(clients)
    batches = [2 * -(-size // 20) for size in SIZES]
    assert together.result.trained["private.batches"].tolist() == batches
    assert len(set(batches)) > 3, "clients leave the stack at different steps"
    for position, client in enumerate(clients):
        alone = run.trainer.train([client], expand(run.state.shared, 1), rows(private, slice(1)), 1, 1.0)
        torch.testing.assert_close(together.losses[position], alone.losses[0])
        for name, leaf in alone.result.trained.items():
            torch.testing.assert_close(together.result.trained[name][position], leaf[0], rtol=1e-4, atol=1e-6)


def test_leaves_replaced_before_a_phase(tmp_path, digits, ragged):
    run = play(digits, ragged, make_spec("fedavg", "mlp", learning_rate=0.1))
    trained = {}
    for start in ("zeros", "replaced"):
        shared = {name: torch.zeros_like(leaf) for name, leaf in run.state.shared.items()}
        before = None
        if start == "replaced":
            shared = run.state.shared
            before = lambda local: {name: torch.zeros_like(leaf) for name, leaf in local.items()}  # noqa: E731
        run.method.phases = lambda before=before: (Phase((Group(("",)),), before=before),)
        trained[start] = run.trainer.train([3, 1], expand(shared, 2), {}, 1, 1.0).result.trained
    for name, leaf in trained["zeros"].items():
        assert torch.equal(leaf, trained["replaced"][name])


@pytest.mark.parametrize("local_steps", [None, 2])
def test_phases_in_epochs_count_epochs_whatever_the_run_counts(local_steps, tmp_path, digits, ragged):
    """Batches that clients saw, in a phase of two epochs and in a training for evaluation of three."""
    run = play(digits, ragged, make_spec("fedavg", "mlp", local_steps=local_steps))

    def counting(local):
        return {"batches": local["batches"] + 1}

    def view(local):
        return {name: leaf for name, leaf in local.items() if name != "batches"}

    own = Phase((Group(("head.",)),), epochs=2, view=view, after_batch=counting)
    run.method.phases = lambda: (own,)
    clients = list(range(len(SIZES)))
    shared, none = expand(run.state.shared, len(SIZES)), {"batches": torch.zeros(len(SIZES))}
    trained = run.trainer.train(clients, shared, none, 1, 1.0).result.trained
    batches = [-(-size // 20) for size in SIZES]
    assert trained["batches"].tolist() == [2 * count for count in batches]
    _, private = run.trainer.fine_tune(run.method.evaluation_phases(3), clients, shared, none)
    assert private["batches"].tolist() == [3 * count for count in batches]


def test_images_for_the_context_depend_on_the_client_alone(tmp_path, digits, ragged):
    run = play(digits, ragged, make_spec("fedavg", "mlp"))
    seen = []

    def context(weights, images, mask):
        seen.append((images, mask))
        return {"context.sum": (images.flatten(2).sum(2) * mask).sum(1)}

    run.method.context_images, run.method.context = 10, context
    every = list(range(len(SIZES)))
    weights = expand(run.state.shared, len(every))
    together = run.evaluator._context(weights, every)["context.sum"]
    assert seen[0][1].sum(1).tolist() == [min(10, size) for size in SIZES]
    for client in every[::-1]:
        alone = run.evaluator._context(rows(weights, slice(0, 1)), [client])["context.sum"]
        torch.testing.assert_close(alone[0], together[client])
    population, (images, mask) = run.trainer.population, seen[0]
    for client in every:
        own = population.images(population.train[client])
        drawn = images[client][mask[client]]
        matches = [int((own == image).flatten(1).all(1).sum()) for image in drawn]
        assert all(matches), "every image is one of the client's own training images"
        assert len(np.unique(drawn.flatten(1).numpy(), axis=0)) == len(drawn)


def test_newcomers_are_those_without_participation(tmp_path, digits, ragged):
    spec = make_spec("fedsdg", fine_tune_epochs=1, held_out=0.3, held_out_epochs=1)
    run = play(digits, ragged, spec, chunk=2)
    told = []
    run.method.newcomer = lambda received, private: (told.append(len(next(iter(private.values())))), private)[1]
    held_out = run.held_out
    members = [client for client in range(len(SIZES)) if client not in held_out]
    run.evaluator.evaluate(run.state.shared, run.private, members[:3])
    assert sum(told) == len(SIZES) - 3
