"""Server optimisers: three steps on the clients' mean change, by hand in NumPy."""

import numpy as np
import pytest
import torch
from by_hand import assert_leaves, client_data, combine, mean, mlp_gradient, mlp_run

RATE, ETA, BETAS, TAU = 0.1, 0.03, (0.9, 0.8), 0.02


def momentum(x, state, change):
    state["m"] = combine((0.6, state["m"]), (1, change))
    return combine((1, x), (ETA, state["m"]))


def adaptive(second):
    def step(x, state, change):
        state["m"] = combine((BETAS[0], state["m"]), (1 - BETAS[0], change))
        state["v"] = {name: second(state["v"][name], change[name] ** 2) for name in x}
        return {name: leaf + ETA * state["m"][name] / (np.sqrt(state["v"][name]) + TAU) for name, leaf in x.items()}

    return step


ADAPTIVE = {"server_learning_rate": ETA, "server_betas": list(BETAS), "adaptivity": TAU}
OPTIMISERS = {
    "fedavgm": ({"server_learning_rate": ETA, "server_momentum": 0.6}, momentum),
    "fedadam": (ADAPTIVE, adaptive(lambda v, square: BETAS[1] * v + (1 - BETAS[1]) * square)),
    "fedyogi": (ADAPTIVE, adaptive(lambda v, square: v - (1 - BETAS[1]) * square * np.sign(v - square))),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_three_rounds_by_hand(name):
    options, step = OPTIMISERS[name]
    run, x = mlp_run({"method": name, **options}, learning_rate=RATE)
    zero = combine((0, x))
    state = {"m": zero, "v": {leaf: values + TAU**2 for leaf, values in zero.items()}}
    for number in (1, 2, 3):
        run.round(number)
        change = mean(*(combine((-RATE, mlp_gradient(x, client_data(run, client)))) for client in range(2)))
        x = step(x, state, change)
        assert_leaves(run.state.shared, x)
        assert_leaves(run.state.server, state["m"], "first.", rtol=1e-4)
        if name != "fedavgm":
            assert_leaves(run.state.server, state["v"], "second.", rtol=1e-4)


def test_yogi_forgets_a_large_second_moment_more_slowly():
    adam, yogi = (mlp_run({"method": name})[0].method for name in ("fedadam", "fedyogi"))
    old, small = torch.tensor(1.0), torch.tensor(1e-4)
    assert yogi.second_moment(old, small) > adam.second_moment(old, small)
