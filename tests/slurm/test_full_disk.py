"""A disk that is really full, a small file system in memory, and the run afterwards."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "workflow/configs/smoke.yaml"

pytestmark = pytest.mark.xdist_group("slurm")


@pytest.fixture
def small_disk(tmp_path):
    """A mounted folder with room for 64 kB."""
    if os.getuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(small_disk, tmp_path):
    command = [sys.executable, "-m", "fedbench", "train", "--config", str(SMOKE), "--device", "cpu", "--threads", "1"]
    command += ["--dataset", "digits", "--partition", "dirichlet", "--model", "tiny-resnet", "--method", "fedavg"]

    def train(out: Path) -> subprocess.CompletedProcess:
        return subprocess.run([*command, "--out", str(out)], cwd=tmp_path, capture_output=True, text=True)

    run = small_disk / "run"
    run.mkdir()
    (small_disk / "filler").write_bytes(bytes(60 * 1024 // 4096 * 4096))
    full = train(run)
    assert full.returncode == 1
    (line,) = [line for line in full.stderr.splitlines() if line.startswith("error: ")]
    assert f"error: {run}" in line
    assert line.endswith("cannot write: No space left on device; free some space and run again")
    assert "Traceback" not in full.stderr
    assert not list(run.rglob("*.csv")), "no half a table"

    (small_disk / "filler").unlink()
    assert train(run).returncode == 0
    assert train(tmp_path / "whole").returncode == 0
    for name in ("clients.csv",):
        assert (run / name).read_text() == (tmp_path / "whole" / name).read_text()
