"""FedPer: body and head train together by hand, the body's mean travels, heads stay."""

import numpy as np
from by_hand import assert_leaves, client_data, combine, mean, mlp_gradient, mlp_run, part

RATE = 0.1


def test_two_rounds_by_hand():
    run, start = mlp_run({"method": "fedper", "trainable": "full"}, learning_rate=RATE)
    assert set(run.shared) == set(part(start, "trunk."))
    body, heads = part(start, "trunk."), [part(start, "head.")] * 2
    for number in (1, 2):
        row = run.round(number)
        ends = []
        for client in range(2):
            weights = {**body, **heads[client]}
            ends.append(combine((1, weights), (-RATE, mlp_gradient(weights, client_data(run, client)))))
        body, heads = mean(*(part(end, "trunk.") for end in ends)), [part(end, "head.") for end in ends]
        assert_leaves(run.state.shared, body)
        for client in range(2):
            assert_leaves(run.state.private[client], heads[client])
        assert row["uplink_bytes_per_client"] == 4 * sum(leaf.size for leaf in body.values())
    assert not np.allclose(heads[0]["head.bias"], heads[1]["head.bias"])


def test_the_shared_model_has_the_head_that_all_start_from():
    run, start = mlp_run({"method": "fedper", "trainable": "full"})
    run.round(1)
    body = {name: leaf.numpy() for name, leaf in run.state.shared.items()}
    assert_leaves(run.method.global_weights(run.state.shared), {**body, **part(start, "head.")})
