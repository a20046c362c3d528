"""Accuracies against a plain loop over clients."""

import copy

import numpy as np
import pytest
import torch
from support import SIZES, Watch, base_weights, make_spec, ragged_partition, run_cell
from torch.nn import functional

from fedbench.engine import evaluate
from fedbench.engine.chunk import Chunk
from fedbench.engine.client_store import ClientStore
from fedbench.engine.evaluate import Evaluator
from fedbench.models.images import normalise
from fedbench.models.make_model import make_model


def plain_logits(spec, store, weights, samples):
    """Logits of a plain model with the given weights."""
    model = make_model(spec.model, store.shape, store.classes)
    model.load_state_dict({**base_weights(spec, store), **weights})
    model.eval()
    with torch.no_grad():
        return model(normalise(torch.from_numpy(store.images[samples]), model.mean, model.std))


def plain_accuracy(spec, store, weights, samples):
    if not len(samples):
        return None
    predicted = plain_logits(spec, store, weights, samples).argmax(1).numpy()
    return float((predicted == store.labels[samples]).mean())


@pytest.fixture(scope="module")
def local(tmp_path_factory, digits, ragged):
    """A run in which clients have weights of their own, and two of six never took part."""
    spec = make_spec(
        "local-only",
        "mlp",
        method_options={"trainable": "full"},
        rounds=1,
        participation=0.67,
        local_epochs=20,
        learning_rate=0.1,
    )
    return spec, run_cell(tmp_path_factory.mktemp("local"), digits, ragged, spec)


def test_own_weights(local, digits, ragged):
    spec, outcome = local
    trained = sorted(outcome.state.private)
    assert len(trained) == 4
    accuracies, validation = [], []
    for client, row in enumerate(outcome.clients):
        weights = outcome.state.private.get(client, {})
        accuracies.append(plain_accuracy(spec, digits, weights, ragged.test[client]))
        validation.append(plain_accuracy(spec, digits, weights, ragged.validation[client]))
        assert float(row["accuracy_personal"]) == pytest.approx(accuracies[-1])
        base = plain_accuracy(spec, digits, {}, ragged.test[client])
        assert float(row["accuracy_base"]) == pytest.approx(base)
        assert float(row["accuracy_global"]) == pytest.approx(base), "nothing is shared, so the start stays"
        if client not in trained:
            assert float(row["accuracy_personal"]) == pytest.approx(base), "never sampled: the shared weights"
            assert row["participations"] == "0"
        sizes = [str(len(getattr(ragged, split)[client])) for split in ("train", "validation", "test")]
        assert [row["n_train"], row["n_val"], row["n_test"]] == sizes
    assert len({accuracies[client] for client in trained}) > 1, "the comparison would not notice swapped clients"
    last = outcome.rounds[-1]
    assert float(last["test_accuracy_mean"]) == pytest.approx(np.mean(accuracies))
    assert float(last["test_accuracy_std"]) == pytest.approx(np.std(accuracies))
    assert float(last["test_accuracy_worst"]) == pytest.approx(min(accuracies))
    for name, share in (("p10", 10), ("p50", 50), ("p90", 90)):
        assert float(last[f"test_accuracy_{name}"]) == pytest.approx(np.percentile(accuracies, share))
    assert validation[0] is None, "one client has no validation samples"
    assert float(last["val_accuracy"]) == pytest.approx(np.mean(validation[1:]))


def test_shared_weights(tmp_path, digits, ragged):
    spec = make_spec(model="resnet", rounds=2, local_epochs=3, learning_rate=0.1)
    outcome = run_cell(tmp_path, digits, ragged, spec)
    shared = outcome.state.shared
    whole = np.concatenate(ragged.test)
    logits, labels = plain_logits(spec, digits, shared, whole), torch.from_numpy(digits.labels[whole])
    last = outcome.rounds[-1]
    assert float(last["global_accuracy"]) == pytest.approx(float((logits.argmax(1) == labels).double().mean()))
    assert float(last["global_loss"]) == pytest.approx(float(functional.cross_entropy(logits, labels)), rel=1e-5)
    for client, row in enumerate(outcome.clients):
        accuracy = plain_accuracy(spec, digits, shared, ragged.test[client])
        assert float(row["accuracy_personal"]) == float(row["accuracy_global"]) == pytest.approx(accuracy)


