"""Pictures are the same whatever surrounds the program, and labels in them are text."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_runs import RECIPES, Recipe, make_world, write_runs

from fedbench.analysis.collect import collect
from fedbench.analysis.figures._style import RC
from fedbench.config.spec import Paths
from fedbench.files.picture import drawing
from fedbench.registry import FIGURES

DOMAINS = {"art": -0.1, "photo": 0.1}
KEYS = {"trainable": "lora", "rank": 4}
RECIPES_OF_ALL = {
    "base": RECIPES["base"],
    **{
        f"fedavg-{channel}": Recipe(
            {"method": "fedavg", "channel": channel, "training": {"held_out": 0.2}, **KEYS},
            (0.7 + place / 100, 0.72),
            4_000 // (place + 1), 4_000, newcomers=-0.1, domains=DOMAINS, values=1_000,
        )
        for place, channel in enumerate(("dense", "int8", "int4"))
    },
    "fedsdg": Recipe(
        {"method": "fedsdg", "training": {"held_out": 0.2}}, (0.75, 0.79), 4_000, 4_000, gate=0.3, domains=DOMAINS
    ),
}  # fmt: skip
EVERY = [{"figure": "sweep", "x": "channel.bits"} if name == "sweep" else name for name in FIGURES]

DRAW = """
import sys
from pathlib import Path
from types import SimpleNamespace
sys.path[:0] = [{tests!r}, {analysis!r}]
import numpy as np
from test_surroundings import everything
from fedbench.analysis.plot import plot
from fedbench.config.spec import Paths
from fedbench.partition._picture import picture

root = Path(sys.argv[1])
plot(everything().config, Paths(root))
meta = dict(counts=[[3, 1], [0, 4]], single_domain_clients=True, statistics=dict(jensen_shannon_mean=0.5,
    effective_classes_mean=1.5, gini=0.2), sizes=dict(train=[2, 2], validation=[1, 1], test=[1, 1]), clients=2, seed=0,
    class_names=["cat", "dog"], domain_names=["Ba$$in", "_b"], scheme="iid", moved_by_repair=0)
(root / "partition.png").write_bytes(picture(SimpleNamespace(meta=meta, client_domains=np.array([0, 1]))))
"""
MATPLOTLIBRC = """
text.usetex: True
backend: Qt5Agg
font.size: 30
savefig.bbox: tight
savefig.transparent: True
image.cmap: jet
path.simplify: False
axes.unicode_minus: False
nonsense: 3
legend.loc: nowhere
"""


def everything():
    """A world whose experiment can fill every figure."""
    return make_world(RECIPES_OF_ALL, figures=EVERY, seeds=(0, 1), reference="fedavg-dense")


def drawn(root: Path, folder: Path, **surroundings: str) -> dict[str, bytes]:
    here = Path(__file__).parent
    program = DRAW.format(tests=str(here.parent), analysis=str(here))
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)],
        cwd=folder,
        env={**os.environ, **surroundings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    files = [*root.glob("figures/main/*"), root / "partition.png"]
    return {path.name: path.read_bytes() for path in files}


def test_every_picture_is_the_same_in_hostile_surroundings(tmp_path):
    root, quiet, hostile = tmp_path / "results", tmp_path / "quiet", tmp_path / "hostile"
    for folder in (quiet, hostile):
        folder.mkdir()
    write_runs(everything(), Paths(root))
    (hostile / "matplotlibrc").write_text(MATPLOTLIBRC)
    expected = drawn(root, quiet)
    assert len(expected) == 2 * len(FIGURES) + 1
    found = drawn(
        root,
        hostile,
        MPLBACKEND="module://matplotlib_inline.backend_inline",
        MATPLOTLIBRC=str(hostile),
        LC_ALL="tr_TR.UTF-8",
        PYTHONHASHSEED="7",
        PYTHONOPTIMIZE="2",
        TZ="Asia/Tokyo",
        COLUMNS="20",
    )
    assert [name for name in expected if found[name] != expected[name]] == []


HOSTILE = ["Ba$$in", r"$\frac{$", "cost $5 & $6_x", "_hidden", "{x} %s <b>", "a\\b^2"]


@pytest.fixture(scope="module")
def hostile_labels(tmp_path_factory):
    """Runs of an experiment whose labels look like mathematics, markup, or like what matplotlib leaves out."""
    paths, world = Paths(tmp_path_factory.mktemp("labels")), everything()
    write_runs(world, paths)
    recipes = {
        name: replace(recipe, entry={**recipe.entry, "label": label})
        for (name, recipe), label in zip(RECIPES_OF_ALL.items(), HOSTILE, strict=False)
    }
    labelled = make_world(recipes, EVERY, {"dirichlet-0.1": "Ba$$in $_2$"}, seeds=(0, 1), reference="fedavg-dense")
    return collect(labelled.config, paths).experiment("main")


@pytest.mark.parametrize("name", list(FIGURES))
def test_labels_are_text_in_every_figure(hostile_labels, name):
    from matplotlib.text import Text

    with drawing(RC):
        figure = FIGURES[name].target(hostile_labels, hostile_labels.config.figures("main")[name].options)
        figure.canvas.draw()
    every = [text for text in figure.findobj(Text) if text.get_text()]
    shown = " ".join(text.get_text() for text in every)
    assert not [text.get_text() for text in every if text.get_parse_math()]
    assert "mathdefault" not in shown
    assert "label" not in {text.get_text() for one in figure.legends for text in one.get_texts()}
    if name in ("learning-curves", "ablation", "fairness", "pareto", "byte-budget", "domains"):
        assert [label for label in hostile_labels.methods.values() if label not in shown] == []
