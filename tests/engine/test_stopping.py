"""Runs that end early: divergence, a time limit, a signal."""

import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner
from support import Watch, make_spec, read_csv, run_cell

from fedbench.cli.commands import cli
from fedbench.engine.interrupt import Interrupted, StopRequest
from fedbench.errors import FedbenchError

EXPLODING = {"model": "mlp", "rounds": 5, "participation": 0.67, "learning_rate": 1e30, "momentum": 0.9}


def test_diverged_run_is_a_result(tmp_path, digits, ragged):
    said = []
    outcome = run_cell(tmp_path, digits, ragged, make_spec(**EXPLODING), say=said.append)
    assert said == [f"{tmp_path / 'run'}: diverged in round 1; the results end there and say so"]
    first, last = outcome.rounds[0], outcome.rounds[-1]
    assert len(outcome.rounds) == 2, "training stops where it diverged"
    assert (first["diverged"], last["diverged"]) == ("0", "1")
    assert last["global_accuracy"] == last["test_accuracy_mean"] == "", "weights that are not finite are not evaluated"
    assert int(last["uplink_bytes"]) >= 0
    summary = outcome.summary
    assert summary["diverged"] is True
    assert summary["diverged_round"] == 1
    assert summary["rounds_done"] == 1
    assert summary["selections"]["last"]["rounds"] == [0], "what was last sound stands in"
    assert summary["selections"]["last"]["personal"]["mean"] == float(first["test_accuracy_mean"])
    assert "diverged in round 1" in (tmp_path / "run" / "log.txt").read_text()
    assert not (tmp_path / "checkpoint").exists()


def test_private_divergence_is_noticed(tmp_path, digits, ragged):
    """Without messages only the losses can tell."""
    spec = make_spec("local-only", method_options={"trainable": "full"}, **EXPLODING)
    outcome = run_cell(tmp_path, digits, ragged, spec)
    assert outcome.summary["diverged_round"] in (1, 2)
    assert outcome.rounds[-1]["diverged"] == "1"


def test_run_stopped_at_its_diverged_round_resumes_equal(tmp_path, digits, ragged):
    spec = make_spec(**EXPLODING)
    expected = run_cell(tmp_path / "whole", digits, ragged, spec)
    with pytest.raises(Interrupted):
        run_cell(tmp_path / "resumed", digits, ragged, spec, watch=Watch(stop_after=1))
    watch = Watch()
    resumed = run_cell(tmp_path / "resumed", digits, ragged, spec, watch=watch)
    assert watch.rounds == [], "no round after the diverged one"
    assert resumed.numbers() == expected.numbers()
    assert resumed.summary["selections"] == expected.summary["selections"]
    assert resumed.summary["diverged_round"] == 1


def test_chance_level_is_said(tmp_path, digits, ragged):
    """Ten balanced-enough classes: an untrained model is at chance, a trained one is not."""
    trained = run_cell(
        tmp_path / "trained", digits, ragged, make_spec(model="mlp", rounds=2, local_epochs=20, learning_rate=0.1)
    )
    assert trained.summary["chance_level"] is False
    untrained = run_cell(tmp_path / "untrained", digits, ragged, make_spec(model="mlp", rounds=0))
    mean = untrained.summary["selections"]["last"]["personal"]["mean"]
    assert untrained.summary["chance_level"] is (mean <= 0.1)


def test_time_limit_stops_and_saves(tmp_path, digits, ragged):
    spec = make_spec(model="mlp", rounds=3)
    expected = run_cell(tmp_path / "whole", digits, ragged, spec, time_limit=1e6)
    folder = tmp_path / "limited"
    with pytest.raises(Interrupted, match=r"interrupted after round 0 \(time limit\); start again to continue"):
        run_cell(folder, digits, ragged, spec, time_limit=0)
    assert [path.name[:11] for path in (folder / "checkpoint").iterdir()] == ["round000000"]
    assert "stopped after round 0 (time limit)" in (folder / "run" / "log.txt").read_text()
    resumed = run_cell(folder, digits, ragged, spec)
    assert resumed.numbers() == expected.numbers()


