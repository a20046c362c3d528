"""Every codec in whole runs: a resumed run equals an uninterrupted one, and the state that it keeps is used."""

import pytest
from support import Watch, assert_equal_trees, make_spec, run_cell, trees_of

from fedbench.engine.interrupt import Interrupted
from fedbench.registry import CHANNELS

TRAINING = {"rounds": 3, "participation": 0.67, "learning_rate": 0.05}
STATEFUL = {
    "powersgd": {"codec": "powersgd", "rank": 2},
    "dgc": {"codec": "dgc", "density": 0.05, "warmup_rounds": 1},
    "affine": {"codec": "affine", "bits": 4, "of": "weights", "stochastic": True, "error_feedback": True},
    "qsgd": {"codec": "qsgd"},
    "signsgd": {"codec": "signsgd", "error_feedback": True},
    "signsgd-majority": {"codec": "signsgd-majority"},
}


def test_every_codec_is_here():
    assert set(CHANNELS) == {*STATEFUL, "dense", "top-k"}


@pytest.mark.parametrize("codec", STATEFUL)
def test_resumed_equals_uninterrupted_and_chunks_do_not_matter(codec, tmp_path, digits, ragged):
    spec = make_spec("fedavg", "mlp", channel=STATEFUL[codec], **TRAINING)
    whole = run_cell(tmp_path / "whole", digits, ragged, spec, chunk=2)
    for stop in (Watch(stop_after=1), Watch(stop_at=3)):
        with pytest.raises(Interrupted):
            run_cell(tmp_path / "parts", digits, ragged, spec, chunk=2, watch=stop)
    resumed = run_cell(tmp_path / "parts", digits, ragged, spec, chunk=2)
    assert resumed.numbers() == whole.numbers()
    assert_equal_trees(trees_of(resumed.state), trees_of(whole.state))
    assert float(whole.rounds[-1]["global_loss"]) < float(whole.rounds[0]["global_loss"])
    dense = run_cell(tmp_path / "dense", digits, ragged, make_spec("fedavg", "mlp", **TRAINING))
    assert int(whole.rounds[-1]["uplink_bytes"]) < int(dense.rounds[-1]["uplink_bytes"])
