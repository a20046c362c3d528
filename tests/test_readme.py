"""The README's commands that cost little run as they are typed."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def commands():
    """The README's commands for this checkout's .venv, in order, with continued lines joined."""
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    return re.findall(r"^ {4}(\.venv/bin/.*)$", text, re.M)


def cheap(command):
    """What to run for a command: dry runs for the workflow's, but for the full benchmark, which other tests plan."""
    words = shlex.split(command, comments=True)
    if words[0].endswith("snakemake"):
        return [*words, "-n"] if "--configfile" in words else None
    return words if words[1] in ("list", "cells") else None


@pytest.mark.parametrize("words", [words for command in commands() if (words := cheap(command))], ids=" ".join)
def test_command(words):
    done = subprocess.run([BIN / Path(words[0]).name, *words[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() or done.stderr.strip()


def test_the_readme_has_commands_of_every_kind():
    found = [words[:2] for command in commands() if (words := shlex.split(command, comments=True))]
    assert {words[1] for words in found if words[0].endswith("fedbench")} >= {"train", "cells", "aggregate", "plot"}
    assert sum(words[0].endswith("snakemake") for words in found) >= 4


def test_what_the_readme_says_was_measured_is_in_the_evidence():
    findings = (ROOT / "README.md").read_text().partition("we have measured")[2].partition("## ")[0]
    numbers = set(re.findall(r"−?\d+\.\d(?: ± \d+\.\d)?", findings))
    assert len(numbers) >= 10
    evidence = (ROOT / "docs/evidence.md").read_text()
    assert not {number for number in numbers if number not in evidence}


def test_pictures_of_the_readme_are_there_and_small():
    pictures = re.findall(r"docs/[\w-]+\.(?:png|svg)", (ROOT / "README.md").read_text())
    assert len(pictures) == 3
    assert all((ROOT / picture).stat().st_size <= 150_000 for picture in pictures)


def test_the_python_example_trains():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    rng = np.random.default_rng(0)
    names = {
        "images": rng.integers(0, 256, (40, 8, 8), dtype=np.uint8),
        "labels": rng.integers(0, 3, 40),
        "clients": [range(15), range(15, 40)],
    }
    exec(code, names)
    state, federation = names["state"], names["federation"]
    assert state.participations == {0: 1, 1: 1}
    assert any(not torch.equal(leaf, state.shared[name]) for name, leaf in federation.init().shared.items())
    assert len(federation.evaluate(state).personal) == 2
