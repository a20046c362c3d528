"""Nothing that fedbench did not make is replaced or removed, whatever stage is pointed at it."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from fedbench.cli import commands as cli
from fedbench.config.plan import Plan
from fedbench.config.reading import load
from fedbench.config.spec import Cell
from fedbench.errors import FedbenchError
from fedbench.site.locking import alone

SMOKE = Path(__file__).parents[2] / "workflow/configs/smoke.yaml"
CELL = {"dataset": "digits", "partition": "dirichlet", "model": "tiny-resnet", "method": "fedavg"}
RUN = Cell(*CELL.values(), 0).path


def fedbench(capsys, command: str, *more, **names) -> tuple[int, str]:
    """Run a command of the smoke config; returns its status and what it says on standard error."""
    capsys.readouterr()
    options = [part for name, value in names.items() for part in (f"--{name}", value)]
    numbers = [] if command in ("aggregate", "plot", "report", "cells") else ["--device", "cpu", "--threads", "1"]
    try:
        cli.main([command, "--config", str(SMOKE), *options, *numbers, *map(str, more)])
    except SystemExit as end:
        return end.code, capsys.readouterr().err
    return 0, capsys.readouterr().err


def only(*names: str) -> dict[str, str]:
    return {name: CELL[name] for name in names}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with one product of each stage below ``results``."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", ["fedbench"])
        names = [part for name, value in CELL.items() for part in (f"--{name}", value)]
        cli.main(["train", "--config", str(SMOKE), "--results", "results", "--device", "cpu", "--threads", "1", *names])
    return folder


STAGES = {
    "data/digits": ("prepare", ("dataset",)),
    "partitions/digits/dirichlet/seed0": ("partition", ("dataset", "partition")),
    "bases/digits/tiny-resnet": ("pretrain", ("dataset", "model")),
    "runs/digits/dirichlet/tiny-resnet/fedavg/seed0": ("train", tuple(CELL)),
}


@pytest.mark.parametrize("place", STAGES)
def test_each_stage_leaves_a_folder_that_it_did_not_make(place, finished, tmp_path, monkeypatch, capsys):
    """One with other files, and one with files of the very names that the stage writes."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished / "results", "results")
    command, names = STAGES[place]
    folder = Path("results") / place
    written = [path.name for path in folder.iterdir()]
    for name in written:
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / name).write_text("mine")
        (folder / "sub").mkdir()
        (folder / "sub" / name).write_text("mine too")
        before = contents(folder)
        status, said = fedbench(
            capsys, command, "--results", "results", *["--overwrite"] * (command == "train"), **only(*names)
        )
        assert status == 1
        assert f"error: {folder}" in said.splitlines()[-1]
        assert "left as it is" in said
        assert contents(folder) == before
        assert [path.name for path in folder.parent.iterdir()] == [folder.name], "and no left-over lies beside it"


@pytest.mark.parametrize("place", list(STAGES)[:3])
def test_a_product_with_a_foreign_file_in_it_is_not_replaced(place, finished, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished / "results", "results")
    (Path("results") / place / "notes.txt").write_text("mine")
    before = contents(Path("results"))
    command, names = STAGES[place]
    status, said = fedbench(capsys, command, "--results", "results", **only(*names))
    assert (status, f"results/{place}/notes.txt: no part of" in said) == (1, True)
    assert contents(Path("results")) == before


