"""What two features of a run do together, against plain loops and numbers worked out by hand."""

from dataclasses import replace
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
import torch
from by_hand import mlp_run
from support import SIZES, Watch, make_spec, play, read_csv, run_cell
from torch.nn import functional

from fedbench.config.reading import parse_entry
from fedbench.engine.checkpointer import Checkpointer
from fedbench.engine.interrupt import Interrupted
from fedbench.engine.population import draw_held_out
from fedbench.engine.server import RoundResult, Server
from fedbench.errors import FedbenchError
from fedbench.tree import norm

RATE = 0.2
ONE_BATCH = {"learning_rate": RATE, "batch_size": 200}  # one batch per epoch: the order of samples does not matter


def tuned(run, client, epochs, leaves=None):
    """A client's weights after plain gradient descent on its own samples; the classifier's other weights stay."""
    population = run.trainer.population
    own = population.train[client]
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in (leaves or run.state.shared).items()}
    for _ in range(epochs):
        logits = torch.func.functional_call(run.method.task.classifier, leaves, (population.images(own),))
        loss = functional.cross_entropy(logits, population.labels(own))
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        leaves = {
            name: (leaf - RATE * gradient).detach().requires_grad_()
            for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
        }
    return leaves


def accuracy(run, leaves, samples):
    if not len(samples):
        return np.nan
    population = run.trainer.population
    logits = torch.func.functional_call(run.method.task.classifier, leaves, (population.images(samples),))
    return float((logits.argmax(1) == population.labels(samples)).double().mean())


def expected(run, epochs, split):
    """Each client's accuracy on its samples of a split after its own number of epochs."""
    parts = getattr(run.trainer.population, split)
    return [accuracy(run, tuned(run, client, epochs[client]), part) for client, part in enumerate(parts)]


def test_validation_is_of_the_weights_that_are_tested(tmp_path, digits, ragged):
    """Fine-tuned first where the run fine-tunes, at the full rate whatever the schedule; or a best round is not one."""
    spec = make_spec("fedavg", "mlp", fine_tune_epochs=3, schedule="cosine", rounds=4, **ONE_BATCH)
    run = play(digits, ragged, spec)
    found = run.evaluate()
    np.testing.assert_allclose(found.validation, expected(run, [3] * 6, "validation"))
    np.testing.assert_allclose(found.personal, expected(run, [3] * 6, "test"))
    assert np.nanmax(abs(found.validation - expected(run, [0] * 6, "validation"))) > 0


@pytest.mark.parametrize(("everyone", "newcomers"), [(3, 0), (0, 3), (2, 4), (3, None)])
def test_newcomers_train_for_their_own_number_of_epochs(everyone, newcomers, tmp_path, digits, ragged):
    options = {"held_out": 0.34, "fine_tune_epochs": everyone, "held_out_epochs": newcomers}
    run = play(digits, ragged, make_spec("fedavg", "mlp", **ONE_BATCH, **options))
    held_out = run.trainer.population.held_out
    assert len(held_out) == 2
    epochs = [everyone] * 6
    for client in held_out:
        epochs[client] = everyone if newcomers is None else newcomers
    found = run.evaluate()
    np.testing.assert_allclose(found.personal, expected(run, epochs, "test"))
    np.testing.assert_allclose(found.shared, expected(run, [0] * 6, "test"))


def test_a_frozen_head_stays_when_clients_fine_tune(tmp_path, digits, ragged):
    spec = make_spec("fedavg", "mlp", fine_tune_epochs=3, **ONE_BATCH)
    frozen = {"backbone": "mlp", "hidden": 16, "head": "frozen-orthogonal"}
    run = play(digits, ragged, replace(spec, model=parse_entry("models", "mlp", frozen)))
    assert set(run.state.shared) == {"trunk.1.weight", "trunk.1.bias"}
    head = run.method.task.classifier.head.weight.clone()
    found = run.evaluate()
    np.testing.assert_allclose(found.personal, expected(run, [3] * 6, "test"))
    assert torch.equal(run.method.task.classifier.head.weight, head)
    assert (found.personal != found.shared).any()


