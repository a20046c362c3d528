"""Checkpoints: exact, noticed when damaged, refused when they are another run's."""

import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save as serialise
from support import Watch, assert_equal_trees, make_spec, run_cell, trees_of

from fedbench.engine.checkpoint import load, remove, save
from fedbench.engine.interrupt import Interrupted
from fedbench.engine.record import Record
from fedbench.engine.state import FederationState
from fedbench.errors import FedbenchError
from fedbench.files import io


def made(number=3):
    """A state and a record."""
    generator = torch.Generator().manual_seed(number)
    leaf = torch.randn(3, 4, generator=generator)
    state = FederationState(
        round_number=number,
        # names out of alphabetical order, several dtypes, a scalar, an empty leaf, shared memory
        shared={"z": leaf, "a": leaf.T},
        server={"momentum": torch.tensor(1e-45), "steps": torch.tensor(7)},
        channel={
            "warm": torch.randn(2, 2, generator=generator).double(),
            "half": torch.tensor([1.5], dtype=torch.bfloat16),
        },
        private={11: {"b": torch.zeros(0, 2), "a": leaf[0]}, 2: {"b": torch.zeros(0, 2), "a": leaf[1]}},
        memory={2: {"z": leaf + 1}},
        update_bytes=123,
        seen={11: 3, 2: 1},
        participations={11: 2, 2: 1},
    )
    record = Record(
        rows=[{"round": 0, "val_accuracy": None}, {"round": 1, "cohort": "2 11", "train_loss": 0.1 + 0.2}],
        accuracies={"last": [1 / 3, float("nan")], "base": [0.0, 1e-300]},
        tail=[[0.1, 0.2], [0.3, 0.7]],
        totals={"uplink": 2**53 - 1, "wall": 1.1},
        diverged_round=None,
    )
    return state, record


def everything(state, record):
    """All that is not a tree, as text: NaN equals no NaN."""
    return repr((state.round_number, state.update_bytes, state.seen, state.participations, record))


def silent(line):
    raise AssertionError(f"nothing should be said, but: {line}")


def test_exact_round_trip(tmp_path):
    state, record = made()
    path = save(tmp_path, state, record, "digest")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    loaded, found = load(tmp_path, "digest", silent)
    assert_equal_trees(trees_of(state), trees_of(loaded))
    assert everything(loaded, found) == everything(state, record)
    for part, tree in trees_of(state).items():
        twin = trees_of(loaded)[part]
        assert list(twin) == list(tree), "sums over leaves go by their order"
        assert [leaf.dtype for leaf in twin.values()] == [leaf.dtype for leaf in tree.values()]
    assert list(loaded.private) == [11, 2]


def test_the_file_is_what_it_was(tmp_path):
    """Written down by name, so that a checkpoint of the day before goes on after an update."""
    values = {
        "round_number": 2, "update_bytes": 7, "rows": [{"round": 0}], "accuracies": {"last": [0.5]}, "domains": {},
        "tail": [[0.5]], "domain_tail": [], "totals": {"uplink": 8}, "held_out": [1], "diverged_round": None,
        "seen": {"4": 2}, "participations": {"4": 1},
    }  # fmt: skip
    trees = ["shared/x", "server/momentum", "channel/warm", "private/4/head.x", "memory/4/x"]
    metadata = {"digest": "digest", "values": json.dumps(values), "order": json.dumps(trees)}
    data = serialise({name: torch.ones(2) * number for number, name in enumerate(trees)}, metadata)
    path = tmp_path / f"round000002-{hashlib.sha256(data).hexdigest()}.safetensors"
    path.write_bytes(data)
    state, record = load(tmp_path, "digest", silent)
    found = [state.shared["x"], state.server["momentum"], state.channel["warm"], state.private[4]["head.x"]]
    assert [float(leaf[0]) for leaf in [*found, state.memory[4]["x"]]] == [0, 1, 2, 3, 4]
    assert (state.seen, state.participations, record.totals) == ({4: 2}, {4: 1}, {"uplink": 8})
    again = save(tmp_path / "again", state, record, "digest").read_bytes()
    written = json.loads(again[8 : 8 + int.from_bytes(again[:8], "little")])["__metadata__"]
    assert json.loads(written["values"]) == values
    assert json.loads(written["order"]) == trees


def test_nothing_there_is_a_fresh_start(tmp_path):
    assert load(tmp_path / "missing", "digest", silent) is None
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    assert load(tmp_path, "digest", silent) is None