@pytest.mark.parametrize("place", STAGES)
def test_earlier_products_and_empty_folders_are_written_to(place, finished, tmp_path, monkeypatch, capsys):
    """Also without one of the files, as Snakemake or a user leaves it who was told to delete what is damaged."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished / "results", "results")
    command, names = STAGES[place]
    folder = Path("results") / place
    written = {path.name for path in folder.iterdir()}
    for name in sorted(written - {"base.json"}):
        (folder / name).unlink()
        assert fedbench(capsys, command, "--results", "results", **only(*names))[0] == 0, name
        assert {path.name for path in folder.iterdir()} >= written - {"log.txt"}  # a run that is whole is left alone
    shutil.rmtree(folder)
    folder.mkdir()
    assert fedbench(capsys, command, "--results", "results", **only(*names))[0] == 0
    assert {path.name for path in folder.iterdir()} == written


def test_other_files_stay_when_each_stage_is_killed(tmp_path):
    """In the folders that it makes its own in, and in a run's folder; the next start takes its left-overs away."""
    theirs = ["data/mine/images.npy", "partitions/digits/mine.csv", "bases/digits/.mine.part", f"runs/{RUN}/notes.txt"]
    for name in theirs:
        (tmp_path / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "results" / name).write_text("mine")
    names = [part for name, value in CELL.items() for part in (f"--{name}", value)]
    command = ["train", "--config", str(SMOKE), "--results", "results", "--device", "cpu", "--threads", "1", *names]
    for last, product in {
        "dataset.json": "data",
        "partition.png": "partitions",
        "base.json": "bases",
        "clients.csv": "",
    }.items():
        script = (
            "import os, signal\nfrom fedbench.cli import commands\nreplace = os.replace\n"
            f"def killing(old, new):\n    os.path.basename(new) != {last!r} or os.kill(os.getpid(), signal.SIGKILL)\n"
            f"    replace(old, new)\nos.replace = killing\ncommands.main({command!r})"
        )
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert list((tmp_path / "results" / product).rglob(".*.fedbench-*")), "otherwise this test shows nothing"
    done = subprocess.run([sys.executable, "-m", "fedbench", *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {(tmp_path / "results" / name).read_text() for name in theirs} == {"mine"}
    assert not list(tmp_path.rglob(".*.fedbench-*"))


def test_images_in_the_place_of_prepared_data_stay(tmp_path, monkeypatch, capsys):
    """The folders of the first report: where nothing says that they overlap, the stage itself does not touch them."""
    monkeypatch.chdir(tmp_path)
    for name in ("Art/a/1", "Art/b/2", "Clipart/a/3", "Clipart/b/4"):
        place = Path(f"data/office-home/{name}.png")
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), "#553311").save(place)
    before = contents(Path("data"))
    dataset = ("--set", "datasets.digits={source: image-folder, path: office-home}", "--set", "results=.")
    sets = ("--set", "datasets.office-home={source: digits}")
    status, said = fedbench(capsys, "prepare", *dataset, dataset="digits")
    assert (status, "results' data/ (data) is also the data root (data)" in said) == (1, True)
    monkeypatch.setenv("FEDBENCH_DATA", "elsewhere")
    cell = {**CELL, "dataset": "office-home", "method": "fedavg"}
    status, said = fedbench(
        capsys, "train", *sets, "--set", "datasets.office-home.public.fraction=0.3", "--results", ".", **cell
    )
    assert (status, "data/office-home/Art: no part of a prepared data set" in said) == (1, True)
    assert contents(Path("data")) == before


def test_a_lock_is_not_taken_from_somebody_elses_file(tmp_path):
    (tmp_path / "uv.lock").write_text("mine")
    with (
        pytest.raises(FedbenchError, match=r"uv\.lock: no lock of fedbench's"),
        alone(tmp_path, tmp_path / "uv", print),
    ):
        pass
    assert (tmp_path / "uv.lock").read_text() == "mine"


def test_the_workflow_refuses_what_snakemake_would_delete(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished / "results", "results")
    plan = Plan(load([SMOKE]), Path("results"))
    fixed = ["summary.csv", "report.html", "tables/personalisation.md", "figures/personalisation/pareto.png"]
    stages = [
        *("data/digits/images.npy", "partitions/digits/dirichlet/seed0/partition.png"),
        *("bases/digits/tiny-vit/base.safetensors", f"runs/{RUN}/rounds.csv"),
    ]
    plan.check_made(f"results/{name}" for name in fixed)
    for name in [*fixed, *stages]:
        path = Path("results") / name
        if name in stages:
            shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
        with pytest.raises(FedbenchError, match=f"{name}: not made by fedbench"):
            plan.check_made(f"results/{name}" for name in fixed)
        path.unlink()
