"""Fixtures that several test folders use. Lying here also puts tests/ on the import path, for `support`."""

import os
import signal

import pytest

# One thread: results are then repeatable bit for bit, and several test processes do not fight for cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """The prepared digits data set."""
    from support import prepare_digits

    return prepare_digits(tmp_path_factory.mktemp("digits") / "store")


@pytest.fixture(scope="session")
def ragged(digits):
    """A partition of `digits` with clients of very different sizes; one has no validation samples."""
    from support import ragged_partition

    return ragged_partition(digits)


@pytest.fixture
def ctrl_c():
    """Ctrl-C does what it does at a terminal, in this process and those that it starts, also where tests run behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
