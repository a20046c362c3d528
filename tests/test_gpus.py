"""Each run its own GPU: with pretended names, since locks and environment variables do not need the real ones."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedbench.errors import FedbenchError
from fedbench.gpus import listed, own_gpu, visible

ROOT = Path(__file__).parents[1]
SMOKE = ROOT / "workflow/configs/smoke.yaml"

# Takes a GPU, writes its name and the times of taking and leaving it, and holds it for a moment.
JOB = """
import os, sys, time
from fedbench.gpus import own_gpu
with own_gpu("auto", lambda line: print(line, file=sys.stderr, flush=True)) as name:
    taken = time.monotonic()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == name
    print(name, flush=True)
    time.sleep(float(sys.argv[1]))
    print(taken, time.monotonic())
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """No variable of the machine that runs the tests; locks of their own."""
    for variable in ("FEDBENCH_GPUS", "CUDA_VISIBLE_DEVICES", "FEDBENCH_DEVICE", "SLURM_JOB_ID"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def job(seconds: float) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", JOB, str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"CUDA_VISIBLE_DEVICES": "3,5"}, ["3", "5"]),
        ({"CUDA_VISIBLE_DEVICES": "3,5", "FEDBENCH_GPUS": "5, 5"}, ["5", "5"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
        ({"CUDA_VISIBLE_DEVICES": "3,5", "FEDBENCH_DEVICE": "cpu"}, []),
    ],
)
def test_which_gpus_are_visible(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert visible() == expected


def test_otherwise_the_driver_is_asked(monkeypatch, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "GPU 0: A card (UUID: GPU-1a)"\necho "GPU 1: A card (UUID: GPU-2b)"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert visible() == ["GPU-1a", "GPU-2b"]
    program.unlink()
    assert visible() == []


def test_slices_stand_for_their_gpu():
    text = (
        "GPU 0: NVIDIA A100 (UUID: GPU-1a)\n  MIG 3g.20gb Device 0: (UUID: MIG-11)\n"
        "  MIG 3g.20gb Device 1: (UUID: MIG-12)\nGPU 1: NVIDIA A100 (UUID: GPU-2b)\n"
    )
    assert listed(text) == ["MIG-11", "MIG-12", "GPU-2b"]
    assert listed("No devices were found\n") == []


@pytest.mark.parametrize(
    ("device", "variables"),
    [
        ("cpu", {"FEDBENCH_GPUS": "7,9"}),
        ("cuda:1", {"FEDBENCH_GPUS": "7,9"}),
        ("auto", {"FEDBENCH_GPUS": "7"}),
        ("auto", {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_ID": "12"}),
    ],
)
def test_nothing_is_chosen_where_there_is_no_choice(monkeypatch, device, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    with own_gpu(device, pytest.fail) as name:
        assert name is None
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


def test_the_environment_is_as_before_afterwards(monkeypatch):
    monkeypatch.setenv("FEDBENCH_GPUS", "7,9")
    lines = []
    with own_gpu("cuda", lines.append) as name:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == name == "7"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert lines == ["using GPU 7 of 7,9"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    with pytest.raises(ZeroDivisionError), own_gpu("cuda", lines.append):
        raise ZeroDivisionError
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4"


def test_jobs_side_by_side_have_different_gpus_and_the_rest_wait(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,9")
    jobs = [job(1.0) for _ in range(4)]
    spans: dict[str, list[tuple[float, float]]] = {"7": [], "9": []}
    errors = ""
    for process in jobs:
        output, complaints = process.communicate(timeout=60)
        assert process.returncode == 0, complaints
        name, taken, left = output.split()
        spans[name].append((float(taken), float(left)))
        errors += complaints
    for held in spans.values():
        assert len(held) == 2
        (_, first_left), (second_taken, _) = sorted(held)
        assert first_left <= second_taken, "two jobs had the same GPU at the same time"
    assert errors.count("waiting for one of the GPUs 7,9") == 2


def test_a_gpu_named_twice_takes_two_jobs(monkeypatch):
    monkeypatch.setenv("FEDBENCH_GPUS", "7,7")
    with own_gpu("auto", lambda _: None) as first, own_gpu("auto", lambda _: None) as second:
        assert (first, second) == ("7", "7")


def test_a_killed_job_gives_its_gpu_back(monkeypatch):
    monkeypatch.setenv("FEDBENCH_GPUS", "7,9")
    with own_gpu("auto", lambda _: None):
        process = job(600)
        assert process.stdout.readline().strip() == "9"
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        started = time.monotonic()
        with own_gpu("auto", lambda _: None) as name:
            assert name == "9"
        assert time.monotonic() - started < 5


def test_a_folder_of_locks_that_is_someone_elses(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDBENCH_GPUS", "7,9")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"fedbench-gpus-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FedbenchError, match="belongs to someone else"), own_gpu("auto", lambda _: None):
        pass


def snakemake(folder: Path, *arguments: str, gpus: str) -> str:
    """Call Snakemake with the local profile and pretended GPUs; returns what it says."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)]
    options = ["--configfile", str(SMOKE), "--profile", str(ROOT / "workflow/profiles/local")]
    result = subprocess.run(
        [*command, *options, *arguments], capture_output=True, text=True, env={**os.environ, "FEDBENCH_GPUS": gpus}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_local_profile_plans_for_the_visible_gpus(tmp_path):
    target = "results/smoke/runs/digits/dirichlet/tiny-vit/base/seed0/summary.json"
    assert snakemake(tmp_path, "--dry-run", target, gpus="7,9").count("gpu=1") == 2  # base and run
    assert "gpu=" not in snakemake(tmp_path, "--dry-run", target, gpus="")


def test_jobs_of_the_local_profile_say_which_gpu_they_have(tmp_path):
    run = "digits/dirichlet/tiny-resnet/base/seed0"
    text = snakemake(tmp_path, f"results/smoke/runs/{run}/summary.json", gpus="7,9")
    assert re.search(r"^Provided resources: gpu=\D*2\b", text, re.MULTILINE), text
    for log in ("base/digits/tiny-resnet", f"run/{run}"):
        lines = (tmp_path / f"results/smoke/logs/{log}.log").read_text().splitlines()
        assert sum(line in ("using GPU 7 of 7,9", "using GPU 9 of 7,9") for line in lines) == 1
