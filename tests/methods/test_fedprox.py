"""FedProx: SGD on the cross-entropy and half the squared distance to the received weights, by hand."""

import pytest
from by_hand import assert_leaves, client_data, combine, mean, mlp_gradient, mlp_run

RATE = 0.1


@pytest.mark.parametrize("mu", [0.01, 2.0])
def test_three_steps_by_hand(mu):
    run, start = mlp_run({"method": "fedprox", "mu": mu}, learning_rate=RATE, local_epochs=3)
    run.round(1)
    ends = []
    for client in range(2):
        weights = start
        for _ in range(3):  # the term pulls from the second step on
            gradient = mlp_gradient(weights, client_data(run, client))
            weights = combine((1, weights), (-RATE, gradient), (-RATE * mu, weights), (RATE * mu, start))
        ends.append(weights)
    assert_leaves(run.state.shared, mean(*ends))
