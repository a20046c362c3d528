"""Pinned versions agree wherever they are written, and documented code works as it stands."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from fedbench import __version__

ROOT = Path(__file__).parents[2]


def normalised(name: str) -> str:
    return name.lower().replace("_", "-")


def pins() -> dict[str, str]:
    lines = (ROOT / "envs/constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {normalised(name): version for name, version in pairs}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {normalised(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements}


def test_every_requirement_is_pinned():
    for listed in (project()["dependencies"], *project()["optional-dependencies"].values()):
        assert not names(listed) - set(pins())


def test_the_version_is_the_same_wherever_it_is_written():
    assert project()["version"] == yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__


def test_conda_environment_has_the_pinned_versions():
    listed = yaml.safe_load((ROOT / "envs/fedbench.yaml").read_text())["dependencies"][-1]["pip"]
    conda = {normalised(name): version for name, version in (line.split("==") for line in listed)}
    assert conda == {name: version for name, version in pins().items() if name in conda}
    assert set(conda) == {name for name in names(project()["dependencies"]) if not name.startswith("snakemake")}


def test_the_container_gets_every_file_that_the_package_names():
    listed = (ROOT / "envs/fedbench.def").read_text().partition("%files")[2].partition("%post")[0]
    copied = {line.split()[0] for line in listed.splitlines() if line.strip()}
    assert {"fedbench", "pyproject.toml", project()["readme"], *project()["license-files"]} <= copied


def test_the_documented_method_works(tmp_path):
    source = re.search(r"```python\n(.*?)```", (ROOT / "docs/extending.md").read_text(), re.DOTALL)[1]
    (tmp_path / "sparse_prox.py").write_text(source)
    config = tmp_path / "config.yaml"
    text = (ROOT / "workflow/configs/smoke.yaml").read_text()
    config.write_text(
        text.replace("  base: {method: base}", "  base: {method: base}\n  prox: {method: sparse-prox, mu: 0.1}")
    )
    code = (
        "import sparse_prox; from fedbench.cli.commands import main; main('train --config config.yaml --dataset digits "
        "--partition dirichlet --model tiny-resnet --method prox --threads 1 --device cpu'.split())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / done.stdout.strip()).is_file()
