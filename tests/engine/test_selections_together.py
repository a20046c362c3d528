"""What selections say where several features meet: held-out clients, validation, domains, gaps, an early end.

Three clients, of which the second is held out, and two domains; every number of a history differs from every other.
"""

import numpy as np
import pytest

from fedbench.data.store import Store
from fedbench.engine.evaluate import Evaluation
from fedbench.engine.record import Record
from fedbench.engine.results import (
    client_rows,
    domain_rows,
    evaluation_columns,
    selections,
    spread,
)
from fedbench.partition.partition import Partition

HELD_OUT = [1]


def evaluation(number, validation):
    """Round `number`: clients (n, 50 + n, 10 + n), domains (20 + n, 30 + n) percent; shared ones 100 times less."""
    personal = np.array([number, 50 + number, 10 + number]) / 100
    domains = np.array([20 + number, 30 + number]) / 100
    return Evaluation(
        personal, np.array(validation), personal / 100, domains, domains / 100, 0.7 + number / 100, 2.0, HELD_OUT
    )


def play(history):
    """The record after rounds; history has each round's validation accuracies, or None where it is not evaluated."""
    record = Record(held_out=HELD_OUT)
    for number, validation in enumerate(history):
        row, found = {"round": number}, None
        if validation is not None:
            found = evaluation(number, validation)
            row |= evaluation_columns(found)
        record.add(row, found)
    return record


# of the federation's clients: .5 (round 0), .3, -, .6, .4, -, .5; with the held-out one round 4 would be best
HISTORY = [(0.9, 0.1, 0.1), (0.2, 0.1, 0.4), None, (0.8, 0.1, 0.4), (0.3, 1.0, 0.5), None, (0.5, 0.2, np.nan)]


@pytest.fixture(scope="module")
def record():
    return play(HISTORY)


def test_validation_is_that_of_the_federation(record):
    found = [row.get("val_accuracy") for row in record.rows]
    assert found == [0.5, pytest.approx(0.3), None, pytest.approx(0.6), pytest.approx(0.4), None, 0.5]


def test_best_is_one_round_for_clients_domains_and_newcomers(record):
    best = selections(record)["best"]
    assert best["rounds"] == [3]
    assert best["val"] == pytest.approx(0.6)
    assert best["personal"] == pytest.approx(spread([0.03, 0.13]))
    assert best["held_out"] == pytest.approx(spread([0.53]))
    assert best["global"] == pytest.approx(0.73)
    assert record.accuracies["best"] == pytest.approx([0.03, 0.53, 0.13])
    assert record.domains["best"] == pytest.approx([0.23, 0.33])


def test_last_and_tail_are_of_evaluated_rounds(record):
    chosen = selections(record)
    assert chosen["last"]["rounds"] == [6]
    assert chosen["last"]["personal"] == pytest.approx(spread([0.06, 0.16]))
    assert chosen["last"]["held_out"] == pytest.approx(spread([0.56]))
    assert chosen["tail"]["rounds"] == [1, 3, 4, 6]
    assert chosen["tail"]["personal"] == pytest.approx(spread([0.035, 0.135]))
    assert chosen["tail"]["held_out"] == pytest.approx(spread([0.535]))
    assert chosen["tail"]["global"] == pytest.approx(0.735)
    assert chosen["tail"]["val"] == pytest.approx((0.3 + 0.6 + 0.4 + 0.5) / 4)


@pytest.fixture(scope="module")
def tables():
    """A store and a partition: client 0 has tests of both domains, 1 (held out) and 2 of one."""
    domains = np.array([0, 1, 0, 1, 1, 1, 0, 0])
    zeros = np.zeros(8, np.int64)
    store = Store(np.zeros((8, 1, 1, 1), np.uint8), zeros, domains, zeros, ("c",), ("ink", "photo"), None, {})
    test = [np.array([0, 1, 2]), np.array([3, 4]), np.array([5])]
    held = [np.array([6]), np.array([], np.int64), np.array([], np.int64)]
    train = [np.array([7, 7]), np.array([7]), np.array([7, 7, 7])]
    return store, Partition(train, held, test, np.array([0, 1, 1]), {})


def test_tables_of_clients_and_domains(record, tables):
    clients = client_rows(record, {0: 4, 2: 1}, *tables)
    names = ("accuracy_personal", "accuracy_personal_best", "accuracy_personal_tail", "accuracy_global")
    assert [clients[1][name] for name in names] == pytest.approx([0.56, 0.53, 0.535, 0.0056])
    assert [row["accuracy_base"] for row in clients] == pytest.approx([0.0, 0.005, 0.001])
    assert [row["held_out"] for row in clients] == [0, 1, 0]
    assert [row["participations"] for row in clients] == [4, 0, 1]
    assert [row["domain"] for row in clients] == ["ink", "photo", "photo"]
    assert [(row["n_train"], row["n_val"], row["n_test"]) for row in clients] == [(2, 1, 3), (1, 0, 2), (3, 0, 1)]
    ink, photo = domain_rows(record, *tables)
    assert [ink[name] for name in names] == pytest.approx([0.26, 0.23, 0.235, 0.0026])
    assert [photo[name] for name in names] == pytest.approx([0.36, 0.33, 0.335, 0.0036])
    assert [ink["accuracy_base"], photo["accuracy_base"]] == pytest.approx([0.002, 0.003])
    # the held-out client's two photos do not count
    assert [(row["clients"], row["n_test"]) for row in (ink, photo)] == [(1, 2), (2, 2)]


def test_a_domains_tail_is_as_long_as_the_clients():
    """Twelve evaluated rounds, of which the last ten count; round 0 never does."""
    record = play([(0.5, 0.5, 0.5)] * 13)
    assert len(record.tail) == len(record.domain_tail) == 10
    assert np.mean(record.domain_tail, axis=0) == pytest.approx([0.275, 0.375])  # rounds 3 to 12
    assert selections(record)["best"]["rounds"] == [1], "of equal rounds the first"
    assert record.domains["best"] == pytest.approx([0.21, 0.31])


def test_an_early_end_leaves_the_last_evaluated_round():
    """Diverged in round 3, which is in the table and not evaluated; nor is round 2."""
    record = play([(0.1, 0.1, 0.1), (0.4, 0.4, 0.4), None, None])
    record.diverged_round = 3
    chosen = selections(record)
    assert {name: part["rounds"] for name, part in chosen.items()} == {"last": [1], "tail": [1], "best": [1]}
    assert chosen["last"]["personal"] == pytest.approx(spread([0.01, 0.11]))


def test_without_clients_that_have_validation_samples_there_is_no_best():
    """A held-out client's validation samples choose nothing."""
    record = play([(np.nan, 0.5, np.nan), (np.nan, 0.9, np.nan)])
    assert [row["val_accuracy"] for row in record.rows] == [None, None]
    assert "best" not in selections(record)
    assert "best" not in record.domains
