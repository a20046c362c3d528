"""Which of several config files and assignments wins, and channels that refuse error feedback."""

import pytest
import yaml

from fedbench.config import reading as config
from fedbench.errors import FedbenchError
from fedbench.registry import CHANNELS

VALUES = {
    "name": "test",
    "training": {"rounds": 3, "batch_size": 7, "momentum": 0.1},
    "datasets": {"digits": {"source": "digits"}},
    "partitions": {"even": {"scheme": "iid", "clients": 4}},
    "models": {"mlp": {"backbone": "mlp"}},
    "methods": {"fedavg": {"method": "fedavg"}},
    "experiments": {
        "only": {
            "title": "Only",
            "cells": [{"dataset": "digits", "partition": "even", "model": "mlp", "method": "fedavg"}],
        }
    },
}


def test_later_files_win_and_assignments_over_all(tmp_path):
    later = {"training": {"rounds": 5, "batch_size": 9}}
    paths = [tmp_path / "first.yaml", tmp_path / "later.yaml"]
    for path, values in zip(paths, (VALUES, later), strict=True):
        path.write_text(yaml.safe_dump(values))
    assignments = ["training.rounds=6", "training.rounds=8"]
    assert config.load(paths, assignments).training == {"rounds": 8, "batch_size": 9, "momentum": 0.1}
    assert config.load(paths).training == {"rounds": 5, "batch_size": 9, "momentum": 0.1}


def test_a_codec_with_a_memory_of_its_own_takes_no_second_one():
    for codec in ("dgc", "powersgd", "signsgd-majority"):
        entry = {"codec": codec}
        assert CHANNELS[codec].target.objection(config.parse_entry("channels", "c", entry).options, False) is None
        config.validate({**VALUES, "channels": {"c": entry}})
        with pytest.raises(FedbenchError, match=r"^channels\.c: "):
            config.validate({**VALUES, "channels": {"c": {**entry, "error_feedback": True}}})
