"""How gates move and how their gradients vary: sums over ragged clients, whatever the chunk."""

import numpy as np
import pytest
import torch
from support import make_spec, run_cell

from fedbench.engine.gradients import GradientSums
from fedbench.methods._gates import pooled_variance


def test_sums_of_clients_that_leave_early():
    rng = np.random.default_rng(0)
    drawn = {"gate.a": rng.normal(2.0, 1.0, (5, 3)), "gate.b": rng.normal(0.0, 0.1, (5, 3))}
    steps = (5, 4, 2)
    sums = GradientSums(list(drawn), 3, torch.device("cpu"))
    for step in range(5):
        active = sum(step < own for own in steps)
        leaves = {}
        for name, values in drawn.items():
            leaves[name] = torch.zeros(active, dtype=torch.float64, requires_grad=True)
            leaves[name].grad = torch.from_numpy(values[step, :active])
        sums.add(leaves)
    every = [np.concatenate([values[:own, k] for k, own in enumerate(steps)]) for values in drawn.values()]
    assert pooled_variance(sums.tree()) == pytest.approx(np.mean([values.var() for values in every]))
    assert sums.tree()["steps"].tolist() == list(steps)


def test_nothing_is_kept_without_names():
    sums = GradientSums([], 3, torch.device("cpu"))
    sums.add({})
    assert sums.tree() == {}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, digits, ragged):
    spec = make_spec("fedsdg", rounds=3, optimizer="adam", learning_rate=1e-3, participation=0.5, local_epochs=2)
    return [
        run_cell(tmp_path_factory.mktemp(f"chunk{chunk}"), digits, ragged, spec, chunk=chunk) for chunk in (1, 2, 6)
    ]


def test_columns_do_not_depend_on_the_chunk(outcomes):
    first, *others = (outcome.rounds for outcome in outcomes)
    for row in first[1:]:
        assert float(row["gate_drift"]) > 0
        assert float(row["gate_gradient_variance"]) > 0
    for rows in others:
        for row, expected in zip(rows[1:], first[1:], strict=True):
            for column in ("gate_drift", "gate_gradient_variance"):
                assert float(row[column]) == pytest.approx(float(expected[column]), rel=1e-3)


def test_round_zero_and_methods_without_gates_have_none(outcomes, tmp_path, digits, ragged):
    assert outcomes[0].rounds[0]["gate_drift"] == outcomes[0].rounds[0]["gate_gradient_variance"] == ""
    plain = run_cell(tmp_path, digits, ragged, make_spec("fedavg"))
    assert not [column for column in plain.rounds[0] if "gate" in column]
    assert not (plain.folder / "gates.csv").exists()
