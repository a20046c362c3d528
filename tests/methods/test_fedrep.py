"""FedRep: head steps under the received body, then body steps under the new head, by hand."""

import numpy as np
import pytest
from by_hand import assert_leaves, client_data, combine, mean, mlp_gradient, mlp_run, part
from support import make_spec, objection

from fedbench.tree import expand

RATE = 0.1


def descend(weights, data, prefix, steps):
    """SGD on the leaves under `prefix`, the others frozen."""
    for _ in range(steps):
        gradient = part(mlp_gradient(weights, data), prefix)
        weights = {**weights, **combine((1, part(weights, prefix)), (-RATE, gradient))}
    return weights


@pytest.mark.parametrize(("head_epochs", "body_epochs"), [(4, 1), (1, 3)])
def test_two_rounds_by_hand(head_epochs, body_epochs):
    method = {"method": "fedrep", "trainable": "full", "head_epochs": head_epochs, "body_epochs": body_epochs}
    run, start = mlp_run(method, learning_rate=RATE, local_epochs=7)
    body, heads = part(start, "trunk."), [part(start, "head.")] * 2
    for number in (1, 2):
        run.round(number)
        ends = []
        for client in range(2):
            data = client_data(run, client)
            tuned = descend({**body, **heads[client]}, data, "head.", head_epochs)
            ends.append(descend(tuned, data, "trunk.", body_epochs))
        body, heads = mean(*(part(end, "trunk.") for end in ends)), [part(end, "head.") for end in ends]
        assert_leaves(run.state.shared, body)
        for client in range(2):
            assert_leaves(run.state.private[client], heads[client])
    assert not np.allclose(heads[0]["head.bias"], heads[1]["head.bias"])


def test_only_the_head_trains_for_evaluation():
    run, start = mlp_run({"method": "fedrep", "trainable": "full"}, learning_rate=RATE)
    private = {name: leaf.unsqueeze(0) for name, leaf in run.method.init_private(None, run.shared).items()}
    phases = run.method.evaluation_phases(3)
    received, tuned = run.trainer.fine_tune(phases, [1], expand(run.shared, 1), private)
    expected = descend(start, client_data(run, 1), "head.", 3)
    assert_leaves({name: leaf[0] for name, leaf in {**received, **tuned}.items()}, expected)
    assert run.method.evaluation_phases(0) == ()


def test_a_length_in_steps_is_refused():
    assert "remove training.local_steps" in objection(make_spec("fedrep", "vit", local_steps=3))
    assert objection(make_spec("fedrep", "vit")) is None