@pytest.mark.parametrize("chunk", [1, 2, 6])
@pytest.mark.parametrize("images", [4, 7, 1000])
def test_cutting_into_passes_changes_nothing(images, chunk, local, digits, ragged, monkeypatch, tmp_path):
    spec, outcome = local
    monkeypatch.setitem(evaluate.IMAGES, "cpu", images)
    cut = run_cell(tmp_path, digits, ragged, spec, chunk=chunk)
    assert cut.numbers()["clients.csv"] == outcome.numbers()["clients.csv"]
    for column in ("val_accuracy", "global_accuracy", "test_accuracy_mean"):
        assert cut.rounds[-1][column] == outcome.rounds[-1][column]


def test_private_parts_count_for_their_own_client(tmp_path, digits, ragged):
    """FedSDG's personal accuracies are those of each client evaluated alone."""
    from support import play

    spec = make_spec("fedsdg", rounds=2, local_epochs=2, participation=0.67, learning_rate=0.1)
    outcome = run_cell(tmp_path, digits, ragged, spec)
    run = play(digits, ragged, spec)
    for client, row in enumerate(outcome.clients):
        own = outcome.state.private.get(client, {})
        weights = {name: leaf.unsqueeze(0) for name, leaf in {**outcome.state.shared, **own}.items()}
        samples = ragged.test[client]
        with torch.no_grad():
            logits = run.method.task.logits(weights, run.trainer.population.images(samples[None]))[0]
        hits = logits.argmax(1).numpy() == digits.labels[samples]
        assert float(row["accuracy_personal"]) == pytest.approx(hits.mean())
    gates = outcome.numbers()["gates.csv"]
    assert {int(row["client"]) for row in gates} == set(outcome.state.private)
    values = [float(row["value"]) for row in gates]
    assert float(outcome.rounds[-1]["gate_mean"]) == pytest.approx(np.mean(values))
    for kind in ("attention", "ffn"):
        own = [float(row["value"]) for row in gates if row["site"] == kind]
        assert float(outcome.rounds[-1][f"gate_{kind}_mean"]) == pytest.approx(np.mean(own))
    logit = outcome.state.private[int(gates[0]["client"])]["gate.trunk.blocks.0.attn.proj"]
    assert values[0] == pytest.approx(float(torch.sigmoid(logit)))


def test_evaluation_draws_nothing_and_changes_nothing(local, digits, ragged, tmp_path):
    from support import play

    spec, outcome = local
    run = play(digits, ragged, spec)
    store = ClientStore(dict, copy.deepcopy(outcome.state.private))
    before = torch.random.get_rng_state()
    first = run.evaluator.evaluate({}, store, sorted(store.trees))
    second = Evaluator(run.trainer, Chunk(2, print)).evaluate({}, store, sorted(store.trees)[::-1])
    assert torch.equal(torch.random.get_rng_state(), before)
    np.testing.assert_array_equal(first.personal, second.personal)
    np.testing.assert_array_equal(first.validation, second.validation)
    assert np.isnan(first.validation[0])
    for client, tree in outcome.state.private.items():
        for name, leaf in tree.items():
            assert torch.equal(store.trees[client][name], leaf)


def test_without_any_validation_there_is_no_best_round(tmp_path, digits):
    partition = ragged_partition(digits, validation=(0,) * len(SIZES))
    outcome = run_cell(tmp_path, digits, partition, make_spec(model="mlp", rounds=2))
    assert [row["val_accuracy"] for row in outcome.rounds] == [""] * 3
    assert outcome.summary["selections"].keys() == {"last", "tail"}
    assert outcome.summary["selections"]["last"]["val"] is None
    assert {row["accuracy_personal_best"] for row in outcome.clients} == {""}
    assert all(row["accuracy_personal"] for row in outcome.clients)


def test_schedule(tmp_path, digits, ragged):
    watch = Watch()
    outcome = run_cell(tmp_path, digits, ragged, make_spec(model="mlp", rounds=5, evaluate_every=3), watch=watch)
    assert watch.rounds == [0, 1, 2, 3, 4, 5]
    evaluated = [int(row["round"]) for row in outcome.rounds if row["global_accuracy"]]
    assert evaluated == [0, 3, 5], "the base and the last round always are"
    assert outcome.summary["selections"]["tail"]["rounds"] == [3, 5]
