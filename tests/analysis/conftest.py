"""Fixtures of the analysis tests."""

import pytest
from fake_runs import make_world, write_runs

from fedbench.spec import Paths


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


@pytest.fixture
def fresh(tmp_path):
    """The same, for tests that break something."""

    def make(**keys):
        world = make_world(**keys)
        paths = Paths(tmp_path)
        write_runs(world, paths)
        return world, paths

    return make
