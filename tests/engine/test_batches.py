"""Which samples clients see: every one once per epoch, whoever else trains beside them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbench.engine.batches import client_batches, local_steps, make_plan
from fedbench.randomness import stream

SAMPLES = [np.arange(100 * client, 100 * client + size) for client, size in enumerate((25, 12, 7, 1))]


def plan_of(clients, batch_size=5, epochs=2, steps=None, pad=None, key=(4, 0)):
    return make_plan(clients, [SAMPLES[c] for c in clients], batch_size, epochs, steps, 9, key, pad)


@given(size=st.integers(1, 60), batch_size=st.integers(1, 70), epochs=st.integers(1, 3), start=st.integers(0, 1000))
@settings(max_examples=80, deadline=None)
def test_every_sample_once_per_epoch(size, batch_size, epochs, start):
    samples = np.arange(start, start + size)
    steps = local_steps(size, batch_size, epochs, None)
    batches = client_batches(stream(0, "test"), samples, batch_size, steps)
    assert batches.shape == (steps, batch_size)
    per_epoch = steps // epochs
    for epoch in np.split(batches, epochs):
        assert sorted(epoch[epoch >= 0]) == samples.tolist()
        counts = (epoch >= 0).sum(1)
        assert counts[:-1].tolist() == [batch_size] * (per_epoch - 1), "only an epoch's last batch may be smaller"
        assert counts[-1] >= 1


@given(size=st.integers(1, 40), batch_size=st.integers(1, 50), steps=st.integers(1, 30))
@settings(max_examples=50, deadline=None)
def test_local_steps_cut_shuffled_epochs(size, batch_size, steps):
    samples = np.arange(size)
    assert local_steps(size, batch_size, 7, steps) == steps
    batches = client_batches(stream(0, "test"), samples, batch_size, steps)
    assert len(batches) == steps
    per_epoch = -(-size // batch_size)
    for first in range(0, steps, per_epoch):
        seen = batches[first : first + per_epoch]
        seen = seen[seen >= 0]
        assert len(set(seen)) == len(seen), "no sample twice in an epoch"


def test_epochs_are_shuffled_anew():
    batches = client_batches(stream(0, "test"), np.arange(30), 30, 2)
    assert batches[0].tolist() != batches[1].tolist()


@pytest.mark.parametrize("pad", [None, 1])
@pytest.mark.parametrize("steps", [None, 4])
def test_a_client_sees_the_same_in_every_chunk(steps, pad):
    whole = plan_of([0, 1, 2, 3], steps=steps, pad=pad)
    for position, client in enumerate([0, 1, 2, 3]):
        for chunk in ([client], [0, client] if client else [0, 3]):
            part = plan_of(chunk, steps=steps, pad=pad)
            at = chunk.index(client)
            count = whole.steps[position]
            assert part.steps[at] == count
            mask = whole.mask[:count, position]
            width = min(part.mask.shape[2], whole.mask.shape[2])
            np.testing.assert_array_equal(part.mask[:count, at, :width], mask[:, :width])
            assert not part.mask[:count, at, width:].any()
            assert not mask[:, width:].any()
            own = part.mask[:count, at]
            np.testing.assert_array_equal(part.indices[:count, at][own], whole.indices[:count, position][mask])
            if pad is not None:
                np.testing.assert_array_equal(part.offsets[:count, at][own], whole.offsets[:count, position][mask])
                np.testing.assert_array_equal(part.flips[:count, at][own], whole.flips[:count, position][mask])


def test_plan_of_ragged_clients():
    plan = plan_of([0, 1, 2, 3])
    assert plan.steps.tolist() == [10, 6, 4, 2]
    assert plan.active.tolist() == [4, 4, 3, 3, 2, 2, 1, 1, 1, 1]
    assert plan.widths.tolist() == [5] * 10
    assert plan.mask.shape == (10, 4, 5)
    assert not plan.mask[2:, 3].any(), "a client that has finished has no samples"
    for client in range(4):
        seen = plan.indices[:, client][plan.mask[:, client]]
        assert sorted(seen) == sorted(SAMPLES[client].tolist() * 2)
        assert set(plan.indices[:, client].ravel()) <= set(SAMPLES[client]), "padding shows a client's own sample"
    # a batch is as wide as its fullest client: in the fifth step client 0 has five samples, at its end too
    assert plan_of([2, 3], epochs=1).widths.tolist() == [5, 2]


def test_draws_depend_on_round_phase_client_and_seed():
    def order(client, key, seed=9):
        same = np.arange(40)
        return make_plan([client], [same], 40, 1, None, seed, key, 2)

    first = order(0, (1, 0))
    for other in (order(1, (1, 0)), order(0, (2, 0)), order(0, (1, 1)), order(0, (1, 0), seed=8)):
        assert (other.indices != first.indices).any()
        assert (other.offsets != first.offsets).any()
    np.testing.assert_array_equal(order(0, (1, 0)).indices, first.indices)


def test_augmentation_does_not_change_the_samples():
    np.testing.assert_array_equal(plan_of([0, 1], pad=2).indices, plan_of([0, 1], pad=None).indices)


def test_augmentation_draws_cover_their_range():
    samples = [np.arange(4000)]
    plan = make_plan([0], samples, 100, 1, None, 0, (1, 0), 2)
    assert set(plan.offsets.ravel()) == {0, 1, 2, 3, 4}
    assert 0.45 < plan.flips.mean() < 0.55