def test_the_base_is_untouched_where_clients_fine_tune(tmp_path, digits, ragged):
    spec = make_spec("fedavg", "mlp", rounds=1, fine_tune_epochs=2, held_out=0.34, **ONE_BATCH)
    start = play(digits, ragged, spec)
    before, after = (expected(start, [epochs] * 6, "test") for epochs in (0, 2))
    outcome = run_cell(tmp_path / "whole", digits, ragged, spec)
    assert [float(row["accuracy_base"]) for row in outcome.clients] == pytest.approx(before)
    members = [client for client in range(6) if client not in outcome.record.held_out]
    summary, first = outcome.summary, outcome.rounds[0]
    assert summary["base"]["personal_mean"] == pytest.approx(np.mean([before[client] for client in members]))
    assert float(first["test_accuracy_mean"]) == pytest.approx(np.mean([after[client] for client in members]))
    assert summary["base"]["global"] == float(first["global_accuracy"])


def test_the_global_accuracy_is_of_the_whole_test_split(tmp_path, digits, ragged):
    """Sample by sample, those of held-out clients too."""
    run = play(digits, ragged, make_spec("fedavg", "mlp", held_out=0.34))
    found = run.evaluate()
    whole, population = np.concatenate(ragged.test), run.trainer.population
    logits = torch.func.functional_call(run.method.task.classifier, run.state.shared, (population.images(whole),))
    labels = population.labels(whole)
    hits = (logits.argmax(1) == labels).double()
    assert found.global_accuracy == pytest.approx(float(hits.mean()))
    assert found.global_loss == pytest.approx(float(functional.cross_entropy(logits, labels)), rel=1e-5)
    sizes = np.array([len(part) for part in ragged.test])
    members = np.setdiff1d(np.arange(len(SIZES)), found.held_out)
    others = (found.shared.mean(), found.shared[members].mean(), found.shared[members] @ sizes[members] / sizes.sum())
    assert all(found.global_accuracy != pytest.approx(other, abs=1e-6) for other in others)


def test_a_clipped_step_goes_with_the_rounds_rate():
    """Round 3 of 4 has half the rate: a message of the length rate / 2 times the limit, which no schedule moves."""
    limit = 0.01
    run, _ = mlp_run({"method": "fedavg"}, rounds=4, schedule="cosine", clip=limit, learning_rate=0.1)
    run.population.train_samples = run.population.train_samples[:1]
    row = run.round(3)
    assert row["lr"] == pytest.approx(0.05)
    assert row["update_norm"] == pytest.approx(0.05 * limit, rel=1e-3)
    change = {name: leaf - run.shared[name] for name, leaf in run.state.shared.items()}
    assert norm(change) == pytest.approx(0.05 * limit, rel=1e-2)


def diverging(at):
    """Rounds that diverge in round `at`, as the server says it."""
    real = Server.round

    def round_of(server, state, number):
        if number != at:
            return real(server, state, number)
        return RoundResult(replace(state, round_number=number), [0], np.nan, 0.1, [0], [0], {}, None, diverged=True)

    return mock.patch.object(Server, "round", round_of)


@pytest.mark.parametrize("planned", [3, 6], ids=["in its last round", "before it"])
def test_a_run_that_diverges_between_evaluations(planned, tmp_path, digits, ragged):
    spec = make_spec("fedavg", "mlp", rounds=planned, evaluate_every=2, learning_rate=0.1)
    with diverging(3):
        outcome = run_cell(tmp_path, digits, ragged, spec)
    assert [row["round"] for row in outcome.rounds] == ["0", "1", "2", "3"]
    assert [row["global_accuracy"] != "" for row in outcome.rounds] == [True, False, True, False]
    summary = outcome.summary
    assert (summary["diverged"], summary["diverged_round"], summary["rounds_done"]) == (True, 3, 3)
    chosen = {name: part["rounds"] for name, part in summary["selections"].items()}
    assert chosen == {"last": [2], "tail": [2], "best": [2]}
    second = outcome.rounds[2]
    assert summary["selections"]["last"]["personal"]["mean"] == float(second["test_accuracy_mean"])
    mean = np.mean([float(row["accuracy_personal"]) for row in outcome.clients])
    assert mean == pytest.approx(float(second["test_accuracy_mean"]))


