"""SCAFFOLD: corrected steps and control variates (option II) over rounds with part of the clients, by hand."""

import numpy as np
import pytest
from by_hand import assert_leaves, client_data, combine, mean, mlp_gradient, mlp_run
from support import make_spec, objection

RATE, EPOCHS = 0.1, 3


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("cohorts", [[[0, 1], [0, 1], [0, 1]], [[0], [1], [0]]], ids=["all", "one"])
def test_three_rounds_by_hand(cohorts, schedule):
    rate, factors = 0.7, {"constant": (1, 1, 1), "cosine": (1, 0.75, 0.25)}[schedule]
    method = {"method": "scaffold", "server_learning_rate": rate}
    options = {"learning_rate": RATE, "local_epochs": EPOCHS, "schedule": schedule, "rounds": 3}
    run, x = mlp_run(method, sampler=lambda seed, number, *_: cohorts[number - 1], **options)
    zero = combine((0, x))
    c, own = zero, [zero, zero]
    size = 4 * sum(leaf.size for leaf in x.values())
    for number, cohort in enumerate(cohorts, 1):
        row, eta = run.round(number), RATE * factors[number - 1]
        moves, changes = [], []
        for client in cohort:
            y = x
            for _ in range(EPOCHS):
                gradient = mlp_gradient(y, client_data(run, client))
                y = combine((1, y), (-eta, gradient), (eta, own[client]), (-eta, c))
            after = combine((1, own[client]), (-1, c), (1 / (EPOCHS * eta), x), (-1 / (EPOCHS * eta), y))
            moves.append(combine((1, y), (-1, x)))
            changes.append(combine((1, after), (-1, own[client])))
            own[client] = after
            assert_leaves(run.state.private[client], after, "own_control.", rtol=1e-4)
        x = combine((1, x), (rate, mean(*moves)))
        c = combine((1, c), (len(cohort) / 2, mean(*changes)))
        assert_leaves({n: leaf for n, leaf in run.state.shared.items() if not n.startswith("control.")}, x)
        assert_leaves(run.state.shared, c, "control.", rtol=1e-4)
        assert row["uplink_bytes_per_client"] == 2 * size, "weights and control variates"
        if number == 1:
            assert row["downlink_bytes_per_client"] == 2 * size
    assert np.abs(c["head.bias"]).max() > 1e-3
    # the invariant of algorithm 1: the server's variate is the mean of all clients' own
    assert_leaves(run.state.shared, mean(*own), "control.", rtol=1e-4)


def test_variates_reach_no_model():
    run, start = mlp_run({"method": "scaffold"})
    run.round(1)
    assert set(run.method.global_weights(run.state.shared)) == set(start)
    assert set(run.method.personal(run.state.shared, run.state.private[0])) == set(start)
    assert [phase.penalty for phase in run.method.evaluation_phases(2)] == [None]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"optimizer": "adam"}, "plain SGD"),
        ({"momentum": 0.9}, "plain SGD"),
        ({"clip": 1.0}, "clip: null"),
        ({"weight_decay": 0.1}, None),
        ({"aggregation": "samples"}, "aggregation: uniform"),
        ({"channel": {"codec": "top-k", "density": 0.1, "error_feedback": True}}, "dense channel"),
        ({"channel": {"codec": "dense", "dtype": "fp16"}}, None),
        ({}, None),
    ],
)
def test_what_it_cannot_run_with(spec, reason):
    found = objection(make_spec("scaffold", "mlp", **spec))
    assert found is None if reason is None else reason in found
