"""Frozen, validated option classes and their error messages."""

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import fields
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from fedbench.errors import FedbenchError, nearest

TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # the direction of all text behind them
SHOWN = 200  # characters of a wrong value that a message repeats

# Unknown keys and silent conversions ("3" for 3, 1 for true) are errors; docstrings under fields
# become the descriptions in the schema and the docs.
if TYPE_CHECKING:  # a partial hides from type checkers what it makes
    from dataclasses import dataclass as options
else:
    options = partial(
        dataclass,
        frozen=True,
        kw_only=True,
        config=ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True),
    )


def _number(value):
    if isinstance(value, bool):
        raise ValueError("a number, not true or false")
    # YAML 1.1 reads 1e-3 (no dot) as text; people write it, so floats accept it.
    return value


def _float(**bounds) -> Any:
    # the bounds stand beside the number itself, not around its check, or the JSON schema would lose them
    return Annotated[float, Field(strict=False, allow_inf_nan=False, **bounds), BeforeValidator(_number)]


Float = _float()
PositiveFloat = _float(gt=0)
NonNegativeFloat = _float(ge=0)
# Parts of a whole, by which of the two ends belong to them.
Share = _float(ge=0, le=1)
PositiveShare = _float(gt=0, le=1)
OpenShare = _float(gt=0, lt=1)
ShareBelowOne = _float(ge=0, lt=1)
PositiveInt = Annotated[int, Ge(1)]


def _label(text: str) -> str:
    """One line that can be seen."""
    wrong = [letter for letter in text if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")]
    if wrong or any(letter in TURNING for letter in text):
        raise ValueError("text in one line, without control characters")
    if not text.strip():
        raise ValueError("text that can be seen, not a blank")
    return text


Label = Annotated[str, AfterValidator(_label)]
NonNegativeInt = Annotated[int, Ge(0)]


@cache
def adapter(cls) -> TypeAdapter:
    """The (cached) pydantic adapter of an option class."""
    return TypeAdapter(cls)


def names(cls) -> tuple[str, ...]:
    """The keys an option class accepts."""
    return tuple(field.name for field in fields(cls))


def json_schema(cls) -> dict[str, Any]:
    """JSON schema of an option class: keys in the order that they are written in, each with its text and default.

    A class that inherits a key, or changes its default alone, has the text from the class that says it.
    """
    schema = adapter(cls).json_schema()
    written = schema.get("properties", {})
    if not written:
        return schema
    schema["properties"] = {name: written[name] for name in names(cls)}
    for name, key in schema["properties"].items():
        infos = [info for base in cls.__mro__ if (info := vars(base).get("__pydantic_fields__", {}).get(name))]
        text = next((info.description for info in infos if info.description), None)
        if text is not None:
            key["description"] = " ".join(text.split())
        if infos[0].default_factory is not None:
            key["default"] = infos[0].default_factory()
    return schema


def parse(cls, values: Mapping[str, Any], path: str, also_valid: tuple[str, ...] = ()):
    """Build `cls` from plain values.

    Parameters
    ----------
    cls : an option class
    values : mapping of keys to plain YAML values
    path : where the values stand, for messages, as in ``methods.fedsdg``
    also_valid : further keys that are valid at this place, for the "did you mean" hint

    Raises
    ------
    FedbenchError
        Naming the first offending key's path, and the nearest valid key or the expected value.
    """
    if not isinstance(values, Mapping):
        raise FedbenchError(f"{path}: expected keys and values, got {values!r}")
    try:
        # Through JSON: strict mode then still accepts mappings for nested options and lists for tuples.
        return adapter(cls).validate_json(json.dumps(dict(values), default=str))
    except ValidationError as error:
        raise FedbenchError(explain(error, path, (*names(cls), *also_valid))) from None


# What pydantic puts into a key's path for the members of a union
UNION_TAG = re.compile(r"(function-|constrained-|(dict|list|tuple|literal)\[|(str|int|float|bool|\[key\])$)")

# Where pydantic speaks of JSON's or Python's types
WORDS = {
    "bool_type": "input should be true or false",
    "dataclass_type": "input should be keys and values",
    "dict_type": "input should be keys and values",
    "float_parsing": "input should be a valid number",
    "list_type": "input should be a list",
    "string_too_short": "text of at least {min_length} character is needed",
    "string_type": "input should be text",
    "too_long": "a list of at most {max_length} is needed",
    "too_short": "a list of at least {min_length} is needed",
    "tuple_type": "input should be a list",
}


def explain(error: ValidationError, path: str, valid: tuple[str, ...]) -> str:
    """Turn pydantic's first complaint into one line: key path, what is wrong, what is valid."""
    problem = error.errors()[0]
    location = [str(part) for part in problem["loc"] if not UNION_TAG.match(str(part))]
    where = ".".join([path, *location])
    kind = problem["type"]
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{where}: unknown key; {nearest(location[-1], valid)}"
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return f"{where}: this key is required"
    message = WORDS.get(kind, problem["msg"].removeprefix("Value error, ")).format(**problem.get("ctx", {}))
    got = repr(problem["input"])
    got = got if len(got) <= SHOWN else f"{got[:SHOWN]} ..."
    return f"{where}: {message[0].lower()}{message[1:]} (got {got})"
