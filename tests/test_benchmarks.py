"""The benchmarks run, and both sides of each comparison do the same work (they exit with 1 otherwise)."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_the_engine_beside_the_plain_loop():
    command = [sys.executable, BENCHMARKS / "engine.py", "--only", "mlp", "--repeats", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "MLP 3072-32-10" in done.stdout.splitlines()[1]


def test_steps_of_flite_beside_full_weights():
    command = [sys.executable, BENCHMARKS / "flite.py", "--depth", "8", "--repeats", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()[1:]] == ["stored / full", "seeded / stored"]
