"""One file with a plug-in of every kind, from its config to the report."""

import json
import subprocess
import sys
from pathlib import Path

PLUGINS = '''"""One of each kind, none of which is more than another's."""

from __future__ import annotations

from fedbench.analysis.figures._style import new_figure, styled
from fedbench.channels.dense import Dense, DenseOptions
from fedbench.data.digits import Digits, DigitsOptions
from fedbench.methods.fedavg import FedAvg, TrainableOptions
from fedbench.models.backbones.mlp import Mlp, MlpOptions
from fedbench.options import options
from fedbench.partition.quantity import QuantityOptions, quantity
from fedbench.registry import BACKBONES, CHANNELS, DATA_SOURCES, FIGURES, METHODS, PARTITION_SCHEMES


def another(target):
    return type("Mine", (target,), {"__module__": __name__, "__doc__": "Another one of this kind."})


DATA_SOURCES.register("my-source", DigitsOptions)(another(Digits))
BACKBONES.register("my-backbone", MlpOptions)(another(Mlp))
CHANNELS.register("my-codec", DenseOptions)(another(Dense))
METHODS.register("my-method", TrainableOptions)(another(FedAvg))


@PARTITION_SCHEMES.register("my-scheme", QuantityOptions)
def my_scheme(options, pool, clients, rng):
    """Sizes as those of another scheme."""
    return quantity(options, pool, clients, rng)


@options
class FigureOptions:
    """None."""


@FIGURES.register("my-figure", FigureOptions)
@styled
def my_figure(data, options=FigureOptions()):
    """Accuracies as dots."""
    figure = new_figure(3.0, 2.0)
    figure.subplots().plot(data.runs[data.headline].astype(float), "o")
    return figure
'''
CONFIG = """
name: outside
results: results/outside
plugins: [mine.py]
training: {rounds: 1, batch_size: 64}
datasets: {data: {source: my-source}}
partitions: {dealt: {scheme: my-scheme, clients: 3}}
models: {net: {backbone: my-backbone}}
channels: {half: {codec: my-codec, dtype: fp16}}
methods: {mine: {method: my-method, channel: half}}
experiments:
  only:
    title: Everything from outside
    figures: [my-figure]
    cells: [{dataset: data, partition: dealt, model: net, method: mine}]
"""
RUN = "results/outside/runs/data/dealt/net/mine/seed0/summary.json"


def workflow(folder: Path, *arguments: str) -> str:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(root / "Snakefile"), "--configfile", "config.yaml"]
    done = subprocess.run([*command, "--cores", "1", *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_kind_goes_through_the_workflow_and_an_edit_runs_it_again(tmp_path):
    (tmp_path / "mine.py").write_text(PLUGINS)
    (tmp_path / "config.yaml").write_text(CONFIG)
    workflow(tmp_path)
    spec = json.loads((tmp_path / RUN).read_text())["spec"]
    parts = ("dataset", "partition", "model", "method", "channel")
    assert [part for part in parts if "source_sha256" not in spec[part]] == []
    assert (tmp_path / "results/outside/figures/only/my-figure.png").exists()
    assert "Nothing to be done" in workflow(tmp_path, "--dry-run")
    (tmp_path / "mine.py").write_text(f"{PLUGINS}\n# edited\n")
    planned = workflow(tmp_path, "--dry-run")
    for rule in ("prepare", "partition", "base", "run", "figure"):
        assert f"\n{rule} " in planned, planned
