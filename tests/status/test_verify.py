"""`fedbench verify`, and damage that every job notices by itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedbench.cli import commands as cli
from fedbench.data import store as base
from fedbench.data.store import load_store
from fedbench.errors import FedbenchError
from fedbench.files.io import read_sealed, write_sealed

SMOKE = Path(__file__).parents[2] / "workflow/configs/smoke.yaml"
NAMES = ["--dataset", "digits", "--partition", "dirichlet", "--model", "tiny-resnet", "--method", "base"]
RUN = "results/smoke/runs/digits/dirichlet/tiny-resnet/base/seed0"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One run of the smoke config with its inputs."""
    folder = tmp_path_factory.mktemp("verify")
    command = [sys.executable, "-m", "fedbench", "train", "--config", SMOKE, *NAMES, "--device", "cpu"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def copy(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def flip(path: Path, place: int = -1) -> None:
    """Flip one bit and keep size and times."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def verify(capsys) -> tuple[int, list[str]]:
    try:
        cli.main(["verify", "--config", str(SMOKE)])
        status = 0
    except SystemExit as end:
        status = end.code
    return status, capsys.readouterr().out.splitlines()


def test_sound_files(copy, capsys):
    assert verify(capsys) == (0, ["1 data set, 1 partition, 1 base, 1 run: none damaged"])


def test_nothing_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert verify(capsys) == (0, ["nothing is there: none damaged"])


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("results/smoke/data/digits/images.npy", -1),
        ("results/smoke/data/digits/images.npy", 5000),
        ("results/smoke/partitions/digits/dirichlet/seed0/partition.npz", 200),
        ("results/smoke/bases/digits/tiny-resnet/base.safetensors", -1),
        (f"{RUN}/rounds.csv", -2),
        (f"{RUN}/clients.csv", -2),
        (f"{RUN}/summary.json", 40),
    ],
)
def test_a_flipped_bit_anywhere_is_named(copy, capsys, name, place):
    flip(copy / name, place)
    status, lines = verify(capsys)
    assert (status, len(lines)) == (1, 2)
    assert lines[0].startswith(f"damaged   {Path(name).parent}")
    assert "damaged" in lines[0].removeprefix("damaged") or "differ" in lines[0] or "not valid" in lines[0]
    assert lines[1].endswith(": 1 damaged")


def test_all_damage_is_named_and_what_is_only_outdated_is_no_damage(copy, capsys):
    values = read_sealed(copy / RUN / "summary.json")
    write_sealed(copy / RUN / "summary.json", values | {"base_sha256": "another"})
    status, lines = verify(capsys)
    assert (status, lines[0]) == (0, f"outdated  {RUN}: made with another base")
    flip(copy / "results/smoke/data/digits/images.npy")
    flip(copy / RUN / "rounds.csv", -2)
    status, lines = verify(capsys)
    assert (status, len(lines)) == (1, 3)
    assert lines[2].endswith(": 2 damaged")


@pytest.mark.parametrize("command", ["partition", "pretrain", "train"])
def test_no_job_uses_damaged_images(copy, capsys, command):
    flip(copy / "results/smoke/data/digits/images.npy")
    names = {"partition": NAMES[:4], "pretrain": [*NAMES[:2], *NAMES[4:6]], "train": NAMES}[command]
    with pytest.raises(SystemExit):
        cli.main([command, "--config", str(SMOKE), *names, "--device", "cpu"])
    assert "images.npy: damaged (images and their SHA-256 differ); delete the folder" in capsys.readouterr().err


def test_images_beyond_the_limit_are_left_to_verify(copy, monkeypatch):
    flip(copy / "results/smoke/data/digits/images.npy")
    folder = copy / "results/smoke/data/digits"
    load_store(folder, limit=1000)
    with pytest.raises(FedbenchError, match="images and their SHA-256 differ"):
        load_store(folder, limit=None)
    assert base.VERIFIED_BYTES > 60_000 * 3 * 32 * 32
