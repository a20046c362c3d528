"""A run's folder: complete or absent, never another run's, never half of one."""

import errno
import json
from dataclasses import replace
from unittest import mock

import pytest
import support
from filelock import FileLock
from support import Watch, base_weights, make_spec, run_cell

from fedbench.engine.checkpointer import Checkpointer
from fedbench.engine.interrupt import Interrupted
from fedbench.errors import FedbenchError
from fedbench.files import io

SPEC = {"model": "mlp", "rounds": 2, "participation": 0.67}


def fail_at(monkeypatch, function, call):
    """Let the `call`-th use of an os function fail as on a full disk."""
    real, calls = getattr(io.os, function), []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(io.os, function, failing)
    return calls


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_complete_run_is_not_repeated(tmp_path, digits, ragged):
    first = run_cell(tmp_path, digits, ragged, make_spec(**SPEC))
    assert names(tmp_path / "run") == {"rounds.csv", "clients.csv", "summary.json", "log.txt"}
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    watch = Watch()
    again = run_cell(tmp_path, digits, ragged, make_spec(**SPEC), watch=watch)
    assert again.state is None
    assert watch.rounds == []
    assert {path.name: path.read_bytes() for path in first.folder.iterdir()} == before


def test_a_run_with_a_damaged_table_says_so_and_is_run_again(tmp_path, digits, ragged, capsys):
    first = run_cell(tmp_path, digits, ragged, make_spec(**SPEC))
    numbers, table = first.numbers(), tmp_path / "run" / "clients.csv"
    table.write_text(table.read_text().rsplit("\n", 2)[0])
    assert run_cell(tmp_path, digits, ragged, make_spec(**SPEC)).numbers() == numbers
    assert f"{table}: damaged (not the contents that were written); running again" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["rounds.csv", "clients.csv", "summary.json"])
def test_a_run_without_one_of_its_files_is_run_again(name, tmp_path, digits, ragged):
    first = run_cell(tmp_path, digits, ragged, make_spec(**SPEC))
    numbers = first.numbers()
    (tmp_path / "run" / name).unlink()
    assert run_cell(tmp_path, digits, ragged, make_spec(**SPEC)).numbers() == numbers


def test_results_of_other_data_or_another_partition_are_refused_until_told_to_overwrite(tmp_path, digits, ragged):
    others = (
        (replace(digits, meta={**digits.meta, "sha256": {"all": "other"}}), ragged, "other data"),
        (digits, replace(ragged, meta={"sha256": "other"}), "another partition"),
    )
    for store, partition, made_from in others:
        run_cell(tmp_path, digits, ragged, make_spec(**SPEC), overwrite=True)
        with pytest.raises(FedbenchError, match=f"holds results made from {made_from}; give another --out"):
            run_cell(tmp_path, store, partition, make_spec(**SPEC))
        assert run_cell(tmp_path, store, partition, make_spec(**SPEC), overwrite=True).state is not None


def test_results_of_another_base_are_refused_until_told_to_overwrite(tmp_path, digits, ragged):
    spec = make_spec(**SPEC)
    before = run_cell(tmp_path, digits, ragged, spec).summary
    other = {name: leaf + 0.1 for name, leaf in base_weights(spec, digits).items()}
    with mock.patch.object(support, "base_weights", return_value=other):
        with pytest.raises(FedbenchError, match="holds results made with another base; give another --out"):
            run_cell(tmp_path, digits, ragged, spec)
        again = run_cell(tmp_path, digits, ragged, spec, overwrite=True)
        assert again.summary["base_sha256"] != before["base_sha256"]
        fresh = run_cell(tmp_path / "fresh", digits, ragged, spec)
        assert again.numbers() == fresh.numbers()
        assert run_cell(tmp_path, digits, ragged, spec, overwrite=True).state is None, "the same run is kept"


def test_a_run_from_before_bases_were_recorded_is_complete(tmp_path, digits, ragged):
    first = run_cell(tmp_path, digits, ragged, make_spec(**SPEC))
    values = io.read_sealed(first.folder / "summary.json")
    del values["base_sha256"]
    io.write_sealed(first.folder / "summary.json", values)
    assert run_cell(tmp_path, digits, ragged, make_spec(**SPEC), overwrite=True).state is None


