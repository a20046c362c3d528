"""What the workflow and `fedbench status` say after data, a partition, a base or a run were replaced.

All tests share one finished run of a config with made-up images; each leaves things as it found them.
"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_workflow import planned, snakemake

from fedbench.files.io import read_json, read_sealed

CONFIG = """
name: replaced
results: results
seeds: [0]
training: {rounds: 1, batch_size: 8}
datasets: {shapes: {source: image-folder, path: shapes}}
partitions: {iid: {scheme: iid, clients: 2}}
bases: {weights: {kind: file, path: weights.safetensors}}
models:
  random: {backbone: mlp, hidden: 4}
  given: {backbone: mlp, hidden: 4, base: weights}
methods: {fedavg: {method: fedavg}}
experiments:
  main:
    title: Main
    question: Which one?
    reference: fedavg
    cells: [{dataset: shapes, partition: iid, model: [random, given], method: fedavg}]
"""
RUNS = {"random/fedavg/seed0", "given/fedavg/seed0"}
ANALYSIS = {"aggregate": 1, "report": 1, "all": 1}
SETTLED = "Nothing to be done"

pytestmark = pytest.mark.xdist_group("workflow-identity")


def draw_images(folder: Path, seed: int) -> None:
    """Two classes of 20 images; another seed has the same names and sizes, and other pixels."""
    noise = np.random.default_rng(seed)
    for name, brightness in (("dark", 60), ("light", 180)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(20):
            pixels = noise.integers(brightness, brightness + 50, (4, 4, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.bmp")


def draw_weights(folder: Path, seed: int) -> None:
    """Weights for the model, as a file from elsewhere."""
    from safetensors.numpy import save_file
    from support import Entry, parse_entry

    from fedbench.models.make_model import make_model

    model: Entry = parse_entry("models", "m", {"backbone": "mlp", "hidden": 4})
    state = make_model(model, (3, 4, 4), 2, seed=seed).state_dict()
    save_file({name: leaf.numpy() for name, leaf in state.items()}, folder / "weights.safetensors")


def fedbench(folder: Path, command: str, *arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "fedbench", command, "--config", "config.yaml", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "FEDBENCH_DEVICE": "cpu"},
    )


def states(folder: Path) -> dict[str, tuple[str, str]]:
    """State and detail of each run."""
    runs = json.loads(fedbench(folder, "status", "--json").stdout)["runs"]
    return {run["run"].removeprefix("shapes/iid/"): (run["state"], run["detail"]) for run in runs}


def plan(folder: Path, *arguments) -> tuple[dict[str, int], set[str]]:
    return planned(folder, *arguments, config=folder / "config.yaml")


def make(folder: Path, *arguments) -> str:
    result = snakemake(folder, *arguments, config=folder / "config.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def folder_with_config(folder: Path) -> Path:
    (folder / "config.yaml").write_text(CONFIG)
    draw_images(folder / "data/shapes", seed=0)
    draw_weights(folder / "data", seed=5)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = folder_with_config(tmp_path_factory.mktemp("identity"))
    make(folder)
    return folder


@contextmanager
def replaced(path: Path):
    """Put everything back afterwards, times included."""
    kept = path.parent / "kept"
    shutil.copytree(path, kept / path.name)
    try:
        yield
    finally:
        shutil.rmtree(path)
        os.replace(kept / path.name, path)
        kept.rmdir()


def test_what_is_there_is_done(finished):
    assert plan(finished) == ({}, set())
    assert states(finished) == dict.fromkeys(RUNS, ("done", ""))


def test_replaced_images_are_prepared_again_and_everything_after_them(finished):
    train = ("train", "--dataset", "shapes", "--partition", "iid", "--model", "random", "--method", "fedavg")
    with replaced(finished / "data"):
        draw_images(finished / "data/shapes", seed=1)
        jobs, runs = plan(finished)
        assert jobs == {"prepare": 1, "partition": 1, "base": 2, "run": 2, **ANALYSIS}
        assert runs == RUNS
        refused = fedbench(finished, *train)
        assert refused.returncode == 1
        assert "results/data/shapes: the raw data below data changed since they were prepared" in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert plan(finished) == ({}, set()), "the same contents again, written later"


def test_raw_data_that_are_gone_are_not_missed(finished):
    os.replace(finished / "data", finished / "elsewhere")
    try:
        assert plan(finished) == ({}, set())
        assert {state for state, _ in states(finished).values()} == {"done"}
    finally:
        os.replace(finished / "elsewhere", finished / "data")


def test_a_replaced_file_of_weights_makes_its_base_again(finished):
    with replaced(finished / "data"):
        draw_weights(finished / "data", seed=6)
        jobs, runs = plan(finished)
        assert (jobs, runs) == ({"base": 1, "run": 1, **ANALYSIS}, {"given/fedavg/seed0"})


def test_a_run_by_hand_with_another_spec_is_made_again(finished, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    arguments = ["--dataset", "shapes", "--partition", "iid", "--model", "random", "--method", "fedavg"]
    by_hand = fedbench(folder, "train", *arguments, "--set", "training.rounds=2", "--overwrite")
    assert by_hand.returncode == 0, by_hand.stderr
    outdated = ("outdated", "results made by another spec than the config's")
    assert states(folder)["random/fedavg/seed0"] == outdated
    assert plan(folder) == ({"run": 1, **ANALYSIS}, {"random/fedavg/seed0"})
    only_other = plan(folder, "results/runs/shapes/iid/given/fedavg/seed0/summary.json")
    assert only_other == ({}, set()), "nothing that was not asked for"
    output = make(folder)
    assert "random/fedavg/seed0/summary.json (made by another spec than the config's)" in output
    assert SETTLED in make(folder)
    assert {state for state, _ in states(folder).values()} == {"done"}


def test_inputs_made_by_hand_from_another_spec_are_made_again(finished, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    other = ["--set", "partitions.iid.validation=0.3"]
    assert fedbench(folder, "partition", "--dataset", "shapes", "--partition", "iid", *other).returncode == 0
    jobs, _ = plan(folder)
    assert jobs == {"partition": 1, "run": 2, **ANALYSIS}
    assert set(states(folder).values()) == {("outdated", "results made from another partition")}


def test_runs_of_other_data_are_not_done_where_partition_and_weights_came_out_the_same(finished, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    draw_images(folder / "data/shapes", seed=1)
    inputs = ["results/partitions/shapes/iid/seed0/partition.npz", "results/bases/shapes/random/base.safetensors"]
    before = [(folder / name).read_bytes() for name in inputs]
    make(folder, "--forcerun", "prepare", "--", *inputs)
    assert [(folder / name).read_bytes() for name in inputs] == before
    assert states(folder)["random/fedavg/seed0"] == ("outdated", "results made from other data")
    refused = fedbench(folder, "aggregate")
    assert refused.returncode == 1
    assert "the first is shapes/iid/random/fedavg/seed0 (made from other data)" in refused.stderr
    jobs, runs = plan(folder)
    assert (jobs["run"], runs) == (2, RUNS)
    make(folder)
    data = read_json(folder / "results/data/shapes/dataset.json")["sha256"]
    for run in RUNS:
        assert read_sealed(folder / f"results/runs/shapes/iid/{run}/summary.json")["data_sha256"] == data
