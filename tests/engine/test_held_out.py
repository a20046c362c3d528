"""Clients held out of training: never in a cohort, evaluated after some training of their own, counted apart."""

import copy

import numpy as np
import pytest
import torch
from support import SIZES, Watch, make_spec, play, run_cell
from torch.nn import functional

from fedbench.engine.interrupt import Interrupted
from fedbench.engine.population import draw_held_out
from fedbench.errors import FedbenchError

SHARE = {"held_out": 0.34, "participation": 0.5, "rounds": 3, "learning_rate": 0.1}


@pytest.mark.parametrize(("clients", "share", "size"), [(100, 0.2, 20), (6, 0.34, 2), (6, 0.01, 1), (6, 0.0, 0)])
def test_draw(clients, share, size):
    drawn = draw_held_out(0, clients, share)
    assert drawn == sorted(set(drawn)) == draw_held_out(0, clients, share)
    assert len(drawn) == size
    assert all(type(client) is int and 0 <= client < clients for client in drawn)
    if 1 < size < clients:
        assert drawn != draw_held_out(1, clients, share)


def test_somebody_has_to_train():
    with pytest.raises(FedbenchError, match="leaves none to train"):
        draw_held_out(0, 4, 0.9)


def test_tables(tmp_path, digits, ragged):
    outcome = run_cell(tmp_path, digits, ragged, make_spec("fedavg", "mlp", held_out_epochs=2, **SHARE))
    held_out = [c for c, row in enumerate(outcome.clients) if row["held_out"] == "1"]
    assert held_out == draw_held_out(0, len(SIZES), 0.34)
    cohorts = [set(map(int, row["cohort"].split())) for row in outcome.rounds[1:]]
    assert all(len(cohort) == 2 for cohort in cohorts), "the share of those who may take part"
    assert not set(held_out).intersection(*cohorts)
    assert set().union(*cohorts) <= set(range(len(SIZES))) - set(held_out)
    assert all(outcome.clients[c]["participations"] == "0" for c in held_out)

    own = np.array([float(row["accuracy_personal"]) for row in outcome.clients])
    base = np.array([float(row["accuracy_base"]) for row in outcome.clients])
    members = np.setdiff1d(np.arange(len(SIZES)), held_out)
    last, summary = outcome.rounds[-1], outcome.summary
    assert float(last["test_accuracy_mean"]) == pytest.approx(own[members].mean())
    assert float(last["test_accuracy_worst"]) == pytest.approx(own[members].min())
    assert float(last["held_out_accuracy_mean"]) == pytest.approx(own[held_out].mean())
    assert float(last["held_out_accuracy_worst"]) == pytest.approx(own[held_out].min())
    assert own[members].mean() != pytest.approx(own.mean()), "the comparison would not notice"
    assert summary["base"]["personal_mean"] == pytest.approx(base[members].mean())
    assert summary["selections"]["last"]["personal"]["mean"] == pytest.approx(own[members].mean())
    assert summary["selections"]["last"]["held_out"]["mean"] == pytest.approx(own[held_out].mean())
    assert summary["held_out_clients"] == len(held_out)


def test_without_held_out_clients_their_columns_are_empty(tmp_path, digits, ragged):
    outcome = run_cell(tmp_path, digits, ragged, make_spec("fedavg", "mlp"))
    assert {row["held_out_accuracy_mean"] for row in outcome.rounds} == {""}
    assert {row["held_out"] for row in outcome.clients} == {"0"}
    assert outcome.summary["selections"]["last"]["held_out"] is None


@pytest.mark.parametrize("epochs", [{"held_out_epochs": 3}, {"fine_tune_epochs": 3}, {}])
def test_accuracy_equals_a_naive_loop(epochs, tmp_path, digits, ragged):
    spec = make_spec("fedavg", "mlp", **{**SHARE, "learning_rate": 0.2}, batch_size=200, **epochs)
    run = play(digits, ragged, spec)
    population = run.trainer.population
    evaluation = run.evaluate()
    assert len(evaluation.held_out) == 2
    for client in evaluation.held_out:
        model = copy.deepcopy(run.method.task.classifier).requires_grad_(True)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.2)
        own, test = population.train[client], population.test[client]
        for _ in range(3 if epochs else 0):  # one batch per epoch
            optimiser.zero_grad()
            functional.cross_entropy(model(population.images(own)), population.labels(own)).backward()
            optimiser.step()
        hits = (model(population.images(test)).argmax(1) == population.labels(test)).double().mean()
        assert evaluation.personal[client] == pytest.approx(float(hits))
    members = np.setdiff1d(np.arange(len(SIZES)), evaluation.held_out)
    same = np.array_equal(evaluation.personal[members], evaluation.shared[members])
    assert same == ("fine_tune_epochs" not in epochs)


def test_held_out_training_changes_nothing_else(tmp_path, digits, ragged):
    tables = [
        run_cell(tmp_path / str(n), digits, ragged, make_spec("fedrep", "vit", held_out_epochs=n, **SHARE)).rounds
        for n in (1, 5)
    ]
    for row, other in zip(*tables, strict=True):
        apart = {column for column in row if column.startswith(("held_out", "seconds"))}
        assert {c: v for c, v in row.items() if c not in apart} == {c: v for c, v in other.items() if c not in apart}
    assert any(row["held_out_accuracy_mean"] != o["held_out_accuracy_mean"] for row, o in zip(*tables, strict=True))


def test_pooled_training_leaves_their_samples_out(tmp_path, digits, ragged):
    run = play(digits, ragged, make_spec("centralised", "mlp", **SHARE))
    population = run.trainer.population
    expected = [s for c in range(len(SIZES)) if c not in population.held_out for s in population.train[c]]
    assert population.train_samples[0].tolist() == sorted(expected)
    assert len(expected) < sum(SIZES)
    outcome = run_cell(tmp_path / "whole", digits, ragged, make_spec("centralised", "mlp", **SHARE))
    assert [row["cohort"] for row in outcome.rounds[1:]] == ["0"] * 3


@pytest.mark.parametrize("method", ["base", "local-only", "ditto", "pfedme", "feddpa", "scaffold", "fedadam"])
def test_any_method_stops_and_resumes_with_held_out_clients(method, tmp_path, digits, ragged):
    spec = make_spec(method, **SHARE, held_out_epochs=1)
    whole = run_cell(tmp_path / "whole", digits, ragged, spec)
    if whole.summary["rounds_done"]:
        with pytest.raises(Interrupted):
            run_cell(tmp_path / "cut", digits, ragged, spec, watch=Watch(stop_after=1))
    resumed = run_cell(tmp_path / "cut", digits, ragged, spec, chunk=1 if method == "base" else None)
    assert resumed.numbers() == whole.numbers()
    assert resumed.summary["selections"] == whole.summary["selections"]
    assert all(row["held_out_accuracy_mean"] for row in whole.rounds)
