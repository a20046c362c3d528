"""`python -m build` makes a wheel that does, from an empty folder, all that `make smoke` does in a checkout."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedbench.config.plan import Plan
from fedbench.config.reading import load

ROOT = Path(__file__).parents[1]
SMOKE = ROOT / "workflow/configs/smoke.yaml"
SOURCE = ("LICENSE", "README.md", "pyproject.toml")
COMMANDS = """
import sys
import fedbench
from fedbench.cli.commands import main
print(fedbench.__file__)
for command in sys.argv[1:]:
    main(command.split())
"""


def call(folder: Path, *words: str | Path, **environment: str) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder of packages with nothing but what the wheel brought, which was built from the source archive."""
    source, built, target = (tmp_path_factory.mktemp(name) for name in ("source", "built", "installed"))
    for name in SOURCE:
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "fedbench", source / "fedbench", ignore=shutil.ignore_patterns("__pycache__"))
    call(source, "-m", "build", "--no-isolation", "--outdir", built, ".")
    (wheel,) = built.glob("*.whl")
    call(built, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target", target, wheel)
    return target


def files(package: Path) -> set[str]:
    return {str(file.relative_to(package)) for file in package.rglob("*.*") if "__pycache__" not in file.parts}


def test_the_wheel_has_every_file_of_the_package(installed):
    assert files(installed / "fedbench") == files(ROOT / "fedbench")


def test_everything_that_make_smoke_makes(installed, tmp_path):
    """One process for all commands, since importing torch takes longer than most of them."""
    shutil.copy(SMOKE, tmp_path / "smoke.yaml")
    plan = Plan(load([SMOKE]))
    tiny_vit, tiny_resnet = "--dataset digits --model tiny-vit", "--dataset digits --model tiny-resnet"
    commands = ["prepare --dataset digits", "partition --dataset digits --partition dirichlet --seed 0"]
    commands += [f"pretrain {tiny_vit}", f"pretrain {tiny_resnet}"]
    for cell in plan.cells:
        names = f"--dataset {cell.dataset} --partition {cell.partition} --model {cell.model} --method {cell.method}"
        commands.append(f"train {names} --seed {cell.seed} --threads 1")
    commands += ["aggregate", "plot", "report"]
    given = [f"{command} --config smoke.yaml" for command in commands]
    done = call(tmp_path, "-c", COMMANDS, *given, PYTHONPATH=str(installed), FEDBENCH_DEVICE="cpu")
    assert done.stdout.splitlines()[0] == str(installed / "fedbench/__init__.py")
    results = tmp_path / "results/smoke"
    assert len(list((results / "runs").rglob("summary.json"))) == len(plan.cells)
    for name in ("report.html", "summary.csv", "tables/communication.tex", "figures/communication/pareto.pdf"):
        assert (results / name).stat().st_size > 0
