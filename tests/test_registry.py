"""Registries: found without a list, light enough for planning, duplicates refused."""

import subprocess
import sys

import pytest

from fedbench import registry
from fedbench.errors import FedbenchError
from fedbench.options import options
from fedbench.randomness import stream

ALL = [entry for entry in vars(registry).values() if isinstance(entry, registry.Registry)]


@pytest.mark.parametrize("plugins", ALL, ids=lambda plugins: plugins.kind.replace(" ", "-"))
def test_every_entry_says_in_one_line_what_it_is(plugins):
    assert len(plugins) > 0
    for entry in plugins.values():
        assert 10 < len(entry.summary) < 120, entry.name
        assert "\n" not in entry.summary


def test_reading_all_options_imports_no_torch():
    code = (
        "import sys; from fedbench import registry as r;"
        "[len(x) for x in vars(r).values() if isinstance(x, r.Registry)]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_second_entry_of_the_same_name_is_an_error():
    @options
    class Empty:
        """None."""

    plugins = registry.Registry("thing", "fedbench.channels")
    plugins.register("x", Empty)(type("First", (), {"__module__": "one"}))
    with pytest.raises(FedbenchError, match="thing 'x' is registered twice: one:First and two:Second"):
        plugins.register("x", Empty)(type("Second", (), {"__module__": "two"}))


def test_streams_are_a_function_of_their_key_alone():
    first = stream(0, "batches", 3, 7).random(4)
    stream(0, "batches", 3, 8).random(100)
    assert (first == stream(0, "batches", 3, 7).random(4)).all()
    others = [(1, "batches", 3, 7), (0, "cohort", 3, 7), (0, "batches", 37), (0, "batches", 7, 3)]
    assert all((first != stream(*key).random(4)).any() for key in others)
