"""A federation by itself: its docstring's example, what it leaves as it was, and parts of one's own in it."""

import doctest
import subprocess
import sys
from dataclasses import fields

import pytest
import torch
from support import Watch, assert_equal_trees, make_federation, make_spec, play, run_cell, trees_of

from fedbench.channels.channel import Delivery
from fedbench.channels.dense import Dense, DenseOptions
from fedbench.engine import federation
from fedbench.engine.interrupt import Interrupted, StopNow
from fedbench.methods.fedavg import FedAvg
from fedbench.tree import weighted_mean


def test_the_docstrings_example():
    found = doctest.testmod(federation)
    assert found.attempted >= 10
    assert not found.failed


def test_no_file_clock_or_lock_is_in_it():
    """What a federation imports, all in all: nothing that runs need for folders, and no progress."""
    code = "import sys, fedbench.engine.federation; print(*(n for n in sys.modules if n.startswith('fedbench.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    run_only = ("clock", "checkpoint", "checkpointer", "run", "environment", "summary")
    loaded = set(done.stdout.split())
    assert not loaded & {f"fedbench.engine.{name}" for name in run_only}
    assert not [name for name in loaded if name.startswith("fedbench.site")]


def copied(state):
    """A state's trees and counts, apart from the state."""
    trees = {name: {leaf: value.clone() for leaf, value in tree.items()} for name, tree in trees_of(state).items()}
    return trees, repr((state.round_number, state.update_bytes, state.seen, state.participations))


@pytest.mark.parametrize("method", ["fedsdg", "scaffold", "fedadam", "centralised"])
@pytest.mark.parametrize("stop_at", [1, 4, None])
def test_a_round_leaves_its_state_as_it_was(method, stop_at, digits, ragged):
    """One that is abandoned at its first step or amid its second chunk, and one that ends."""
    looks = []
    spec = make_spec(method, rounds=3, participation=0.67)
    made = play(digits, ragged, spec, chunk=2, stop=lambda: looks.append(0) or (len(looks) == stop_at and "test"))
    if stop_at is None:
        made.round(1)  # so that clients have something to lose
    before, counts = copied(made.state)
    if stop_at is None:
        done = made.federation.round(made.state, 2)
        assert done.state.round_number == 2
        assert copied(done.state)[1] != counts
    else:
        with pytest.raises(StopNow):
            made.federation.round(made.state, 1)
    assert_equal_trees(trees_of(made.state), before)
    assert copied(made.state)[1] == counts


def test_a_round_that_diverges_moves_nothing_but_its_number(digits, ragged):
    made = play(digits, ragged, make_spec("fedavg", "mlp", rounds=2, learning_rate=1e30, momentum=0.9))
    start = made.state
    result = made.federation.round(start, 1)
    assert result.diverged
    assert result.state.round_number == 1
    same = [field.name for field in fields(start) if field.name != "round_number"]
    assert all(getattr(result.state, name) is getattr(start, name) for name in same)


def test_a_mean_that_is_not_finite_moves_nothing_either(digits, ragged):
    """Messages are finite; the channel makes infinity of them, as a sum beyond the largest float would be."""

    class Overflowing(Dense):
        def uplink(self, messages, weights, memory, state, streams):
            mean = {name: leaf * torch.inf for name, leaf in weighted_mean(messages, weights).items()}
            return Delivery(mean, memory, [1] * len(weights), [0] * len(weights)), state

    made = play(digits, ragged, make_spec("fedavg", "mlp"), channel=lambda tree: Overflowing(DenseOptions(), tree))
    result = made.federation.round(made.state, 1)
    assert result.diverged
    assert result.state.shared is made.state.shared
    assert result.uplink_bytes == [1] * len(result.cohort), "what was sent counts"


def test_rounds_from_the_same_state_are_the_same(digits, ragged):
    made = play(digits, ragged, make_spec("fedsdg", rounds=2, participation=0.5))
    first, second = (made.federation.round(made.state, 1) for _ in range(2))
    assert_equal_trees(trees_of(first.state), trees_of(second.state))
    third = make_federation(digits, ragged, make_spec("fedsdg", rounds=2, participation=0.5)).round(made.state, 1)
    assert_equal_trees(trees_of(first.state), trees_of(third.state))


def test_a_method_and_a_sampler_of_ones_own(digits, ragged):
    class Doubling(FedAvg):
        def aggregate(self, shared, mean_message, server, share):
            return super().aggregate(shared, {name: 2 * leaf for name, leaf in mean_message.items()}, server, share)

    asked, spec = [], make_spec("fedavg", "mlp", seed=5, participation=0.5)

    def sampler(*key):
        asked.append(key)
        return [4, 1]

    plain = play(digits, ragged, spec, sampler=sampler)
    doubled = play(digits, ragged, spec, sampler=sampler, method=Doubling)
    start = plain.state.shared
    for made in (plain, doubled):
        assert made.round(1)["cohort"] == "4 1"
    assert asked == [(5, 1, 6, 0.5)] * 2
    for name, leaf in plain.state.shared.items():
        torch.testing.assert_close(doubled.state.shared[name] - start[name], 2 * (leaf - start[name]))


def test_a_run_stopped_in_an_evaluation_repeats_that_round(tmp_path, digits, ragged):
    """Fine-tuning asks for a stop as training does; the round that it follows is then not done either."""
    spec = make_spec("fedavg", "mlp", rounds=2, fine_tune_epochs=1, participation=0.34)
    watch = Watch()
    whole = run_cell(tmp_path / "whole", digits, ragged, spec, watch=watch)
    assert watch.looks > 20
    for look in range(1, watch.looks, 4):
        folder = tmp_path / str(look)
        with pytest.raises(Interrupted):
            run_cell(folder, digits, ragged, spec, watch=Watch(stop_at=look))
        resumed = run_cell(folder, digits, ragged, spec)
        assert resumed.numbers() == whole.numbers(), f"stopped at look {look} of {watch.looks}"
