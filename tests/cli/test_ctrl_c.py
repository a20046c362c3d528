"""Ctrl-C: one line and status 130, whatever the command was doing; what a run does is in engine/test_stopping.py."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from fedbench.analysis import tables
from fedbench.bases import central
from fedbench.cli import commands as cli
from fedbench.data import _decode

SMOKE = Path(__file__).parents[2] / "workflow/configs/smoke.yaml"
LINE = "interrupted by Ctrl-C; start again to go on"


def press(*_, **__) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def first_press(function):
    """The function, but that Ctrl-C is pressed when it is called."""

    def pressed(*arguments, **keywords):
        press()
        return function(*arguments, **keywords)

    return pressed


@pytest.fixture
def interrupted(tmp_path, monkeypatch, capsys, ctrl_c):
    """Run a command in a folder of its own; it has to end as it should on Ctrl-C. Returns what it said."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> list[str]:
        with pytest.raises(SystemExit) as end:
            cli.main([*arguments, "--config", str(SMOKE)])
        assert end.value.code == 130
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "for whoever called it"
        captured = capsys.readouterr()
        assert captured.out == ""
        return [line for line in captured.err.splitlines() if line]

    return run


def test_prepare_leaves_nothing_half_made(interrupted, monkeypatch, tmp_path):
    for number in range(8):
        place = tmp_path / f"raw/images/{'ab'[number % 2]}/{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(place)
    monkeypatch.setattr(_decode, "decode", first_press(_decode.decode))
    source = "datasets.digits={source: image-folder, path: images}"
    said = interrupted("prepare", "--dataset", "digits", "--data-root", "raw", "--set", source)
    assert said == ["preparing data set digits -> results/smoke/data/digits", LINE]
    assert list((tmp_path / "results/smoke/data").iterdir()) == []


def test_pretraining_goes_on_from_its_last_epoch(interrupted, monkeypatch, tmp_path):
    first = central.CentralTraining._epoch
    others = first_press(first)

    def epoch(training, number):
        return (others if number else first)(training, number)

    monkeypatch.setattr(central.CentralTraining, "_epoch", epoch)
    command = ["pretrain", "--dataset", "digits", "--model", "tiny-resnet", "--device", "cpu", "--threads", "1"]
    assert interrupted(*command)[-1] == LINE
    assert not list((tmp_path / "results/smoke").glob("bases/digits/*"))
    assert [path.name for path in tmp_path.rglob("checkpoints/**/*.safetensors")] == [central.CHECKPOINT]


def test_aggregate(interrupted, monkeypatch):
    monkeypatch.setattr(tables, "aggregate", first_press(lambda *_, **__: []))
    assert interrupted("aggregate") == [LINE]


def test_an_interruption_that_a_library_takes_for_a_failure(interrupted, monkeypatch):
    def mistaken(*_, **__):
        try:
            press()
        except KeyboardInterrupt:
            raise ImportError("numpy failed to import") from None

    monkeypatch.setattr(tables, "aggregate", mistaken)
    assert interrupted("aggregate") == [LINE]


CLEANING = """
import os, signal
from fedbench.cli import commands as cli
from fedbench.config import plan

def match(*_):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGINT)
        print("still here")

plan.Plan.match = match
cli.main(["cells", "--config", "CONFIG"])
"""


def test_a_second_ctrl_c_ends_what_the_first_one_left(ctrl_c):
    code = CLEANING.replace("CONFIG", str(SMOKE))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_background_job_of_a_script_is_not_meant(monkeypatch, capsys):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        monkeypatch.setattr(tables, "aggregate", first_press(lambda *_, **__: ["done"]))
        cli.main(["aggregate", "--config", str(SMOKE)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().out == "done\n"