def test_label_is_no_other_spec(tmp_path, digits, ragged):
    run_cell(tmp_path, digits, ragged, make_spec(**SPEC))
    labelled = make_spec(**SPEC, method_options={"label": "Averaging"})
    assert run_cell(tmp_path, digits, ragged, labelled).state is None


def test_results_of_another_spec_are_refused_until_told_to_overwrite(tmp_path, digits, ragged):
    run_cell(tmp_path, digits, ragged, make_spec("fedsdg", rounds=1))
    assert "gates.csv" in names(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(
        FedbenchError, match=r"holds results made by another spec than the config's; give another --out, or --overwrite"
    ) as error:
        run_cell(tmp_path, digits, ragged, make_spec(**SPEC))
    assert str(tmp_path / "run") in str(error.value)
    assert "\n" not in str(error.value)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    fresh = run_cell(tmp_path / "fresh", digits, ragged, make_spec(**SPEC))
    outcome = run_cell(tmp_path, digits, ragged, make_spec(**SPEC), overwrite=True)
    assert outcome.numbers() == fresh.numbers(), "no table of the run before is left"
    assert outcome.summary["digest"] == make_spec(**SPEC).digest


@pytest.mark.parametrize(
    ("function", "call"),
    [(function, call) for function in ("fsync", "replace") for call in (1, 2, 3)] + [("replace", 5)],
)
def test_full_disk_is_one_clear_line_and_leaves_no_result(function, call, tmp_path, digits, ragged, monkeypatch):
    """Three files are written; whichever fails, no later stage finds a summary."""
    spec = make_spec(model="mlp", rounds=1)
    expected = run_cell(tmp_path / "sound", digits, ragged, spec)
    with monkeypatch.context() as patched:
        fail_at(patched, function, call)
        with pytest.raises(FedbenchError, match=r"cannot write: No space left on device; free some space") as error:
            run_cell(tmp_path / "full", digits, ragged, spec)
    assert "\n" not in str(error.value)
    assert str(tmp_path / "full" / "run") in str(error.value)
    left = names(tmp_path / "full" / "run")
    assert left <= {"log.txt", "rounds.csv", "clients.csv"}, "no temporary file, no summary"
    for name in left - {"log.txt"}:
        whole = (tmp_path / "full" / "run" / name).read_text().count("\n")
        assert whole == (expected.folder / name).read_text().count("\n"), "what is there is whole"
    assert run_cell(tmp_path / "full", digits, ragged, spec).numbers() == expected.numbers()


@pytest.mark.parametrize("call", range(1, 7))
def test_failed_overwriting_leaves_no_mixture(call, tmp_path, digits, ragged, monkeypatch):
    """Three files are written aside, which leaves the old ones alone, and then moved."""
    old = run_cell(tmp_path, digits, ragged, make_spec(model="mlp", rounds=1, learning_rate=0.5))
    before = {path.name: path.read_bytes() for path in old.folder.iterdir() if path.name != "log.txt"}
    spec = make_spec(model="mlp", rounds=1)
    with monkeypatch.context() as patched:
        fail_at(patched, "replace", call)
        with pytest.raises(FedbenchError, match="No space left on device"):
            run_cell(tmp_path, digits, ragged, spec, overwrite=True)
    if call <= 3:
        assert {path.name: path.read_bytes() for path in old.folder.iterdir() if path.name != "log.txt"} == before
    else:
        assert names(old.folder) == {"log.txt", "rounds.csv", "clients.csv"}, "no summary vouches for a mixture"
    expected = run_cell(tmp_path / "fresh", digits, ragged, spec)
    assert run_cell(tmp_path, digits, ragged, spec, overwrite=True).numbers() == expected.numbers()


def test_full_disk_at_a_checkpoint_keeps_the_one_before(tmp_path, digits, ragged, monkeypatch):
    spec = make_spec(model="mlp", rounds=3, participation=0.5, optimizer="adam")
    expected = run_cell(tmp_path / "sound", digits, ragged, spec)
    folder = tmp_path / "full"
    with monkeypatch.context() as patched:
        patched.setattr(Checkpointer, "due", lambda self: True)  # after every round
        fail_at(patched, "fsync", 3)
        with pytest.raises(FedbenchError, match=r"round000002.*cannot write: No space left on device"):
            run_cell(folder, digits, ragged, spec)
    assert sorted(name[:11] for name in names(folder / "checkpoint")) == ["round000000", "round000001"]
    watch = Watch()
    outcome = run_cell(folder, digits, ragged, spec, watch=watch)
    assert watch.rounds == [2, 3]
    assert outcome.numbers() == expected.numbers()


def test_file_in_the_folders_place(tmp_path, digits, ragged):
    (tmp_path / "run").write_text("in the way")
    with pytest.raises(FedbenchError, match="a file stands where a folder is needed"):
        run_cell(tmp_path, digits, ragged, make_spec(**SPEC))
    assert (tmp_path / "run").read_text() == "in the way"


@pytest.mark.parametrize("text", ['{"digest": ', "", "[]", "null", "3", "{}", '{"digest": "x"}'])
def test_damaged_summary_is_one_clear_line(text, tmp_path, digits, ragged):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log.txt").write_text("2026-01-01 00:00:00 run 0123456789abcdef (a/b/c/d/seed0) on cpu\n")
    (tmp_path / "run" / "summary.json").write_text(text)
    message = r"summary\.json: (not valid JSON|damaged \(no ').*; delete it and run again"
    with pytest.raises(FedbenchError, match=message):
        run_cell(tmp_path, digits, ragged, make_spec(**SPEC))
    assert run_cell(tmp_path, digits, ragged, make_spec(**SPEC), overwrite=True).summary["rounds_done"] == 2


def test_locked_folder_is_waited_for_until_the_time_is_over(tmp_path, digits, ragged):
    said = []
    with (
        FileLock(tmp_path / "checkpoint.lock"),
        pytest.raises(FedbenchError, match="another process is still making it; start again later"),
    ):
        run_cell(tmp_path, digits, ragged, make_spec(**SPEC), time_limit=0.2, say=said.append)
    assert said == [f"another process is making {tmp_path / 'run'}; waiting for it"]
    assert names(tmp_path / "run") == set(), "not a line is written while another process is at work"
    run_cell(tmp_path, digits, ragged, make_spec(**SPEC))
    assert names(tmp_path) == {"run"}, "neither lock nor checkpoint is left"


def test_lock_goes_after_an_error_too(tmp_path, digits, ragged):
    # one step of a gradient times 1e7: beyond fp16, and still a number
    spec = make_spec(**SPEC, channel={"codec": "dense", "dtype": "fp16"}, learning_rate=1e7, local_steps=1)
    with pytest.raises(FedbenchError, match="does not fit fp16"):
        run_cell(tmp_path, digits, ragged, spec)
    assert not (tmp_path / "checkpoint.lock").exists()
    assert names(tmp_path / "run") == {"log.txt"}


def test_summary_is_plain_json(tmp_path, digits, ragged):
    """Divergence puts infinities into rows; the summary has to stay standard JSON."""
    outcome = run_cell(tmp_path, digits, ragged, make_spec(**{**SPEC, "learning_rate": 1e30}))

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    json.loads((outcome.folder / "summary.json").read_text(), parse_constant=refuse)


def test_a_checkpoint_trained_from_another_base_is_refused(tmp_path, digits, ragged):
    spec = make_spec("fedavg", "mlp", rounds=3)
    with pytest.raises(Interrupted):
        run_cell(tmp_path, digits, ragged, spec, watch=Watch(stop_after=1))
    other = {name: leaf + 1e-3 for name, leaf in base_weights(spec, digits).items()}
    with mock.patch.object(support, "base_weights", return_value=other):
        with pytest.raises(FedbenchError, match="of another spec, data set, partition or base"):
            run_cell(tmp_path, digits, ragged, spec)
        run_cell(tmp_path, digits, ragged, spec, overwrite=True)
    assert "discarded" in (tmp_path / "run" / "log.txt").read_text()
