"""DiLoCo: Nesterov's steps on the clients' mean change, by hand and against torch's own."""

import torch
from by_hand import assert_leaves, client_data, combine, mean, mlp_gradient, mlp_run
from toy import classifier, make

RATE = 0.1


def test_three_rounds_by_hand():
    run, x = mlp_run({"method": "diloco"}, learning_rate=RATE)
    buffer = combine((0, x))
    for number in (1, 2, 3):
        run.round(number)
        change = mean(*(combine((-RATE, mlp_gradient(x, client_data(run, client)))) for client in range(2)))
        buffer = combine((0.9, buffer), (1, change))
        x = combine((1, x), (0.7, change), (0.7 * 0.9, buffer))
        assert_leaves(run.state.shared, x)
        assert_leaves(run.state.server, buffer, "momentum.", rtol=1e-4)


def test_the_outer_step_is_torchs():
    method = make({"method": "diloco", "outer_learning_rate": 0.3, "outer_momentum": 0.8}, classifier("mlp")).method
    generator = torch.Generator().manual_seed(0)
    shared = {"x": torch.randn(4, 3, generator=generator)}
    parameter = torch.nn.Parameter(shared["x"].clone())
    outer = torch.optim.SGD([parameter], lr=0.3, momentum=0.8, nesterov=True)
    server = method.init_server(shared)
    for _ in range(4):
        change = torch.randn(4, 3, generator=generator)
        parameter.grad = -change
        outer.step()
        shared, server = method.aggregate(shared, {"x": change}, server, 1.0)
        torch.testing.assert_close(shared["x"], parameter.detach())


def test_local_steps_are_the_runs():
    """Three steps of AdamW on whole batches, not one epoch."""
    run = make({"method": "diloco"}, classifier("mlp"), optimizer="adamw", local_steps=3, learning_rate=1e-3)
    trained = run.trainer.train([1, 0], {n: v.expand(2, *v.shape) for n, v in run.shared.items()}, {}, 1, 1.0)
    assert trained.result.steps.tolist() == [3, 3]


def test_local_sgd_is_fedavg():
    plain, other = (
        make(method, classifier("mlp"), learning_rate=RATE)
        for method in ({"method": "fedavg"}, {"method": "diloco", "outer_learning_rate": 1.0, "outer_momentum": 0.0})
    )
    for run in (plain, other):
        run.round(1)
    torch.testing.assert_close(other.state.shared, plain.state.shared)
    assert not other.method.additive
