"""pFedMe: inner steps on theta, then a step of w towards theta, batch by batch, by hand."""

import numpy as np
import pytest
from by_hand import assert_leaves, client_data, combine, mean, mlp_gradient, mlp_run
from support import make_spec, objection

from fedbench.tree import expand

RATE, LAMBDA, ETA, INNER = 0.1, 5.0, 0.05, 3


def solve(theta, shared, data):
    """INNER steps on f(theta) + (lambda / 2) ||theta - w||^2."""
    for _ in range(INNER):
        pull = RATE * LAMBDA
        theta = combine((1, theta), (-RATE, mlp_gradient(theta, data)), (-pull, theta), (pull, shared))
    return theta


def started(**options):
    choice = {"proximity": LAMBDA, "outer_rate": ETA, "inner_steps": INNER, **options}
    method = {"method": "pfedme", "trainable": "full", **choice}
    return mlp_run(method, learning_rate=RATE, local_epochs=2)


@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_two_rounds_by_hand(beta):
    run, shared = started(beta=beta)
    for number in (1, 2):
        run.round(number)
        ends, thetas = [], []
        for client in range(2):
            data = client_data(run, client)
            local = theta = shared
            for _ in range(2):  # two epochs of one batch
                theta = solve(theta, local, data)
                local = combine((1 - ETA * LAMBDA, local), (ETA * LAMBDA, theta))
            ends.append(local)
            thetas.append(theta)
        shared = combine((1 - beta, shared), (beta, mean(*ends)))
        assert_leaves(run.state.shared, shared)
        for client in range(2):
            assert_leaves(run.state.private[client], thetas[client], "own.")
    assert not np.allclose(thetas[0]["head.bias"], thetas[1]["head.bias"])


def test_for_evaluation_theta_starts_from_the_shared_weights_and_they_stay():
    run, _ = started()
    run.round(1)
    shared = {name: leaf.numpy().astype(np.float64) for name, leaf in run.state.shared.items()}
    private = {name: leaf.unsqueeze(0) for name, leaf in run.state.private[0].items()}
    received = expand(run.state.shared, 1)
    kept, tuned = run.trainer.fine_tune(run.method.evaluation_phases(2), [0], received, private)
    theta = shared
    for _ in range(2):
        theta = solve(theta, shared, client_data(run, 0))
    assert_leaves({name: leaf[0] for name, leaf in tuned.items()}, theta, "own.")
    assert_leaves({name: leaf[0] for name, leaf in kept.items()}, shared, rtol=0)


def test_rates_that_diverge_are_refused():
    assert "SGD diverges" in objection(make_spec("pfedme", "vit", learning_rate=0.14))
    assert objection(make_spec("pfedme", "vit", learning_rate=0.13)) is None
    assert objection(make_spec("pfedme", "vit", learning_rate=0.14, optimizer="adam")) is None
    assert "step beyond theta" in objection(make_spec("pfedme", "vit", method_options={"outer_rate": 0.1}))
