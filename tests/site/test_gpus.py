"""Each run its own GPU: with pretended names, since locks and environment variables do not need the real ones."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yte

from fedbench.cli import commands as cli
from fedbench.errors import FedbenchError
from fedbench.site.gpus import listed, named, own_gpu, resolve, visible
from fedbench.stages import choose_device

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "workflow/configs/smoke.yaml"

# Takes a GPU, writes its name and the times of taking and leaving it, and holds it for a moment.
JOB = """
import os, sys, time
from fedbench.site.gpus import own_gpu
with own_gpu("auto", lambda line: print(line, file=sys.stderr, flush=True)) as name:
    taken = time.monotonic()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == name
    print(name, flush=True)
    time.sleep(float(sys.argv[1]))
    print(taken, time.monotonic())
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """No variable and no GPU of the machine that runs the tests; locks of their own."""
    for variable in ("FEDBENCH_GPUS", "CUDA_VISIBLE_DEVICES", "FEDBENCH_DEVICE", "SLURM_JOB_ID"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("PATH", f"{driver(tmp_path / 'driver')}{os.pathsep}{os.environ['PATH']}")


def driver(folder: Path, listing: str = "") -> Path:
    """A folder for PATH with an `nvidia-smi` that says this, or that it finds nothing."""
    folder.mkdir(exist_ok=True)
    script = f"/bin/cat <<'END'\n{listing}END" if listing else "exit 9"
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    return folder


TWO = "GPU 0: A card (UUID: GPU-1a)\n  MIG 3g Device 0: (UUID: MIG-11)\nGPU 1: A card (UUID: GPU-2b)\n"


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
        ({"CUDA_VISIBLE_DEVICES": "3,-1,5"}, ["3"]),
        ({"CUDA_VISIBLE_DEVICES": "3,5", "FEDBENCH_DEVICE": "cpu"}, []),
        ({"CUDA_VISIBLE_DEVICES": "3,5", "FEDBENCH_GPUS": ""}, []),
        ({"FEDBENCH_GPUS": "10"}, ["10"]),
        ({"FEDBENCH_GPUS": "GPU-1a-2b,MIG-3c,MIG-GPU-4d/1/0"}, ["GPU-1a-2b", "MIG-3c", "MIG-GPU-4d/1/0"]),
    ],
)
def test_which_gpus_are_visible(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert visible() == expected


NONSENSE = [
    "a",
    "none",
    "0 1",
    "0;1",
    "0,-1",
    "-1",
    ",0,1",
    "0,,1",
    "0,",
    "²",
    "٣",
    "01",
    "+1",
    "1.0",
    "cuda:0",
    "GPU-",
    "0-3",
]


@pytest.mark.parametrize("text", NONSENSE)
def test_what_is_no_list_of_gpus(monkeypatch, text):
    monkeypatch.setenv("FEDBENCH_GPUS", text)
    with pytest.raises(FedbenchError, match=f"^FEDBENCH_GPUS={re.escape(text)}: .* is no GPU; give numbers or UUIDs"):
        visible()
    with pytest.raises(FedbenchError), own_gpu("auto", pytest.fail):
        pass


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1,0,0,GPU-2b,GPU-1,MIG-11", None),
        ("2", "no GPU 2 here; `nvidia-smi -L` has 0, 1"),
        ("0,99,1", "no GPU 99 here; `nvidia-smi -L` has 0, 1"),
        ("GPU-2c", "no GPU GPU-2c here; `nvidia-smi -L` has GPU-1a, MIG-11, GPU-2b"),
    ],
)
def test_gpus_that_this_machine_does_not_have(monkeypatch, tmp_path, text, complaint):
    driver(tmp_path / "driver", TWO)
    monkeypatch.setenv("FEDBENCH_GPUS", text)
    if complaint is None:
        assert named() == text.split(",")
    else:
        with pytest.raises(FedbenchError, match=complaint):
            named()


