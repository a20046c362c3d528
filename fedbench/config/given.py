"""What ``--config`` of Snakemake assigns: nested values arrive as text, and their options say what is meant.

Snakemake takes the quotes away, so ``label: "10"`` and ``rounds: 10`` look alike. Where an option takes text, the text
is kept as it is; everywhere else it is read as one YAML value. It is never read as more than that: not as a list, a
mapping or a comment.
"""

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, Never, Union, get_args, get_origin, get_type_hints

from fedbench.config.entries import BaseEntry, Experiment, File, Training
from fedbench.config.plain_yaml import scalar
from fedbench.config.reading import FIGURE, KINDS
from fedbench.registry import Registry

Kind = tuple[type, str, Registry]


def typed(given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Read the texts among assigned values by the types of their options.

    Parameters
    ----------
    given : values by the config's top-level keys
    known : the config that they are assigned to, which may say of which plug-in an entry is

    Returns
    -------
    The same values; what no option is known for is read as plain YAML values.
    """
    return {key: _section(key, value, known.get(key)) for key, value in given.items()}


def _section(section: str, value: Any, known: Any) -> Any:
    if section == "training":
        return _fields(_types(Training), value)
    if section == "bases":
        return _each(value, known, lambda entry, _: _fields(_types(BaseEntry), entry))
    if section == "experiments":
        return _each(value, known, lambda entry, _: _fields(_types(Experiment), entry))
    if section in KINDS:
        return _each(value, known, lambda entry, before: _entry(KINDS[section], entry, before))
    return _value(_types(File).get(section, Any), value)


def _each(entries: Any, known: Any, read: Callable[[Any, Any], Any]) -> Any:
    if not isinstance(entries, Mapping):
        return _value(Any, entries)
    before = known if isinstance(known, Mapping) else {}
    return {name: read(entry, before.get(name)) for name, entry in entries.items()}


def _entry(kind: Kind, entry: Any, known: Any = None) -> Any:
    """An entry whose keys are partly those of its plug-in, which it names itself or has been given before."""
    common, key, registry = kind
    known = known if isinstance(known, Mapping) else {}
    name = entry.get(key, known.get(key)) if isinstance(entry, Mapping) else None
    own = _types(registry[name].options) if isinstance(name, str) and name in registry else {}
    return _fields({**own, **_types(common)}, entry)


def _fields(types: Mapping[str, Any], values: Any) -> Any:
    if not isinstance(values, Mapping):
        return _value(Any, values)
    return {key: _field(key, types.get(key, Any), value) for key, value in values.items()}


def _field(key: str, kind: Any, value: Any) -> Any:
    if key == "training":
        return _fields(_types(Training), value)
    if key == "figures" and isinstance(value, list):
        return [_entry(FIGURE, figure) if isinstance(figure, Mapping) else figure for figure in value]
    return _value(kind, value)


def _value(kind: Any, value: Any) -> Any:
    members = _members(kind)
    if isinstance(value, Mapping):
        inner: Any = next((member for member in members if is_dataclass(member)), None)
        return _fields(_types(inner) if inner else {}, value)
    if isinstance(value, list):
        items = [part for member in members if get_origin(member) in (list, tuple) for part in get_args(member)]
        return [_value(reduce(or_, items, Never), part) for part in value]
    if not isinstance(value, str):
        return value
    read = scalar(value)
    words = [word for member in members if get_origin(member) is Literal for word in get_args(member)]
    number = isinstance(read, int | float) and any(member in (int, float, bool) for member in members)
    return value if not number and (str in members or value in words) else read


def _members(kind: Any) -> list[Any]:
    """The types that a value may have."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [member for part in get_args(kind) for member in _members(part)]
    return [kind]


@cache
def _types(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)
