"""Local-only: clients end where they would end alone, and nothing travels."""

import torch
from toy import classifier, make

VIT = {"patch": 4, "dim": 12, "depth": 1, "heads": 2}


def test_two_rounds_equal_two_rounds_of_federating_with_oneself():
    run = make({"method": "local-only"}, classifier("small-vit", **VIT))
    rows = [run.round(number) for number in (1, 2)]
    assert run.state.shared == {}
    assert all(row["uplink_bytes"] == row["downlink_bytes"] == row["cumulative_bytes"] == 0 for row in rows)
    for client in range(2):
        alone = make({"method": "fa-lora"}, classifier("small-vit", **VIT))
        alone.population.train_samples = [alone.population.train_samples[client]]
        for number in (1, 2):
            alone.round(number)
        for name, leaf in alone.state.shared.items():
            torch.testing.assert_close(run.state.private[client][name], leaf, rtol=1e-4, atol=1e-6)


def test_a_client_that_never_took_part_is_evaluated_with_the_start():
    run = make({"method": "local-only"}, classifier("small-vit", **VIT))
    run.round(1)
    start = run.method.init_private(None, run.shared)
    for name, leaf in run.method.global_weights(run.state.shared).items():
        torch.testing.assert_close(leaf, start[name], rtol=0, atol=0)
