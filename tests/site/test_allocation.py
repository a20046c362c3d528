"""When a run in a SLURM job stops; the questions to a real SLURM are in tests/slurm."""

import base64
import json
import time
import zlib

import pytest

from fedbench.site import allocation
from fedbench.site.programs import Answer


@pytest.fixture(autouse=True)
def outside(monkeypatch):
    for variable in ("SLURM_JOB_ID", "SLURM_JOB_END_TIME", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("45\n", 45),
        ("3:05", 185),
        ("2:00:00", 7200),
        ("1-00:00:10", 86410),
        ("UNLIMITED\n", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_times_of_squeue(text, expected):
    assert allocation.seconds(text) == expected


def test_no_limit_outside_of_a_job():
    assert allocation.time_limit() is None


def test_the_end_in_the_environment_comes_first(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 1000))
    monkeypatch.setattr(allocation, "ask", lambda *_: pytest.fail("SLURM was asked"))
    assert allocation.time_limit() == pytest.approx(1000 - allocation.MARGIN, abs=2)


def test_an_end_that_is_over_is_not_this_jobs(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_END_TIME", "100")
    monkeypatch.setattr(allocation, "ask", lambda *_: Answer(1, "", "Invalid job id specified"))
    assert allocation.time_limit() is None


@pytest.mark.parametrize(
    ("answer", "expected"), [("1:40", 80.0), ("1:00:00", 3540.0), ("UNLIMITED", None), ("0:00", 0.0)]
)
def test_otherwise_slurm_is_asked(monkeypatch, answer, expected):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    asked = []
    monkeypatch.setattr(allocation, "ask", lambda command, _: asked.append(command) or Answer(0, answer, ""))
    assert allocation.time_limit() == expected
    assert "--jobs=7" in asked[0]


@pytest.mark.parametrize("form", ["--slurm-jobstep-array-execs={}", "--slurm-jobstep-array-execs '{}'"])
def test_a_task_of_an_array_finds_its_own_command(form, monkeypatch):
    others = {str(task): zlib.compress(f"snakemake --target-jobs 'run:seed={task}'".encode()).hex() for task in (6, 7)}
    payload = form.format(base64.b64encode(json.dumps(others).encode()).decode())
    arguments = ["snakemake", "--target-jobs", "run:seed=5", *payload.split(), "--mode", "remote"]
    assert allocation.array_task(arguments) is None, "outside of arrays"
    for task in (6, 7):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(task))
        assert allocation.array_task(arguments) == f"snakemake --target-jobs 'run:seed={task}'"
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "5")
    assert allocation.array_task(arguments) is None, "the first task has the command already"
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "6")
    assert allocation.array_task(["snakemake", "--target-jobs", "run:seed=6"]) is None, "within its own command"