def test_otherwise_the_driver_is_asked(monkeypatch, tmp_path):
    driver(tmp_path / "driver", TWO)
    assert visible() == ["MIG-11", "GPU-2b"]
    driver(tmp_path / "driver")
    assert visible() == []
    monkeypatch.setenv("PATH", str(tmp_path))
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
        ("cuda:1", {"FEDBENCH_GPUS": ""}),
        ("auto", {}),
        ("auto", {"CUDA_VISIBLE_DEVICES": "7"}),
        ("auto", {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_ID": "12"}),
        ("auto", {"FEDBENCH_GPUS": "3", "SLURM_JOB_ID": "12"}),
    ],
)
def test_nothing_is_chosen_where_there_is_no_choice(monkeypatch, device, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    with own_gpu(device, pytest.fail) as name:
        assert name is None
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


@pytest.mark.parametrize("device", ["auto", "cuda"])
@pytest.mark.parametrize(
    ("text", "shown", "line"), [("3", "3", "using GPU 3 of 3"), ("", "", "using no GPU, FEDBENCH_GPUS is empty")]
)
def test_one_name_or_none_is_what_the_process_sees(monkeypatch, device, text, shown, line):
    monkeypatch.setenv("FEDBENCH_GPUS", text)
    monkeypatch.setenv("FEDBENCH_DEVICE", "cpu")  # of which --device takes the place
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    lines = []
    with own_gpu(device, lines.append) as name:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == name == shown
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert lines == [line]


@pytest.mark.parametrize(
    ("name", "found", "device"),
    [("auto", 0, "cpu"), ("auto", 4, "cuda"), ("cpu", 4, "cpu"), ("cuda", 1, "cuda"), ("cuda:1", 2, "cuda:1")],
)
def test_what_a_device_means(monkeypatch, name, found, device):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    assert resolve(name, found) == device
    assert choose_device(name) == torch.device(device)


@pytest.mark.parametrize(
    ("name", "found"),
    [("cuda", 0), ("cuda:0", 0), ("cuda:2", 2)]
    + [(name, 2) for name in ("", "gpu", "cuda:", "cuda:x", "cuda:01", "cuda:-1", "cuda:²", "cuda:٣", "cpu:0", "CPU")],
)
def test_what_is_no_device(monkeypatch, name, found):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    with pytest.raises(FedbenchError, match=f"^--device {re.escape(name)}: not here; use auto or cpu"):
        choose_device(name)


def test_a_run_with_named_gpus_never_turns_to_the_cpu_by_itself(monkeypatch):
    monkeypatch.setenv("FEDBENCH_GPUS", "7,9")
    for name in ("auto", "cuda"):
        with pytest.raises(FedbenchError, match=r"^FEDBENCH_GPUS=7,9: torch finds no such GPU here; .* --device cpu"):
            resolve(name, 0)
        assert resolve(name, 1) == "cuda"
    assert resolve("cpu", 0) == "cpu"
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert resolve("auto", 0) == "cpu", "a job of SLURM has what SLURM gives it"
    monkeypatch.delenv("SLURM_JOB_ID")
    monkeypatch.setenv("FEDBENCH_GPUS", "")
    assert resolve("auto", 0) == "cpu"


@pytest.mark.parametrize("command", ["train", "pretrain"])
@pytest.mark.parametrize(("text", "complaint"), [("0;1", "'0;1' is no GPU"), ("7,9", "torch finds no such GPU here")])
def test_commands_end_with_one_line(monkeypatch, tmp_path, capsys, command, text, complaint):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDBENCH_GPUS", text)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    names = ["--config", str(SMOKE), "--dataset", "digits", "--model", "tiny-resnet", "--threads", "1"]
    more = ["--partition", "dirichlet", "--method", "base"] if command == "train" else []
    with pytest.raises(SystemExit) as end:
        cli.main([command, *names, *more])
    [*_, error] = capsys.readouterr().err.splitlines()
    assert (end.value.code, error.startswith(f"error: FEDBENCH_GPUS={text}: "), complaint in error) == (1, True, True)
    assert not (tmp_path / "results/smoke/runs").exists()


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
        assert time.monotonic() - started < 60, "it was ten minutes' work"


def test_a_folder_of_locks_that_is_someone_elses(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDBENCH_GPUS", "7,9")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"fedbench-gpus-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FedbenchError, match="belongs to someone else"), own_gpu("auto", lambda _: None):
        pass


def snakemake(folder: Path, *arguments: str, gpus: str, status: int = 0) -> str:
    """Call Snakemake with the local profile and pretended GPUs; returns what it says."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)]
    options = ["--configfile", str(SMOKE), "--profile", str(ROOT / "workflow/profiles/local")]
    result = subprocess.run(
        [*command, *options, *arguments], capture_output=True, text=True, env={**os.environ, "FEDBENCH_GPUS": gpus}
    )
    assert result.returncode == status, result.stdout + result.stderr
    return result.stdout + result.stderr


@pytest.mark.parametrize(("gpus", "expected"), [("7,9", {"gpu": 2}), ("7", {"gpu": 1}), ("", None)])
def test_local_profile_limits_jobs_to_the_visible_gpus(gpus, expected, monkeypatch):
    monkeypatch.setenv("FEDBENCH_GPUS", gpus)
    settings = yte.process_yaml((ROOT / "workflow/profiles/local/config.yaml").read_text())  # as Snakemake reads it
    assert settings.get("resources") == expected


def test_local_profile_says_what_is_wrong_with_named_gpus(tmp_path):
    target = "results/smoke/runs/digits/dirichlet/tiny-vit/base/seed0/summary.json"
    [_, error] = snakemake(tmp_path, "--dry-run", target, gpus="0 1", status=1).splitlines()
    assert error.startswith("error: FEDBENCH_GPUS=0 1: '0 1' is no GPU; ")


def test_jobs_of_the_local_profile_take_a_gpu_and_fail_where_there_is_none(tmp_path):
    target = "results/smoke/bases/digits/tiny-resnet/base.safetensors"
    text = snakemake(tmp_path, target, "--retries", "0", gpus="7,9", status=1)
    assert re.search(r"^Provided resources: gpu=\D*2\b", text, re.MULTILINE), text
    taken, error = (tmp_path / "results/smoke/logs/base/digits/tiny-resnet.log").read_text().splitlines()
    assert taken in ("using GPU 7 of 7,9", "using GPU 9 of 7,9")
    assert error.startswith("error: FEDBENCH_GPUS=7,9: torch finds no such GPU here")
