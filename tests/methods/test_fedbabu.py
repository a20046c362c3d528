"""FedBABU: the body trains under the initial head; the head, or all, trains for evaluation only."""

import pytest
from by_hand import assert_leaves, client_data, combine, mean, mlp_gradient, mlp_run, part

from fedbench.tree import expand

RATE = 0.1


def test_the_body_learns_under_the_initial_head():
    run, start = mlp_run({"method": "fedbabu", "trainable": "full"}, learning_rate=RATE)
    body, head = part(start, "trunk."), part(start, "head.")
    for number in (1, 2):
        run.round(number)
        gradients = [mlp_gradient({**body, **head}, client_data(run, client)) for client in range(2)]
        body = combine((1, body), (-RATE, part(mean(*gradients), "trunk.")))
        assert_leaves(run.state.shared, body)
        for client in range(2):
            assert_leaves(run.state.private[client], head, rtol=0)


@pytest.mark.parametrize(("leaves", "prefix"), [("head", "head."), ("all", "")])
def test_fine_tuning_for_evaluation_by_hand(leaves, prefix):
    run, weights = mlp_run({"method": "fedbabu", "trainable": "full", "fine_tunes": leaves}, learning_rate=RATE)
    private = {name: leaf.unsqueeze(0) for name, leaf in run.method.init_private(None, run.shared).items()}
    phases = run.method.evaluation_phases(2)
    received, tuned = run.trainer.fine_tune(phases, [0], expand(run.shared, 1), private)
    for _ in range(2):
        step = part(mlp_gradient(weights, client_data(run, 0)), prefix)
        weights = {**weights, **combine((1, part(weights, prefix)), (-RATE, step))}
    assert_leaves({name: leaf[0] for name, leaf in {**received, **tuned}.items()}, weights)
