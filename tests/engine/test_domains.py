"""Accuracy by domain: pooled over the federation's test samples, with own and with shared weights."""

from dataclasses import replace

import numpy as np
import pytest
from support import TESTS, Watch, make_spec, run_cell

from fedbench.engine.interrupt import Interrupted

NAMES = ("ink", "photo", "unused")
COLUMNS = ("accuracy_personal", "accuracy_personal_best", "accuracy_personal_tail", "accuracy_global", "accuracy_base")
TRAINING = {"rounds": 3, "learning_rate": 1.0, "local_epochs": 4, "participation": 0.5, "held_out": 0.17}


@pytest.fixture(scope="module")
def store(digits, ragged):
    """The digits in two domains: clients with an odd number have photos."""
    domains = np.zeros(len(digits.labels), np.int64)
    for client in range(1, len(TESTS), 2):
        domains[ragged.test[client]] = 1
    return replace(digits, domains=domains, domain_names=NAMES)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory, store, ragged):
    return run_cell(tmp_path_factory.mktemp("run"), store, ragged, make_spec("ditto", "mlp", **TRAINING))


def domains(outcome):
    return {row["domain"]: row for row in outcome.numbers()["domains.csv"]}


def test_clients_of_one_domain_add_up_to_it(outcome):
    found, clients = domains(outcome), outcome.clients
    assert set(found) == set(NAMES[:2]), "a domain without test samples has no row"
    for place, name in enumerate(NAMES[:2]):
        own = [row for row in clients[place::2] if row["held_out"] == "0"]
        sizes = np.array([int(row["n_test"]) for row in own])
        assert int(found[name]["clients"]) == len(own)
        assert int(found[name]["n_test"]) == sizes.sum()
        for column in COLUMNS:
            expected = sum(sizes * [float(row[column]) for row in own]) / sizes.sum()
            assert float(found[name][column]) == pytest.approx(expected), column
    assert sum(row["held_out"] == "1" for row in clients) == 1
    # else the comparison would not notice a mix-up
    for one, other in (("personal", "global"), ("global", "base"), ("personal", "personal_best")):
        assert any(row[f"accuracy_{one}"] != row[f"accuracy_{other}"] for row in found.values())


def test_a_client_of_several_domains_counts_in_each(tmp_path, digits, ragged):
    mixed = replace(digits, domains=np.arange(len(digits.labels)) % 2, domain_names=NAMES)
    outcome = run_cell(tmp_path, mixed, ragged, make_spec("ditto", "mlp", **{**TRAINING, "held_out": 0.0}))
    found = domains(outcome)
    for place, name in enumerate(NAMES[:2]):
        assert int(found[name]["clients"]) == sum(bool((part % 2 == place).any()) for part in ragged.test)
    sizes = {name: int(row["n_test"]) for name, row in found.items()}
    parity = np.concatenate(ragged.test) % 2
    assert sizes == {"ink": int((parity == 0).sum()), "photo": int((parity == 1).sum())}
    for column in COLUMNS:
        by_domain = sum(sizes[name] * float(row[column]) for name, row in found.items())
        by_client = sum(int(row["n_test"]) * float(row[column]) for row in outcome.clients)
        assert by_domain == pytest.approx(by_client), column


def test_interrupted_and_resumed_is_the_same(tmp_path, outcome, store, ragged):
    spec = make_spec("ditto", "mlp", **TRAINING)
    with pytest.raises(Interrupted):
        run_cell(tmp_path, store, ragged, spec, watch=Watch(stop_after=2))
    assert run_cell(tmp_path, store, ragged, spec).numbers() == outcome.numbers()


def test_one_domain_has_no_file(tmp_path, digits, ragged):
    folder = run_cell(tmp_path, digits, ragged, make_spec("fedavg")).folder
    assert not (folder / "domains.csv").exists()
