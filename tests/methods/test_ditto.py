"""Ditto: FedAvg on the shared weights, then the own weights with their tie to the received ones, by hand."""

import numpy as np
from by_hand import assert_leaves, client_data, combine, mean, mlp_gradient, mlp_run

from fedbench.tree import expand

RATE, MU, EPOCHS = 0.1, 1.5, 2


def own_steps(own, received, data):
    for _ in range(EPOCHS):
        gradient = mlp_gradient(own, data)
        own = combine((1, own), (-RATE, gradient), (-RATE * MU, own), (RATE * MU, received))
    return own


def started():
    return mlp_run({"method": "ditto", "trainable": "full", "mu": MU}, learning_rate=RATE, local_epochs=EPOCHS)


def test_two_rounds_by_hand():
    run, start = started()
    shared, owns = start, [start, start]
    for number in (1, 2):
        row = run.round(number)
        ends = []
        for client in range(2):
            data, weights = client_data(run, client), shared
            for _ in range(EPOCHS):
                weights = combine((1, weights), (-RATE, mlp_gradient(weights, data)))
            ends.append(weights)
            owns[client] = own_steps(owns[client], shared, data)
            assert_leaves(run.state.private[client], owns[client], "own.")
        shared = mean(*ends)
        assert_leaves(run.state.shared, shared)
        assert row["uplink_bytes_per_client"] == 4 * sum(leaf.size for leaf in start.values())
    assert not np.allclose(owns[0]["head.bias"], owns[1]["head.bias"])


def test_clients_are_evaluated_with_their_own_weights():
    run, _ = started()
    run.round(1)
    private = {name: leaf.unsqueeze(0) for name, leaf in run.state.private[1].items()}
    personal = run.method.personal(expand(run.state.shared, 1), private)
    expected = {name.removeprefix("own."): leaf.numpy() for name, leaf in run.state.private[1].items()}
    assert_leaves({name: leaf[0] for name, leaf in personal.items()}, expected, rtol=0)


def test_a_newcomer_starts_from_the_shared_weights():
    run, _ = started()
    run.round(1)
    shared = {name: leaf.numpy().astype(np.float64) for name, leaf in run.state.shared.items()}
    received = expand(run.state.shared, 1)
    private = run.method.newcomer(received, {})
    kept, tuned = run.trainer.fine_tune(run.method.evaluation_phases(EPOCHS), [0], received, private)
    assert_leaves({n: leaf[0] for n, leaf in tuned.items()}, own_steps(shared, shared, client_data(run, 0)), "own.")
    assert_leaves({name: leaf[0] for name, leaf in kept.items()}, shared, rtol=0)
