"""Tables and figures show methods in the experiment's order, whichever of their seeds are there."""

from dataclasses import replace

import pytest
from fake_runs import RECIPES, make_world, write_runs

from fedbench.analysis.collect import collect
from fedbench.analysis.tables import build
from fedbench.config.spec import Cell, Paths

METHODS = ("base", "fa-lora", "head-only")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("method", METHODS)
def test_a_missing_seed_moves_no_method(tmp_path, method, seed):
    world = make_world({name: RECIPES[name] for name in METHODS}, seeds=(0, 1))
    world = replace(world, absent=frozenset({Cell("digits", "dirichlet-0.1", "vit", method, seed)}))
    write_runs(world, Paths(tmp_path))
    data = collect(world.config, Paths(tmp_path)).experiment("main")
    assert len(data.runs) == 5
    assert tuple(data.methods) == METHODS
    assert tuple(build(data).method) == METHODS
    assert [tuple(part.seed) for name, part in data.runs.groupby("method", sort=False) if name != method] == [
        (0, 1)
    ] * 2