def test_a_run_stopped_between_evaluations_goes_on(tmp_path, digits, ragged):
    """After rounds that were not evaluated, with newcomers, domains and a best round from before the stop."""
    domains = np.arange(len(digits.labels)) % 2
    store = replace(digits, domains=domains, domain_names=("even", "odd"))
    options = {"rounds": 7, "evaluate_every": 3, "held_out": 0.17, "participation": 0.5, "learning_rate": 0.3}
    spec = make_spec("ditto", "mlp", **options)
    whole = run_cell(tmp_path / "whole", store, ragged, spec)
    assert [int(row["round"]) for row in whole.rounds if row["global_accuracy"]] == [0, 3, 6, 7]
    for stop in (1, 4, 5):
        with pytest.raises(Interrupted):
            run_cell(tmp_path / "parts", store, ragged, spec, watch=Watch(stop_after=stop))
    parts = run_cell(tmp_path / "parts", store, ragged, spec)
    assert parts.numbers() == whole.numbers()
    assert parts.summary["selections"] == whole.summary["selections"]
    assert set(parts.numbers()) == {"rounds.csv", "clients.csv", "domains.csv"}


def test_long_runs_are_saved_while_they_last(tmp_path, digits, ragged, monkeypatch):
    saved = []
    monkeypatch.setattr(Checkpointer, "save", lambda self, state, record: saved.append(state.round_number))
    run_cell(tmp_path / "short", digits, ragged, make_spec("fedavg", "mlp", rounds=2))
    assert saved == [], "not within the first minute"
    monkeypatch.setattr(Checkpointer, "due", lambda self: True)
    run_cell(tmp_path / "long", digits, ragged, make_spec("fedavg", "mlp", rounds=2))
    assert saved == [0, 1, 2]


def test_the_context_is_of_the_runs_seed(tmp_path, digits, ragged):
    """FedDPA's anchors are drawn once per run: the same in each evaluation, others under another seed."""
    seen = []
    for seed in (0, 0, 1):
        run = play(digits, ragged, make_spec("fedavg", "mlp", seed=seed))
        run.method.context_images = 5
        run.method.context = lambda weights, images, mask: seen.append(images) or {}
        run.evaluator._context(run.state.shared, [5])
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])


def test_another_seed_is_another_run(tmp_path, digits, ragged):
    """Held-out clients, cohorts, batches and private starts: none of them hangs on anything but the run's seed."""
    options = {"rounds": 2, "held_out": 0.34, "participation": 0.5}
    runs = [play(digits, ragged, make_spec("fedsdg", seed=n, **options)) for n in range(3)]
    assert len({tuple(run.held_out) for run in runs}) > 1
    for first, second in pairwise(runs):
        device = first.compute.device
        one, other = (run.private.gather([2], device) for run in (first, second))
        assert any(not torch.equal(leaf, other[name]) for name, leaf in one.items())
        assert any(not torch.equal(leaf, second.state.shared[name]) for name, leaf in first.state.shared.items())
    losses = []
    for seed in (0, 1):  # the same clients from the same start, in other batches
        run_cell(tmp_path / f"batches{seed}", digits, ragged, make_spec("fedavg", "mlp", seed=seed, rounds=1))
        losses.append(read_csv(tmp_path / f"batches{seed}" / "run" / "rounds.csv")[1]["train_loss"])
    assert losses[0] != losses[1]


def test_pooled_training_goes_on_without_client_0(tmp_path, digits, ragged):
    """The one that trains on everyone's samples is number 0 itself, also where client 0 is held out."""
    seed = next(seed for seed in range(99) if 0 in draw_held_out(seed, 6, 0.34))
    spec = make_spec("centralised", "mlp", seed=seed, rounds=1, held_out=0.34)
    outcome = run_cell(tmp_path, digits, ragged, spec)
    assert outcome.rounds[1]["cohort"] == "0"
    assert float(outcome.rounds[1]["update_norm"]) > 0
    taken = [int(row["participations"]) for row in outcome.clients]
    assert taken == [int(client not in outcome.record.held_out) for client in range(6)]


@pytest.mark.parametrize("part", ["data", "partition"])
def test_a_checkpoint_of_other_samples_is_refused(part, tmp_path, digits, ragged):
    """The spec that names them is the same; what a client trained on is not."""
    spec = make_spec("fedavg", "mlp", rounds=3)
    with pytest.raises(Interrupted):
        run_cell(tmp_path, digits, ragged, spec, watch=Watch(stop_after=1))
    if part == "data":
        digits = replace(digits, meta={**digits.meta, "sha256": {**digits.meta["sha256"], "all": "other"}})
    else:
        ragged = replace(ragged, meta={**ragged.meta, "sha256": "other"})
    with pytest.raises(FedbenchError, match="checkpoint"):
        run_cell(tmp_path, digits, ragged, spec)
