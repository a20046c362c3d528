"""summary.json and gate columns from a history in which every number differs."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from support import make_spec, play

from fedbench.config.identity import identity
from fedbench.engine import checkpoint
from fedbench.engine.checkpoint import load, save
from fedbench.engine.evaluate import Evaluation
from fedbench.engine.record import Record
from fedbench.engine.results import evaluation_columns
from fedbench.engine.state import FederationState
from fedbench.engine.summary import summarise
from fedbench.methods import _gates

HELD_OUT = [1, 4]
NOBODY = identity("spec", {"all": "data"}, "partition", "base")


def evaluation(mean, shared, global_accuracy):
    personal, own = np.full(6, mean), np.full(6, shared)
    personal[HELD_OUT] = own[HELD_OUT] = 0.99
    domains = np.array([mean])
    return Evaluation(personal, np.full(6, 0.5), own, domains, domains, global_accuracy, 1.0, HELD_OUT)


@pytest.fixture
def summary(tmp_path, digits, ragged):
    run = play(digits, ragged, make_spec("fedsdg", rounds=9, held_out=0.34))
    state, record = replace(run.state, round_number=3, private={0: {}, 2: {}, 3: {}}), Record(held_out=HELD_OUT)
    for number, found in enumerate(
        (evaluation(0.5, 0.4, 0.41), evaluation(0.3, 0.2, 0.6), None, evaluation(0.08, 0.07, 0.7))
    ):
        row = {"round": number}
        if number:
            row |= {"uplink_bytes_per_client": 10.0 * number, "downlink_bytes_per_client": 300.0 * number**2}
        if found is not None:
            row |= evaluation_columns(found)
        record.add(row, found)
    record.totals.update(uplink=120, downlink=8400, wall=7.0, cpu=5.0, train=3.0, eval=2.0)
    return run, summarise(run.federation, state, record, NOBODY)


def test_numbers_of_the_summary(summary):
    run, found = summary
    assert found["base"] == {"personal_mean": pytest.approx(0.4), "global": 0.41}
    bytes_of = found["bytes"]
    assert bytes_of["one_time"] == 4 * run.total_parameters
    assert (bytes_of["uplink_total"], bytes_of["downlink_total"], bytes_of["cumulative_total"]) == (120, 8400, 8520)
    assert bytes_of["uplink_per_client_round"] == pytest.approx((10 + 20 + 30) / 3)
    assert bytes_of["downlink_per_client_round"] == pytest.approx(300 * (1 + 4 + 9) / 3)
    assert found["rounds_done"] == 3
    assert found["held_out_clients"] == 2
    assert found["clients"] == 6
    assert found["seconds"] == {"wall": 7.0, "cpu": 5.0, "train": 3.0, "evaluate": 2.0}
    private = run.method.init_private(np.random.default_rng(0), run.state.shared)
    assert found["parameters"]["private"] == sum(leaf.numel() for leaf in private.values())


def test_chance_is_of_the_federations_own_accuracy_in_the_last_round(summary):
    """0.08 of ten classes is chance, though the shared model has 0.7, the tail more and newcomers 0.99."""
    assert summary[1]["chance_level"] is True


def test_methods_that_send_nothing_send_no_base(tmp_path, digits, ragged):
    run = play(digits, ragged, make_spec("local-only", "vit"))
    found = evaluation(0.5, 0.4, 0.41)
    row = {"round": 0, **evaluation_columns(found)}
    run.record.add(row, found)
    run.record.totals.update(wall=1.0, cpu=1.0)
    assert set(summarise(run.federation, run.state, run.record, NOBODY)["bytes"].values()) == {0}


def test_every_part_of_the_state_is_in_its_checkpoint(tmp_path):
    tree = {"x": torch.tensor([1.0, 2.0])}
    counts = {"round_number": 4, "update_bytes": 17, "seen": {3: 2}, "participations": {3: 1, 5: 9}}
    recorded = {
        "rows": [{"round": 0}],
        "accuracies": {"last": [0.5]},
        "domains": {"best": [0.25]},
        "tail": [[0.1]],
        "domain_tail": [[0.2], [0.3]],
        "totals": {"uplink": 3},
        "held_out": [5],
        "diverged_round": 4,
    }
    trees = {"shared": tree, "server": {"m": tree["x"]}, "channel": {"c": tree["x"]}}
    trees |= {"private": {3: {"p": tree["x"]}}, "memory": {3: {"r": tree["x"]}}}
    assert {field.name for field in fields(FederationState)} == {*counts, *trees}
    assert {field.name for field in fields(Record)} == {*recorded}
    save(tmp_path, FederationState(**counts, **trees), Record(**recorded), "digest")
    read, record = load(tmp_path, "digest", print)
    assert record == Record(**recorded)
    for name, value in counts.items():
        assert getattr(read, name) == value, name
    for name in checkpoint.TREES:
        assert getattr(read, name).keys() == trees[name].keys(), name
    for name in checkpoint.CLIENT_TREES:
        assert {c: list(t) for c, t in getattr(read, name).items()} == {c: list(t) for c, t in trees[name].items()}


def test_gate_columns_by_hand():
    """Two blocks, three gates, two clients; means over clients, then over gates."""
    before = {(0, "attention"): [0.1, 0.3], (0, "ffn"): [0.5, 0.5], (1, "ffn"): [0.2, 0.4]}
    after = {(0, "attention"): [0.2, 0.1], (0, "ffn"): [0.5, 0.8], (1, "ffn"): [0.1, 0.4]}
    before, after = ({site: torch.tensor(values) for site, values in gate.items()} for gate in (before, after))
    found = _gates.means(after)
    assert found["gate_attention_mean"] == pytest.approx(0.15)
    assert found["gate_ffn_mean"] == pytest.approx((0.65 + 0.25) / 2)
    assert found["gate_mean"] == pytest.approx((0.15 + 0.65 + 0.25) / 3)
    observed = _gates.observe(before, after, {})
    # moves count by size: one down and one up do not cancel
    assert observed["drift"].tolist() == pytest.approx([(0.1 + 0 + 0.1) / 3, (0.2 + 0.3 + 0) / 3])
    assert _gates.dynamics(observed) == {"gate_drift": pytest.approx(0.35 / 3)}
    rows = _gates.rows([7, 9], after)
    assert rows[0] == {"client": 7, "block": 0, "site": "attention", "value": pytest.approx(0.2)}
    assert rows[5] == {"client": 9, "block": 1, "site": "ffn", "value": pytest.approx(0.4)}