def test_stopping_before_any_round_is_said_in_words(tmp_path, digits, ragged):
    spec = make_spec(model="mlp", rounds=1, fine_tune_epochs=1)
    with pytest.raises(Interrupted, match=r"^interrupted before the first round \(test\); start again to continue$"):
        run_cell(tmp_path, digits, ragged, spec, watch=Watch(stop_at=1))
    assert "stopped before the first round (test)" in (tmp_path / "run" / "log.txt").read_text()
    assert not (tmp_path / "checkpoint").exists(), "nothing to go on from"
    assert run_cell(tmp_path, digits, ragged, spec).summary["rounds_done"] == 1
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signals_are_requests_while_a_run_lasts(number):
    received = []
    before = signal.signal(number, lambda *_: received.append("outside"))
    try:
        with StopRequest() as stop:
            assert stop.reason() is None
            os.kill(os.getpid(), number)
            assert stop.reason() == signal.Signals(number).name
            assert not received
        os.kill(os.getpid(), number)
        assert received == ["outside"], "afterwards the signal is again whatever it was"
    finally:
        signal.signal(number, before)


def test_a_second_ctrl_c_is_no_request(ctrl_c):
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.reason() == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_that_a_script_keeps_from_its_background_jobs_is_no_request():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.reason() is None
    finally:
        signal.signal(signal.SIGINT, before)


CONFIG = """
name: stopping
training: {rounds: 3, local_steps: 600, batch_size: 8, learning_rate: 0.05, momentum: 0.9}
datasets: {digits: {source: digits}}
partitions: {even: {scheme: iid, clients: 4}}
models: {mlp: {backbone: mlp}}
methods: {fedavg: {method: fedavg}}
experiments:
  only: {title: Only, cells: [{dataset: digits, partition: even, model: mlp, method: fedavg}]}
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs POSIX signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_terminated_process_stops_amid_a_round_and_resumes_equal(tmp_path, number, ctrl_c):
    """Also: while the process lives, a second one on the same folder waits, and gives up when its time is over.

    However each of them spells the folder.
    """
    (tmp_path / "config.yaml").write_text(CONFIG)

    def arguments(out):
        return (
            f"train --config {tmp_path}/config.yaml --results {tmp_path}/results --checkpoints {tmp_path}/checkpoints "
            f"--dataset digits --partition even --model mlp --method fedavg --device cpu --threads 1 --out {out}"
        ).split()

    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    runner = CliRunner()
    assert runner.invoke(cli, arguments(whole), obj={}, catch_exceptions=False).exit_code == 0

    process = subprocess.Popen(
        [sys.executable, "-m", "fedbench", *arguments(resumed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in process.stderr:
            if " round 0/3" in line:
                break
        process.send_signal(signal.SIGSTOP)  # so that it cannot end before the second one has tried
        second = arguments(os.path.relpath(resumed))
        with pytest.raises(FedbenchError, match="another process is still making it; start again later"):
            runner.invoke(cli, [*second, "--time-limit", "0.01"], obj={}, catch_exceptions=False)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 75, errors
    name = signal.Signals(number).name
    assert f"interrupted after round 0 ({name})" in errors, "it did not finish the round that it was in"
    assert "Traceback" not in errors
    assert [path.name for path in resumed.iterdir()] == ["log.txt"]
    assert (resumed / "log.txt").read_text().endswith(f" stopped after round 0 ({name})\n")

    (tmp_path / "link").symlink_to(resumed)
    assert runner.invoke(cli, arguments(tmp_path / "link"), obj={}, catch_exceptions=False).exit_code == 0
    for name in ("rounds.csv", "clients.csv"):
        tables = [
            [{c: v for c, v in row.items() if not c.startswith("seconds_")} for row in read_csv(folder / name)]
            for folder in (whole, resumed)
        ]
        assert tables[0] == tables[1]
    assert "continuing after round" in (resumed / "log.txt").read_text()
