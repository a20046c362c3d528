"""Raw data, results and checkpoints lie apart, however they are spelt; what every command says if they do not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedbench.cli import commands as cli
from fedbench.config.places import check
from fedbench.config.plan import Plan
from fedbench.config.reading import load
from fedbench.errors import FedbenchError

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "workflow/configs/smoke.yaml"
FOLDERS = ["datasets.digits={source: image-folder, path: office-home}"]
WEIGHTS = ["bases.mine={kind: file, path: mine/vit.safetensors}"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    """A folder of its own, with raw data in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDBENCH_DATA", raising=False)
    (tmp_path / "data/office-home").mkdir(parents=True)


def refusal(results="results", assignments=(), **places) -> str:
    with pytest.raises(FedbenchError) as caught:
        check(Plan(load([SMOKE], assignments), Path(results)), **{name: Path(path) for name, path in places.items()})
    return str(caught.value)


@pytest.mark.parametrize(
    ("expected", "arguments"),
    [
        ("results' data/ (data) is also the data root (data)", {"results": "."}),
        ("results' data/ (data) contains the data root (data/raw)", {"results": ".", "data_root": "data/raw"}),
        ("results' runs/ (data/mine/runs) lies in the data root (data)", {"results": "data/mine"}),
        ("results' runs/ (data/runs) lies in the data root", {"results": "data"}),
        ("is also the data root", {"results": "sub/.."}),
        ("is also the data root", {"results": "link"}),
        ("lies in the source of data set digits (/)", {"assignments": [FOLDERS[0].replace("office-home", "/")]}),
        (
            "results' data/ (results/data) contains the source of data set digits",
            {"assignments": [FOLDERS[0].replace("office-home", "../results/data/raw")]},
        ),
        (
            "results' bases/ (results/bases) contains the weights of base mine",
            {"assignments": ["bases.mine={kind: file, path: ../results/bases/a/b/base.safetensors}"]},
        ),
        ("results' runs/ (results/runs) is also the checkpoints folder", {"checkpoints": "results/runs"}),
        (
            "results' runs/ (results/runs) lies in the checkpoints folder (.)",
            {"checkpoints": ".", "data_root": "../raw"},
        ),
        ("the checkpoints folder (data/saved) lies in the data root (data)", {"checkpoints": "data/saved"}),
        ("the checkpoints folder (.) contains the data root", {"checkpoints": ".", "results": "../r"}),
        ("--out (data/office-home) lies in the data root", {"out": "data/office-home"}),
        ("--out (data) is also the data root", {"out": "data"}),
        ("--out (results/data/digits) lies in the results' data/", {"out": "results/data/digits"}),
        ("--out (checkpoints/x) lies in the checkpoints folder", {"out": "checkpoints/x"}),
    ],
)
def test_places_that_overlap(expected, arguments, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to(".")
    message = refusal(**arguments)
    assert expected in message
    assert "; give " in message


def test_one_folder_under_two_names(tmp_path):
    """What the file system takes for one folder is one, as with bind mounts and where case does not count."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results/data").symlink_to("../data/office-home")
    assert "lies in the data root" in refusal()


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"results": "results/demo", "out": "results/trial"},
        {"results": ".", "data_root": "../raw"},
        {"results": ".", "data_root": "raw"},
        {"results": "data-of-mine"},
        {"out": "."},
        {"out": "results/runs/trial"},
        {"out": "elsewhere", "checkpoints": "results/checkpoints"},
        {"assignments": WEIGHTS},
        {"assignments": FOLDERS, "checkpoints": "/tmp/checkpoints"},
    ],
)
def test_places_that_lie_apart(arguments):
    names = {name: Path(path) for name, path in arguments.items() if name not in ("results", "assignments")}
    check(Plan(load([SMOKE], arguments.get("assignments", ())), Path(arguments.get("results", "results"))), **names)


@pytest.mark.parametrize("command", ["cells", "status", "aggregate", "plot", "report", "doctor"])
def test_every_command_refuses(command, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--config", str(SMOKE), "--set", "results=."])
    assert end.value.code == 1
    captured = capsys.readouterr()
    lines = [line for line in (captured.out + captured.err).splitlines() if "is also the data root" in line]
    assert len(lines) == 1
    assert lines[0].startswith("missing  config: " if command == "doctor" else "error: ")


def test_the_environments_data_root_counts(monkeypatch, capsys):
    monkeypatch.setenv("FEDBENCH_DATA", "results")
    with pytest.raises(SystemExit):
        cli.main(["cells", "--config", str(SMOKE), "--results", "results"])
    assert "lies in the data root (results)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (".", "the results' data/ (data) is also the data root (data); give other"),
        ("results", "results/report.html: not made by fedbench; it is left as it is"),
    ],
)
def test_the_workflow_refuses(results, expected, tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/report.html").write_text("mine")
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(tmp_path)]
    done = subprocess.run(
        [*command, "--cores", "1", "--dry-run", "--configfile", str(SMOKE), "--config", f"results={results}"],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert done.returncode == 1
    assert expected in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
