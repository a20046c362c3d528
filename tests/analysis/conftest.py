"""Fixtures of the analysis tests."""

import pytest
from fake_runs import make_world, write_runs

from fedbench.spec import Paths


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """A results folder with every run of the standard world, to be read only."""
    paths = Paths(tmp_path_factory.mktemp("results"))
    world = make_world()
    write_runs(world, paths)
    return world, paths


@pytest.fixture
def fresh(tmp_path):
    """The same, for tests that break something."""

    def make(**keys):
        world = make_world(**keys)
        paths = Paths(tmp_path)
        write_runs(world, paths)
        return world, paths

    return make