def test_the_newest_two_are_kept(tmp_path):
    for number in (1, 2, 10, 11):
        save(tmp_path, *made(number), "digest")
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    assert sorted(path.name[:11] for path in tmp_path.glob("round*")) == ["round000010", "round000011"]
    assert load(tmp_path, "digest", silent)[0].round_number == 11
    remove(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"], "only checkpoints are deleted"
    (tmp_path / "notes.txt").unlink()
    remove(tmp_path)
    assert not tmp_path.exists()


def test_what_a_killed_save_left_goes_with_the_last_checkpoint(tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / ".round000001-0.safetensors.fedbench-abcdefgh.part").write_bytes(b"half")
    remove(folder)
    assert not folder.exists()


def flip(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("damage", [flip, lambda data: data[:-1], lambda data: b""], ids=["flipped", "cut", "empty"])
def test_damaged_newest_falls_back_to_the_one_before(damage, tmp_path):
    save(tmp_path, *made(1), "digest")
    newest = save(tmp_path, *made(2), "digest")
    newest.write_bytes(damage(newest.read_bytes()))
    lines = []
    loaded, _ = load(tmp_path, "digest", lines.append)
    assert loaded.round_number == 1
    assert_equal_trees(trees_of(loaded), trees_of(made(1)[0]))
    (line,) = lines
    assert str(newest) in line
    assert "damaged" in line


def test_only_damaged_ones_are_an_error(tmp_path):
    for number in (1, 2):
        path = save(tmp_path, *made(number), "digest")
        path.write_bytes(flip(path.read_bytes()))
    with pytest.raises(FedbenchError, match=r"every checkpoint is damaged; give --overwrite") as error:
        load(tmp_path, "digest", lambda line: None)
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_another_specs_checkpoint_is_an_error(tmp_path):
    save(tmp_path, *made(1), "digest")
    with pytest.raises(FedbenchError, match=r"holds a checkpoint of another spec.*--overwrite") as error:
        load(tmp_path, "other", silent)
    assert str(tmp_path) in str(error.value)
    assert len(list(tmp_path.iterdir())) == 1, "nothing was deleted"


@pytest.mark.parametrize("error", [28, 13])
def test_failed_save_keeps_the_older_one(error, tmp_path, monkeypatch):
    save(tmp_path, *made(1), "digest")

    def fail(*_):
        raise OSError(error, "simulated")

    monkeypatch.setattr(io.os, "fsync", fail)
    with pytest.raises(FedbenchError, match="cannot write: simulated"):
        save(tmp_path, *made(2), "digest")
    assert [path.name[:11] for path in tmp_path.iterdir()] == ["round000001"], "no part of the new one is left"
    assert load(tmp_path, "digest", silent)[0].round_number == 1


def interrupted(folder, digits, ragged, spec, **watch):
    with pytest.raises(Interrupted):
        run_cell(folder, digits, ragged, spec, watch=Watch(**watch))


def test_run_goes_on_from_an_older_checkpoint_and_ends_equal(tmp_path, digits, ragged):
    spec = make_spec(model="mlp", rounds=3, participation=0.5, optimizer="adam")
    expected = run_cell(tmp_path / "whole", digits, ragged, spec)
    folder = tmp_path / "resumed"
    interrupted(folder, digits, ragged, spec, stop_after=1)
    interrupted(folder, digits, ragged, spec, stop_after=2)
    newest = max((folder / "checkpoint").iterdir())
    assert newest.name.startswith("round000002")
    newest.write_bytes(flip(newest.read_bytes()))
    resumed = run_cell(folder, digits, ragged, spec)
    assert resumed.numbers() == expected.numbers()
    log = (folder / "run" / "log.txt").read_text()
    assert "is damaged" in log
    assert log.count("continuing after round 1") == 2


def test_run_refuses_another_specs_checkpoint_until_told_to_overwrite(tmp_path, digits, ragged):
    first, second = (make_spec(model="mlp", rounds=2, learning_rate=rate) for rate in (0.01, 0.02))
    expected = run_cell(tmp_path / "fresh", digits, ragged, second)
    folder = tmp_path / "reused"
    interrupted(folder, digits, ragged, first, stop_after=1)
    with pytest.raises(FedbenchError, match="checkpoint of another spec"):
        run_cell(folder, digits, ragged, second)
    assert len(list((folder / "checkpoint").iterdir())) == 1
    outcome = run_cell(folder, digits, ragged, second, overwrite=True)
    assert outcome.numbers() == expected.numbers()


def test_run_with_only_damaged_checkpoints_starts_again_when_told_to(tmp_path, digits, ragged):
    spec = make_spec(model="mlp", rounds=2)
    expected = run_cell(tmp_path / "fresh", digits, ragged, spec)
    folder = tmp_path / "damaged"
    interrupted(folder, digits, ragged, spec, stop_after=1)
    for path in (folder / "checkpoint").iterdir():
        path.write_bytes(b"")
    with pytest.raises(FedbenchError, match="every checkpoint is damaged"):
        run_cell(folder, digits, ragged, spec)
    outcome = run_cell(folder, digits, ragged, spec, overwrite=True)
    assert outcome.numbers() == expected.numbers()
    assert np.isfinite(float(outcome.rounds[-1]["train_loss"]))
