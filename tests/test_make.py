"""`make install` puts its packages into .venv, whatever a user has told pip."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Stands in for Python: `-m venv FOLDER` puts it there, and `-m pip` writes down what pip would be told.
PYTHON = """#!/bin/sh
case "$2" in
  venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  pip) env | grep ^PIP_ > pip.txt; exit 0 ;;
esac
"""


def test_pip_installs_where_make_says_and_fetches_from_where_the_user_says(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "envs").mkdir()
    for name in ("pyproject.toml", "envs/constraints.txt", "python"):
        (tmp_path / name).write_text(PYTHON if name == "python" else "")
    (tmp_path / "python").chmod(0o755)
    own = {
        "PIP_USER": "1",
        "PIP_TARGET": "/elsewhere",
        "PIP_NO_DEPS": "1",
        "PIP_INDEX_URL": "https://example.org/simple",
    }
    command = ["make", "install", f"PYTHON={tmp_path / 'python'}"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | own, check=True, capture_output=True)
    told = dict(line.split("=", 1) for line in (tmp_path / "pip.txt").read_text().splitlines())
    assert told["PIP_INDEX_URL"] == own["PIP_INDEX_URL"]
    assert not {"PIP_USER", "PIP_TARGET", "PIP_NO_DEPS"} & set(told)
