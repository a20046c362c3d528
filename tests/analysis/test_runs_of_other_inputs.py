"""Runs are aggregated and drawn with what they claim to be: contents of data, partition and base, not only names."""

import shutil

import pytest

from fedbench.analysis.collect import collect
from fedbench.analysis.plot import plot
from fedbench.analysis.tables import aggregate
from fedbench.config.spec import Cell
from fedbench.errors import FedbenchError
from fedbench.files.io import read_sealed, write_json, write_sealed

CELL = Cell("digits", "dirichlet-0.1", "vit", "fedavg", 0)
SAME = "0" * 64


def rewrite(paths, cell, **values):
    path = paths.run(cell) / "summary.json"
    write_sealed(path, read_sealed(path) | values)


def write_inputs(paths, data=SAME, base="2" * 64):
    write_json(paths.data("digits") / "dataset.json", {"sha256": {"images": "i", "all": data}})
    write_json(paths.base("digits", "vit") / "base.json", {"sha256": base})


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"data_sha256": {"images": "i", "all": "x"}}, "made from other data"),
        ({"base_sha256": "x"}, "made with another base"),
        ({"digest": "x"}, "made by another spec than the config's"),
    ],
)
def test_a_run_of_other_inputs_is_not_aggregated(fresh, values, reason):
    world, paths = fresh(figures=("pareto",))
    write_inputs(paths)
    assert collect(world.config, paths).missing == ()
    rewrite(paths, CELL, **values)
    assert [(item.cell, item.reason) for item in collect(world.config, paths).missing] == [(CELL, reason)]
    refusals = []
    for command in (aggregate, plot):
        with pytest.raises(FedbenchError, match="1 of 24 runs of config 'fake' are missing; the first is") as error:
            command(world.config, paths)
        refusals.append(str(error.value))
    assert refusals[0] == refusals[1]
    assert f"{CELL.path} ({reason}): run it, or take what is there with --partial" in refusals[0]
    lines = []
    assert len(plot(world.config, paths, require_all=False, log=lines.append)) == 2
    assert lines == [f"main: left out: 1 of 24 runs (1 {reason})"]


def test_runs_of_a_replaced_base_are_all_left_out(fresh):
    world, paths = fresh()
    write_inputs(paths, base="new")
    with pytest.raises(FedbenchError, match=r"no finished run .*\(made with another base\)"):
        collect(world.config, paths)


@pytest.mark.parametrize(
    ("key", "reason", "agreeing"),
    [
        ("data_sha256", "made from other data", None),
        ("partition_sha256", "made from another partition", Cell("digits", "dirichlet-0.1", "vit", "fedavg", 1)),
        ("base_sha256", "made with another base", None),
    ],
)
def test_runs_that_differ_in_their_inputs_are_refused_where_the_inputs_are_gone(fresh, key, reason, agreeing):
    world, paths = fresh()
    shutil.rmtree(paths.root / "partitions")
    if agreeing:  # another seed is another partition
        for method in world.recipes:
            rewrite(paths, Cell("digits", "dirichlet-0.1", "vit", method, 1), **{key: "seed 1"})
        collect(world.config, paths)
    rewrite(paths, CELL, **{key: "x"})
    with pytest.raises(FedbenchError, match=f"{reason} than .* was; they cannot be compared") as error:
        aggregate(world.config, paths)
    other = paths.run(Cell("digits", "dirichlet-0.1", "vit", "base", 0))
    assert str(error.value).startswith(f"{paths.run(CELL)}: ")
    assert str(other) in str(error.value)


def test_runs_without_a_recorded_base_are_taken_and_counted(fresh):
    world, paths = fresh()
    write_inputs(paths)
    rewrite(paths, CELL, base_sha256=None)
    lines = []
    aggregate(world.config, paths, log=lines.append)
    assert lines == ["1 run made before bases were recorded: not checked for another base"]
