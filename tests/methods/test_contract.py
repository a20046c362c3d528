"""What every registered method must keep to; a new method is tested here without any edit."""

from collections import defaultdict

import numpy as np
import pytest
import torch
from support import (
    Outcome,
    Watch,
    assert_equal_trees,
    base_weights,
    fitting_models,
    go,
    in_float64,
    make_federation,
    make_spec,
    play,
    run_cell,
    trees_of,
)

from fedbench.channels.make_channel import make_channel
from fedbench.engine.interrupt import Interrupted
from fedbench.engine.server import sample_cohort
from fedbench.models.images import normalise
from fedbench.models.make_model import make_model
from fedbench.randomness import stream
from fedbench.registry import METHODS
from fedbench.tree import add, expand, rows

TRAINING = {
    "rounds": 3,
    "participation": 0.67,
    "learning_rate": 0.05,
    "momentum": 0.9,
    "weight_decay": 1e-3,
    "clip": 1.0,
    "schedule": "cosine",
    "aggregation": "samples",
    "augmentation": "crop-flip",
}
TRAINED_COLUMNS = ["round", "cohort", "train_loss", "lr", "uplink_bytes", "downlink_bytes", "update_norm"]
EXACT_COLUMNS = ["round", "cohort", "lr", "uplink_bytes", "downlink_bytes", "cumulative_bytes", "diverged"]

every_method = pytest.mark.parametrize("method", list(METHODS))


@pytest.fixture(scope="module")
def reference(tmp_path_factory, digits, ragged):
    """The run that others equal bit for bit, two clients at a time; made once per method."""
    made: dict[str, Outcome] = {}

    def get(method: str) -> Outcome:
        if method not in made:
            made[method] = run_cell(
                tmp_path_factory.mktemp(method), digits, ragged, make_spec(method, **TRAINING), chunk=2
            )
        return made[method]

    return get


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory, digits, ragged):
    """The same run in float64, one client at a time, for those that equal it but for rounding."""
    made: dict[str, Outcome] = {}

    def get(method: str) -> Outcome:
        if method not in made:
            folder = tmp_path_factory.mktemp(method)
            with in_float64():
                made[method] = run_cell(folder, digits, ragged, make_spec(method, **TRAINING), chunk=1)
        return made[method]

    return get


def assert_close_runs(first: Outcome, second: Outcome) -> None:
    """Equal to float64's rounding: tables and final trees."""
    assert_equal_trees(trees_of(first.state), trees_of(second.state), tolerance=1e-10)
    for name, table in first.numbers().items():
        for row, other in zip(table, second.numbers()[name], strict=True):
            for column, value in row.items():
                if column in EXACT_COLUMNS or not _is_number(value):
                    assert value == other[column], f"{name} {column}"
                else:
                    assert float(value) == pytest.approx(float(other[column]), rel=1e-9, abs=1e-12), f"{name} {column}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@every_method
@pytest.mark.parametrize("chunk", [2, 64])
def test_chunk_size_changes_nothing_but_rounding(method, chunk, tmp_path, digits, ragged, one_by_one):
    with in_float64():
        together = run_cell(tmp_path, digits, ragged, make_spec(method, **TRAINING), chunk)
    assert {leaf.dtype for leaf in together.state.shared.values()} <= {torch.float64}
    assert_close_runs(one_by_one(method), together)


@every_method
def test_same_spec_gives_the_same_tables(method, tmp_path, digits, ragged, reference):
    again = run_cell(tmp_path, digits, ragged, make_spec(method, **TRAINING), chunk=2)
    assert again.numbers() == reference(method).numbers()
    assert_equal_trees(trees_of(again.state), trees_of(reference(method).state))
    assert again.summary["digest"] == reference(method).summary["digest"]
    assert len(again.rounds) == 1 + again.summary["rounds_done"]


@every_method
def test_interrupted_and_resumed_equals_uninterrupted(method, tmp_path, digits, ragged, reference):
    expected = reference(method)
    last = expected.summary["rounds_done"]
    # at the end of round 0, at the first and the third step of a round, and at the ends of rounds 1 and the last
    watches = [Watch(stop_after=0), Watch(stop_at=1), Watch(stop_after=1), Watch(stop_at=3), Watch(stop_after=last)]
    stops = 0
    for watch in watches:
        try:
            run_cell(tmp_path, digits, ragged, make_spec(method, **TRAINING), chunk=2, watch=watch)
        except Interrupted:
            stops += 1
            assert not list((tmp_path / "run").glob("*.csv")), "an unfinished run has results that a stage would read"
            assert not (tmp_path / "run" / "summary.json").exists()
    assert stops == (len(watches) if last else 1)
    resumed = run_cell(tmp_path, digits, ragged, make_spec(method, **TRAINING), chunk=2)
    assert resumed.numbers() == expected.numbers()
    for key in ("selections", "base", "bytes", "parameters", "rounds_done", "diverged", "chance_level"):
        assert resumed.summary[key] == expected.summary[key], key
    if resumed.state is not None:  # else the last call before it was complete already
        assert_equal_trees(trees_of(resumed.state), trees_of(expected.state))
    assert not (tmp_path / "checkpoint").exists(), "a complete run leaves no checkpoint"


