"""The example package of examples/ keeps to its own tests, and its config runs."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples/sparse-prox"


def run(*command, cwd):
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "FEDBENCH_DEVICE": "cpu"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_own_tests_pass():
    # as a package of its own: without this project's settings of pytest
    said = run("pytest", "-q", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider", ".", cwd=EXAMPLE)
    assert "10 passed" in said


def test_its_config_trains(tmp_path):
    cell = ("--dataset", "digits", "--partition", "skewed", "--model", "mlp", "--method", "sparse-prox")
    run("fedbench", "train", "--config", EXAMPLE / "config.yaml", *cell, cwd=tmp_path)
    assert (tmp_path / "results/sparse-prox/runs/digits/skewed/mlp/sparse-prox/seed0/summary.json").exists()


def test_the_page_on_extending_shows_it():
    page = (EXAMPLE.parents[1] / "docs/extending.md").read_text(encoding="utf-8")
    for name in ("sparse_prox.py", "test_sparse_prox.py"):
        assert (EXAMPLE / name).read_text(encoding="utf-8") in page, name
