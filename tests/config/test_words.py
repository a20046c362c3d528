"""Messages about wrong values are in words, without JSON's or Python's types and without patterns."""

import re
from dataclasses import fields, is_dataclass

import pytest

from fedbench.config import entries
from fedbench.errors import FedbenchError
from fedbench.options import parse
from fedbench.registry import BACKBONES, CHANNELS, DATA_SOURCES, FIGURES, METHODS, PARTITION_SCHEMES

REGISTRIES = (BACKBONES, CHANNELS, DATA_SOURCES, FIGURES, METHODS, PARTITION_SCHEMES)
COMMON = [value for value in vars(entries).values() if isinstance(value, type) and is_dataclass(value)]
CLASSES = [cls for cls in COMMON if cls.__module__ == entries.__name__]
CLASSES += [registry[name].options for registry in REGISTRIES for name in registry]
ODD = [
    3,
    -1,
    1.5,
    "x",
    "",
    "a b",
    True,
    None,
    [],
    {},
    [None],
    [[]],
    ["a b"],
    {"a b": {}},
    {"a": 3},
    [{}],
    [1, 2, 3],
    1e400,
]
INTERNAL = re.compile(
    r"\b(array|object|boolean|string|tuple|dict|dictionary|pattern|parse|validation|items?|function|literal|JSON)\b"
)


def complaint(cls, name, value) -> str:
    try:
        parse(cls, {name: value}, "here")
    except FedbenchError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_wrong_value_is_refused_in_words(cls):
    for field in fields(cls):
        for value in ODD:
            where, _, message = complaint(cls, field.name, value).partition(": ")
            told = message.partition("(got")[0]
            assert not INTERNAL.search(told)
            assert "^" not in told
            assert "[" not in where