@every_method
def test_evaluating_less_often_changes_no_training_number(method, tmp_path, digits, ragged, reference):
    seldom = run_cell(tmp_path, digits, ragged, make_spec(method, **TRAINING, evaluate_every=2), chunk=2)
    often = reference(method)
    assert_equal_trees(trees_of(seldom.state), trees_of(often.state))
    for row, other in zip(seldom.rounds, often.rounds, strict=True):
        assert [row[c] for c in TRAINED_COLUMNS] == [other[c] for c in TRAINED_COLUMNS]
        if int(row["round"]) in (0, 2, 3):
            assert row["global_accuracy"] == other["global_accuracy"] != ""
        else:
            assert row["global_accuracy"] == "" != other["global_accuracy"]


@every_method
def test_order_of_the_cohort_is_irrelevant(method, digits, ragged, one_by_one):
    forwards = one_by_one(method)
    with in_float64():
        backwards = play(
            digits, ragged, make_spec(method, **TRAINING), 2, sampler=lambda *key: sample_cohort(*key)[::-1]
        )
        rows = [backwards.round(number) for number in range(1, backwards.rounds + 1)]
    assert_equal_trees(trees_of(backwards.state), trees_of(forwards.state), tolerance=1e-10)
    for row, other in zip(rows, forwards.rounds[1:], strict=True):
        assert row["cohort"].split() == other["cohort"].split()[::-1]
        assert row["train_loss"] == pytest.approx(float(other["train_loss"]), rel=1e-9)


@every_method
def test_order_inside_a_chunk_is_irrelevant(method, tmp_path, digits, ragged):
    with in_float64():
        run = play(digits, ragged, make_spec(method, **TRAINING, local_steps=3))
    if not run.rounds:
        pytest.skip(f"{method} does not train")
    clients = list(range(len(run.trainer.population.train_samples)))

    @in_float64()
    def train(order):
        received, private = expand(run.state.shared, len(order)), run.private.gather(order, run.compute.device)
        trained = run.trainer.train(order, received, private, 1, 1.0)
        message, kept = run.method.finish(trained.result)
        back = torch.tensor([order.index(client) for client in clients])
        return {"message": rows(message, back), "kept": rows(kept, back), "loss": {"": trained.losses[back]}}

    assert_equal_trees(train(clients), train(clients[::-1]), tolerance=1e-10)


@every_method
@pytest.mark.parametrize(
    "channel",
    [{"codec": "dense", "dtype": "fp16"}, {"codec": "top-k", "density": 0.1, "error_feedback": True}],
    ids=["fp16", "top-k"],
)
def test_bytes_are_lengths_of_payloads(method, channel, tmp_path, digits, ragged):
    lengths = defaultdict(list)
    spec = make_spec(method, channel=channel, **{**TRAINING, "rounds": 2})

    def spying(template):
        real = make_channel(spec.channel, template)
        codec, deliver = getattr(real, "inner", real), real.uplink

        def uplink(messages, weights, memory, state, streams):
            wanted = add(messages, memory) if memory else messages
            number = len(lengths) + 1
            for position in range(len(weights)):
                lengths[number].append(len(codec.pack(rows(wanted, position), streams(position))))
            return deliver(messages, weights, memory, state, streams)

        real.uplink = uplink
        return real

    outcome = go(tmp_path, make_federation(digits, ragged, spec, channel=spying))
    trained, summary = outcome.rounds[1:], outcome.summary["bytes"]
    if not METHODS[method].target.communicates:
        assert all(int(row[f"{way}link_bytes"]) == 0 for row in trained for way in ("up", "down"))
        assert set(summary.values()) == {0}
        return
    assert [int(row["uplink_bytes"]) for row in trained] == [sum(lengths[number]) for number in (1, 2)]
    for row in trained:
        clients = len(row["cohort"].split())
        assert float(row["uplink_bytes_per_client"]) * clients == pytest.approx(int(row["uplink_bytes"]))
        assert float(row["downlink_bytes_per_client"]) * clients == pytest.approx(int(row["downlink_bytes"]))
        assert int(row["uplink_bytes"]) > 0
        assert int(row["downlink_bytes"]) > 0
    up, down = (sum(int(row[f"{way}link_bytes"]) for row in trained) for way in ("up", "down"))
    assert (summary["uplink_total"], summary["downlink_total"]) == (up, down)
    assert summary["cumulative_total"] == up + down == int(trained[-1]["cumulative_bytes"])


