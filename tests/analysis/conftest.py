"""Fixtures of the analysis tests."""

from dataclasses import replace
from functools import cache

import pytest
from distinct import make_distinct
from fake_runs import make_world, write_runs

from fedbench.analysis.collect import collect
from fedbench.analysis.tables import build
from fedbench.config.spec import Paths


@pytest.fixture(scope="module", autouse=True)
def _without_fsync():
    """Thousands of tiny files need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """A results folder with every run of the standard world, to be read only."""
    paths = Paths(tmp_path_factory.mktemp("results"))
    world = make_world()
    write_runs(world, paths)
    return world, paths


@pytest.fixture(scope="session")
def distinct(tmp_path_factory):
    """Data of the world in which every number differs; keys of its experiment may be others, its runs are the same."""
    paths = Paths(tmp_path_factory.mktemp("distinct"))
    world = make_distinct()
    write_runs(world, paths)
    collection = collect(world.config, paths)

    @cache
    def make(metric, selection):
        config = make_distinct(metric=metric, selection=selection).config
        return replace(collection, config=config).experiment("main")

    return lambda metric="personal", selection="last": make(metric, selection)


@pytest.fixture(scope="session")
def table(distinct):
    """The rows of its tables, by task and method."""

    @cache
    def make(metric, selection):
        rows = build(distinct(metric, selection))
        return rows.set_index(["dataset", "partition", "model", "method"], drop=False).sort_index()

    return lambda metric="personal", selection="last": make(metric, selection)


@pytest.fixture
def fresh(tmp_path):
    """The same, for tests that break something."""

    def make(**keys):
        world = make_world(**keys)
        paths = Paths(tmp_path)
        write_runs(world, paths)
        return world, paths

    return make
