"""Selections and client tables from a history with known numbers."""

import numpy as np
import pytest
from support import Outcome, make_base, make_spec, run_cell

from fedbench.engine.evaluate import Evaluation
from fedbench.engine.record import TAIL, Record
from fedbench.engine.results import (
    client_rows,
    evaluation_columns,
    selections,
    spread,
)


def play(history):
    """The record of rounds whose evaluations are (round, validation mean or None, personal accuracies)."""
    record = Record()
    for number, validation, personal in history:
        row, evaluation = {"round": number, "cohort": "0"}, None
        if personal is not None:
            values = np.array([np.nan, np.nan] if validation is None else [validation, np.nan])
            evaluation = Evaluation(
                personal=np.array(personal),
                validation=values,
                shared=np.array(personal) / 2,
                domain_personal=np.array([sum(personal) / len(personal)]),
                domain_shared=np.array([sum(personal) / len(personal) / 2]),
                global_accuracy=sum(personal) / 4,
                global_loss=1.0,
            )
            row |= evaluation_columns(evaluation)
        record.add(row, evaluation)
    return record


def test_spread_by_hand():
    assert spread([0.0, 1.0, 0.5, 0.5]) == {
        "mean": 0.5,
        "std": pytest.approx(0.125**0.5),
        "p10": pytest.approx(0.15),
        "p50": 0.5,
        "p90": pytest.approx(0.85),
        "worst": 0.0,
    }


def test_selections_by_hand():
    # round 2 is not evaluated; 1 and 4 tie in validation, and the earlier one counts; 0 never does
    record = play(
        [
            (0, 0.9, [0.1, 0.2]),
            (1, 0.6, [0.3, 0.5]),
            (2, None, None),
            (3, 0.4, [0.6, 0.2]),
            (4, 0.6, [0.8, 0.4]),
            (5, 0.5, [0.9, 0.7]),
        ]
    )
    chosen = selections(record)
    assert {name: part["rounds"] for name, part in chosen.items()} == {"last": [5], "best": [1], "tail": [1, 3, 4, 5]}
    assert chosen["last"]["personal"] == spread([0.9, 0.7])
    assert chosen["last"]["global"] == pytest.approx(0.4)
    assert chosen["last"]["val"] == 0.5
    assert chosen["best"]["personal"] == spread([0.3, 0.5])
    assert chosen["best"]["global"] == pytest.approx(0.2)
    assert chosen["best"]["val"] == 0.6
    # the tail's personal numbers are those of each client's own mean over the tail
    assert chosen["tail"]["personal"]["mean"] == pytest.approx((0.65 + 0.45) / 2)
    assert chosen["tail"]["personal"]["worst"] == pytest.approx(0.45)
    assert chosen["tail"]["global"] == pytest.approx((0.8 + 0.8 + 1.2 + 1.6) / 16)
    assert chosen["tail"]["val"] == pytest.approx((0.6 + 0.4 + 0.6 + 0.5) / 4)


def test_tail_is_the_last_ten_evaluations():
    record = play([(number, 0.5, [number / 100, 0.0]) for number in range(0, 40, 2)])
    assert TAIL == 10
    tail = selections(record)["tail"]
    assert tail["rounds"] == list(range(20, 40, 2))
    assert tail["personal"]["mean"] == pytest.approx(np.mean(range(20, 40, 2)) / 200)


def test_before_the_first_trained_evaluation_the_base_stands_in():
    chosen = selections(play([(0, 0.3, [0.1, 0.2]), (1, None, None)]))
    assert {name: part["rounds"] for name, part in chosen.items()} == {"last": [0], "best": [0], "tail": [0]}
    assert chosen["tail"]["personal"] == chosen["best"]["personal"] == spread([0.1, 0.2])


def test_a_base_better_than_all_rounds_is_not_their_best():
    chosen = selections(play([(0, 0.9, [0.9, 0.9]), (1, 0.0, [0.1, 0.3]), (2, 0.0, [0.2, 0.4])]))
    assert chosen["best"]["rounds"] == [1]
    assert chosen["best"]["personal"] == spread([0.1, 0.3])
    assert chosen["tail"]["rounds"] == [1, 2]
    assert chosen["tail"]["personal"]["mean"] == pytest.approx(0.25)