@every_method
def test_inputs_stay_as_they_were(method, tmp_path, digits, ragged):
    run = play(digits, ragged, make_spec(method, **TRAINING))
    clients = [0] if run.method.pooled else [5, 2, 0]
    shared, private = run.state.shared, run.private.gather(clients, run.compute.device)
    weights = torch.full((len(clients),), 1 / len(clients), dtype=torch.float64)
    server_state = run.state.server

    def copies():
        trees = {"shared": shared, "private": private, "server": server_state, "base": base}
        return {part: {name: leaf.clone() for name, leaf in tree.items()} for part, tree in trees.items()}

    base = dict(run.method.task.classifier.state_dict())
    before = copies()
    if run.rounds:
        trained = run.trainer.train(clients, expand(shared, len(clients)), private, 1, 1.0)
        message, kept = run.method.finish(trained.result)
        moved = copies_of(message, kept)
        assert_equal_trees(copies(), before)
        observed = run.method.observe(private, kept, trained.gradients)
        run.method.diagnostics(shared, message, weights, observed)
        run.method.private_diagnostics(kept)
        run.method.rows(clients, kept)
        mean = {name: leaf.mean(0) for name, leaf in message.items()}
        if message:
            run.method.aggregate(shared, mean, server_state, 0.5)
        run.method.personal(expand(shared, len(clients)), kept)
        assert_equal_trees(copies_of(message, kept), moved)
    run.method.global_weights(shared)
    run.evaluator.evaluate(shared, run.private, clients if run.private_parameters else [])
    assert_equal_trees(copies(), before)


def copies_of(message, kept):
    return {
        "message": {name: leaf.clone() for name, leaf in message.items()},
        "kept": {name: leaf.clone() for name, leaf in kept.items()},
    }


@every_method
def test_initial_trees_follow_from_their_streams(method, tmp_path, digits, ragged):
    first, second = (play(digits, ragged, make_spec(method, **TRAINING)).method for _ in range(2))
    shared = first.init_shared(stream(3, "test", "shared"))

    def made(by):
        trees = {"private": by.init_private(stream(3, "test", "private"), shared)}  # before its own init_shared
        return {"shared": by.init_shared(stream(3, "test", "shared")), **trees}

    for by in (first, second, second):
        assert_equal_trees(made(by), made(first))
    assert not any(leaf.requires_grad for tree in made(first).values() for leaf in tree.values())
    run = play(digits, ragged, make_spec(method, **TRAINING, seed=4))
    assert_equal_trees({"": run.state.shared}, {"": run.method.init_shared(stream(4, "shared"))})
    private = run.private.gather([3, 1], run.compute.device)
    for position, client in enumerate([3, 1]):
        assert_equal_trees(
            {"": rows(private, position)}, {"": run.method.init_private(stream(4, "private", client), run.state.shared)}
        )


@every_method
def test_nothing_is_remembered_from_call_to_call(method, tmp_path, digits, ragged):
    """A method that has seen nothing else answers as one that has made the run's trees and trained with them."""
    used = play(digits, ragged, make_spec(method, **TRAINING))
    shared, clients = used.state.shared, [0]
    private = used.private.gather(clients, used.compute.device)
    received = expand(shared, 1)
    if used.rounds:
        used.trainer.train(clients, received, private, 1, 1.0)
    spec = make_spec(method, **TRAINING)
    classifier = make_model(spec.model, digits.shape, digits.classes)
    classifier.load_state_dict(base_weights(spec, digits))
    answers = {
        "global": lambda by: by.global_weights(shared),
        "personal": lambda by: by.personal(received, private),
        "private": lambda by: by.init_private(stream(0, "private", 0), shared),
        "newcomer": lambda by: by.newcomer(received, private),
        "server": lambda by: by.init_server(shared),
    }
    for name, answer in answers.items():
        fresh = METHODS[method].target(spec.method.options, classifier, spec.training, spec.seed)
        assert_equal_trees({name: answer(fresh)}, {name: answer(used.method)})


@pytest.mark.parametrize(
    ("method", "model"), [(method, model) for method in METHODS for model in fitting_models(method)]
)
def test_round_zero_is_the_untouched_base(method, model, tmp_path, digits, ragged):
    spec = make_spec(method, model, rounds=0)
    classifier = make_model(spec.model, digits.shape, digits.classes)
    classifier.load_state_dict(base_weights(spec, digits))
    classifier.eval()
    hits = []
    for samples in ragged.test:
        images = normalise(torch.from_numpy(digits.images[samples]), classifier.mean, classifier.std)
        with torch.no_grad():
            hits.append(classifier(images).argmax(1).numpy() == digits.labels[samples])
    means = [own.mean() for own in hits]
    outcome = run_cell(tmp_path, digits, ragged, spec)
    (start,) = outcome.rounds
    assert float(start["global_accuracy"]) == pytest.approx(np.concatenate(hits).mean(), abs=1e-12)
    assert float(start["test_accuracy_mean"]) == pytest.approx(np.mean(means), abs=1e-12)
    assert [float(row["accuracy_base"]) for row in outcome.clients] == pytest.approx(means, abs=1e-12)
    assert outcome.summary["base"] == {
        "personal_mean": float(start["test_accuracy_mean"]),
        "global": float(start["global_accuracy"]),
    }
