"""The command line: messages, exit statuses, speed of what does not compute."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from fedbench.cli import commands as cli
from fedbench.engine.interrupt import Interrupted
from fedbench.registry import CHANNELS, METHODS

ROOT = Path(__file__).parents[2]
SMOKE = str(ROOT / "workflow/configs/smoke.yaml")


@pytest.fixture
def fedbench(capsys):
    """Run the command line in this process; returns (status, output, errors)."""

    def run(*arguments):
        try:
            cli.main([str(argument) for argument in arguments])
            status = 0
        except SystemExit as end:
            status = end.code
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def fails(result) -> str:
    """The one line that a failed command says."""
    status, _, errors = result
    assert status == 1
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    return errors.strip()


def seconds(*command: str) -> float:
    """The fastest of five starts."""

    def once():
        started = time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        return time.perf_counter() - started

    return min(once() for _ in range(5))


def test_help_is_instant():
    assert seconds("-m", "fedbench", "--help") - seconds("-c", "pass") < 0.35


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "methods", "--options"],
        ["cells", "--config", str(ROOT / "config.yaml")],
        ["schema"],
        ["train", "--help"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_reading_a_config_imports_no_torch(arguments):
    code = "import sys; from fedbench.cli.commands import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)


def test_help_documents_exit_statuses(fedbench):
    status, output, _ = fedbench("--help")
    assert status == 0
    assert all(code in " ".join(output.split()) for code in ("0 done", "1 an error", "2 wrong usage", "75", "130"))


@pytest.mark.parametrize("kind", ["methods", "channels", "datasets", "partitions", "models", "figures"])
def test_lists_have_one_line_for_each_entry(fedbench, kind):
    from fedbench.cli.listing import KINDS

    status, output, _ = fedbench("list", kind)
    lines = output.splitlines()
    assert status == 0
    assert [line.split()[0] for line in lines] == sorted(KINDS[kind])
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines), "an entry has no summary"


def test_lists_show_options_with_type_default_and_meaning(fedbench):
    _, output, _ = fedbench("list", "methods", "--options")
    assert "    alignment: one of base, global, geomean, floor, none = base" in output
    _, table, _ = fedbench("list", "channels", "--markdown")
    assert table.count("\n") == 2 + len(CHANNELS)


def test_cells_are_targets(fedbench):
    _, output, _ = fedbench("cells", "--config", SMOKE)
    assert len(output.splitlines()) == 7
    assert "results/smoke/runs/digits/dirichlet/tiny-vit/fedsdg/seed0/summary.json" in output.splitlines()
    _, output, _ = fedbench("cells", "--config", SMOKE, "--match", "*/fedavg*", "--results", "elsewhere")
    assert output.splitlines() == [
        f"elsewhere/runs/digits/dirichlet/tiny-resnet/{name}/seed0/summary.json" for name in ("fedavg", "fedavg-top-10")
    ]
    _, output, _ = fedbench("cells", "--config", SMOKE, "--experiment", "personalisation")
    assert len(output.splitlines()) == 3


def test_impossible_cells_are_listed_and_end_with_the_reason(fedbench):
    grid = "{dataset: digits, partition: dirichlet, model: [tiny-vit, tiny-resnet], method: [fa-lora, fedsdg]}"
    impossible = ["cells", "--config", SMOKE, "--set", f"experiments.personalisation.cells=[{grid}]"]
    result = fedbench(*impossible)
    assert "digits/dirichlet/tiny-resnet/fa-lora/seed0: method fa-lora trains LoRA, but" in fails(result)
    assert "tiny-resnet/fedsdg/seed0/summary.json" in result[1]
    assert fedbench("status", *impossible[1:])[2] == result[2], "the same line as elsewhere"
    assert fedbench(*impossible, "--match", "*/tiny-vit/*")[0] == 0, "only what is asked for counts"


def test_later_configs_and_assignments_win(fedbench, tmp_path):
    more = tmp_path / "more.yaml"
    more.write_text("seeds: [3, 4]\n")
    _, output, _ = fedbench("cells", "--config", SMOKE, "--config", more)
    assert output.count("seed3") == output.count("seed4") == 7
    _, output, _ = fedbench("cells", "--config", SMOKE, "--config", more, "--set", "seeds=[5]")
    assert output.count("seed5") == 7


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["cells", "--config", "nowhere.yaml"], "nowhere.yaml: cannot read this config"),
        (["cells", "--config", SMOKE, "--set", "methods.fedsdg.allignment=base"], "did you mean 'alignment'?"),
        (
            ["cells", "--config", SMOKE, "--set", "methods.fedsdg.allignment=base"],
            "methods.fedsdg.allignment: unknown key",
        ),
        (["cells", "--config", SMOKE, "--set", "methods.fedavg.method=fedagv"], "did you mean 'fedavg'?"),
        (["cells", "--config", SMOKE, "--set", "partitions.dirichlet.alpha=-1"], "partitions.dirichlet.alpha: "),
        (["cells", "--config", SMOKE, "--set", "training.rouns=3"], "config.training.rouns: unknown key"),
        (["cells", "--config", SMOKE, "--set", "rounds"], "expected key=value"),
        (["cells", "--config", SMOKE, "--match", "*/fedsgd/*"], "did you mean 'fedsdg'?"),
        (["cells", "--config", SMOKE, "--experiment", "personalization"], "did you mean 'personalisation'?"),
        (["prepare", "--config", SMOKE, "--dataset", "digit"], "unknown dataset 'digit'; did you mean 'digits'?"),
        (["pretrain", "--config", SMOKE, "--dataset", "digits", "--model", "tiny-vlt"], "did you mean 'tiny-vit'?"),
        (["plot", "--config", SMOKE, "--experiment", "comunication"], "did you mean 'communication'?"),
        (["aggregate", "--config", SMOKE, "--results", "nothing-here"], "no finished run"),
    ],
)
def test_mistakes_end_with_one_line(fedbench, tmp_path, monkeypatch, arguments, expected):
    monkeypatch.chdir(tmp_path)
    assert expected in fails(fedbench(*arguments))
    assert list(tmp_path.iterdir()) == []


def train(*more, method="head-only", model="tiny-resnet"):
    return [
        *("train", "--config", SMOKE, "--dataset", "digits", "--partition", "dirichlet", "--model", model),
        *("--method", method, "--threads", "1", "--device", "cpu", *more),
    ]


def test_wrong_names_in_train(fedbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "did you mean 'fedsdg'?" in fails(fedbench(*train(method="fedsgd")))
    assert "no LoRA sites" in fails(fedbench(*train(method="fa-lora")))
    status, _, errors = fedbench(*train("--chunk", "none", method="fedavg"))
    assert (status, "neither 'auto' nor a positive number" in errors) == (2, True)
    status, _, errors = fedbench("train", "--config", SMOKE)
    assert (status, "Missing option '--dataset'" in errors) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_not_there(fedbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "--device cuda:99" in fails(fedbench(*train("--device", "cuda:99", method="fedavg")))
    assert "--device cuda:²" in fails(fedbench(*train("--device", "cuda:²", method="fedavg")))
    assert "--device gpu" in fails(fedbench(*train("--device", "gpu", method="fedavg")))


def test_debug_keeps_the_traceback(fedbench):
    from fedbench.errors import FedbenchError

    for arguments in (["--debug", "cells"], ["cells", "--debug"]):
        with pytest.raises(FedbenchError):
            fedbench(*arguments, "--config", "nowhere.yaml")


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (Interrupted(7, "SIGTERM"), 75, "interrupted after round 7 (SIGTERM); start again to continue\n"),
        (Interrupted(-1, "SIGTERM"), 75, "interrupted before the first round (SIGTERM); start again to continue\n"),
        (OSError(28, "No space left on device"), 1, "error: [Errno 28] No space left on device\n"),
        (KeyboardInterrupt(), 130, "\ninterrupted by Ctrl-C; start again to go on\n"),
    ],
)
def test_exit_statuses(fedbench, monkeypatch, error, status, message):
    def fail(*_):
        raise error

    monkeypatch.setattr("fedbench.config.plan.Plan.match", fail)
    assert fedbench("cells", "--config", SMOKE) == (status, "", message)


@pytest.mark.parametrize(
    "ask",
    [lambda: np.empty(2**50), lambda: torch.empty(2**50), lambda: fail_with(torch.OutOfMemoryError("CUDA\nfull"))],
)
def test_a_lack_of_memory_is_one_line(fedbench, monkeypatch, ask):
    monkeypatch.setattr("fedbench.config.plan.Plan.match", lambda *_: ask())
    assert "out of memory (" in fails(fedbench("cells", "--config", SMOKE))


def fail_with(error):
    raise error


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("--chunk", ["none", "0", "-1", "1.5", "²", ""]),
        ("--threads", ["0", "-1", "x", "²", "100000"]),
        ("--seed", ["-1", "x", "1.5"]),
        ("--time-limit", ["0", "-1", "nan", "x"]),
        *((flag, [""]) for flag in ("--out", "--results", "--checkpoints", "--data-root")),
    ],
)
def test_values_that_mean_nothing_are_wrong_usage(fedbench, tmp_path, monkeypatch, flag, values):
    monkeypatch.chdir(tmp_path)
    for value in values:
        status, _, errors = fedbench(*train(flag, value, method="fedavg"))
        assert (status, flag in errors) == (2, True), errors
    assert list(tmp_path.iterdir()) == []


def test_bugs_keep_their_traceback(fedbench, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("fedbench.config.plan.Plan.match", fail)
    with pytest.raises(ZeroDivisionError):
        fedbench("cells", "--config", SMOKE)


def test_train_makes_its_inputs_once_and_says_so(fedbench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # a cell that is in no experiment, with overrides of the run and of the method
    trial = train("--set", "training.rounds=1", "--set", "methods.trial={method: head-only}", method="trial")
    status, output, errors = fedbench(*trial, "--out", "trial")
    assert status == 0, errors
    assert output == "trial/summary.json\n"
    for line in (
        "preparing data set digits",
        "  1,797 images of 8x8 pixels",
        "partitioning digits by dirichlet",
        "making the base of tiny-resnet",
    ):
        assert errors.count(line) == 1
    summary = json.loads(Path("trial/summary.json").read_text())
    assert summary["cell"]["method"] == "trial"
    assert summary["spec"]["training"]["rounds"] == 1
    assert summary["threads"] == 1
    assert not list(Path("checkpoints").rglob("*.safetensors"))

    status, _, errors = fedbench(*trial, "--out", "trial")
    assert (status, errors) == (0, ""), "a complete run was started again"
    other = train("--set", "training.rounds=2", method="fedavg")
    assert "trial: holds results made by another spec than the config's" in fails(fedbench(*other, "--out", "trial"))
    assert json.loads(Path("trial/summary.json").read_text()) == summary
    status, _, errors = fedbench(*other, "--out", "trial", "--overwrite")
    assert status == 0, errors
    assert json.loads(Path("trial/summary.json").read_text())["cell"]["method"] == "fedavg"

    stale = fails(fedbench(*train("--set", "bases.public.epochs=3", method="fedavg"), "--out", "stale"))
    assert "results/smoke/bases/digits/tiny-resnet" in stale
    assert "fedbench pretrain" in stale
    assert not Path("stale").exists()


def test_schema_accepts_the_configs_and_rejects_misspelt_keys(fedbench):
    from jsonschema import Draft202012Validator

    from fedbench.config.layers import read

    _, output, _ = fedbench("schema")
    schema = json.loads(output)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for path in [ROOT / "config.yaml", *sorted((ROOT / "workflow/configs").glob("*.yaml"))]:
        assert not [error.message for error in validator.iter_errors(read(path))], path
    values = read(Path(SMOKE))
    values["methods"]["fedsdg"]["allignment"] = "base"
    assert list(validator.iter_errors(values))
    assert set(METHODS) == {
        variant["title"] for variant in schema["properties"]["methods"]["additionalProperties"]["oneOf"]
    }