def test_client_rows_by_hand(digits, ragged):
    record = play([(0, 0.9, [0.1, 0.2]), (1, 0.6, [0.3, 0.5]), (2, 0.4, [0.6, 0.2])])
    for accuracies in record.accuracies.values():
        accuracies += [0.0] * 4
    record.tail = [[*row, 0.0, 0.0, 0.0, 0.0] for row in record.tail]
    rows = client_rows(record, {1: 2}, digits, ragged)
    assert [row["client"] for row in rows] == list(range(6))
    assert rows[1] == {
        "client": 1,
        "name": None,
        "domain": "rotation-0",
        "n_train": 19,
        "n_val": 3,
        "n_test": 9,
        "participations": 2,
        "held_out": 0,
        "accuracy_personal": 0.2,
        "accuracy_personal_best": 0.5,
        "accuracy_personal_tail": pytest.approx(0.35),
        "accuracy_global": 0.1,
        "accuracy_base": 0.1,
    }
    assert rows[0]["participations"] == 0


@pytest.fixture(scope="module")
def outcome(tmp_path_factory, digits, ragged) -> Outcome:
    spec = make_spec("fedsdg", rounds=3, participation=0.5, optimizer="adam", learning_rate=1e-3)
    return run_cell(tmp_path_factory.mktemp("fedsdg"), digits, ragged, spec)


def test_tables_and_summary_agree(outcome):
    summary, rounds, clients = outcome.summary, outcome.rounds, outcome.clients
    for name, column in (
        ("last", "accuracy_personal"),
        ("best", "accuracy_personal_best"),
        ("tail", "accuracy_personal_tail"),
    ):
        own = [float(row[column]) for row in clients]
        assert summary["selections"][name]["personal"] == pytest.approx(spread(own))
    by_round = {int(row["round"]): row for row in rounds}
    for part in summary["selections"].values():
        for column, key in (("global_accuracy", "global"), ("val_accuracy", "val")):
            assert part[key] == pytest.approx(np.mean([float(by_round[n][column]) for n in part["rounds"]]))
    best = max(rounds[1:], key=lambda row: (float(row["val_accuracy"]), -int(row["round"])))
    assert summary["selections"]["best"]["rounds"] == [int(best["round"])]
    taken = [row["cohort"].split() for row in rounds[1:]]
    for row in clients:
        assert int(row["participations"]) == sum(row["client"] in cohort for cohort in taken)


def test_summary_says_what_ran(outcome, digits, ragged):
    summary = outcome.summary
    spec = make_spec("fedsdg", rounds=3, participation=0.5, optimizer="adam", learning_rate=1e-3)
    assert summary["digest"] == spec.digest
    assert summary["cell"] == {
        "dataset": "digits",
        "partition": "ragged",
        "model": "vit",
        "method": "fedsdg",
        "seed": 0,
    }
    assert summary["rounds_done"] == 3
    assert (summary["classes"], summary["clients"]) == (10, 6)
    assert summary["parameters"]["shared"] == sum(leaf.numel() for leaf in outcome.state.shared.values())
    private = next(iter(outcome.state.private.values()))
    assert summary["parameters"]["private"] == sum(leaf.numel() for leaf in private.values())
    assert summary["data_sha256"] == digits.meta["sha256"]
    assert summary["partition_sha256"] == ragged.meta["sha256"]
    assert summary["base_sha256"] == make_base(spec, digits).sha256
    assert summary["seconds"]["wall"] >= summary["seconds"]["train"] + summary["seconds"]["evaluate"] > 0
    assert summary["peak_rss_bytes"] > 10e6
    assert summary["peak_gpu_bytes"] is None
    assert summary["device"].startswith("cpu")
    assert summary["versions"].keys() >= {"python", "torch", "fedbench"}
    assert summary["git"].keys() == {"commit", "dirty"}
    # the base's weights travel once: 4 bytes each
    assert summary["bytes"]["one_time"] == 4 * summary["parameters"]["total"]
    assert summary["diverged"] is False
    assert summary["diverged_round"] is None


def test_round_zero_has_no_training_columns(outcome):
    first, *rest = outcome.rounds
    for column in ("cohort", "train_loss", "lr", "uplink_bytes", "downlink_bytes", "update_norm", "seconds_train"):
        assert first[column] == ""
        assert all(row[column] != "" for row in rest), column
    assert first["cumulative_bytes"] == "0"
