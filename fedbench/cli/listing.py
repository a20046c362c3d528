"""Text of `fedbench list`: what the registries hold, with every option's type, default and meaning."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedbench.options import json_schema, names
from fedbench.registry import BACKBONES, CHANNELS, DATA_SOURCES, FIGURES, METHODS, PARTITION_SCHEMES, Plugin, Registry

KINDS: dict[str, Registry] = {
    "methods": METHODS,
    "channels": CHANNELS,
    "datasets": DATA_SOURCES,
    "partitions": PARTITION_SCHEMES,
    "models": BACKBONES,
    "figures": FIGURES,
}


def text(kind: str, with_options: bool = False) -> str:
    """One aligned line per entry, its options below it where asked for."""
    registry = KINDS[kind]
    width = max(map(len, registry), default=0)
    lines = []
    for name in registry:
        lines.append(f"{name:{width}}  {registry[name].summary}".rstrip())
        if with_options:
            lines += [f"    {key.line}" for key in keys_of(registry[name].options)]
            lines += [f"    {line}" for line in added_columns(registry[name])]
    return "\n".join(lines)


def markdown(kind: str) -> str:
    """The same as a Markdown table: name, summary, options."""
    registry = KINDS[kind]
    rows = [
        f"| `{name}` | {plugin.summary} | {', '.join(f'`{key}`' for key in names(plugin.options))} |"
        for name, plugin in registry.items()
    ]
    return "\n".join(["| name | what it is | own options |", "|---|---|---|", *rows])


@dataclass(frozen=True)
class Key:
    """One key of an option class, in words; its default is None where it has to be given."""

    name: str
    type: str
    default: str | None
    meaning: str

    @property
    def line(self) -> str:
        default = " (required)" if self.default is None else f" = {self.default}"
        return f"{self.name}: {self.type}{default}  {self.meaning}".rstrip()


def keys_of(options: type) -> list[Key]:
    """The keys of an option class in the order that they are written in."""
    schema = json_schema(options)
    return [
        Key(
            name,
            type_name(key),
            None if name in schema.get("required", ()) else _plain(key.get("default")),
            key.get("description", ""),
        )
        for name, key in schema.get("properties", {}).items()
    ]


def added_columns(entry: Plugin) -> Iterator[str]:
    """What a method adds to a run's tables, and what it means."""
    for column, meaning in getattr(entry.target, "columns", {}).items():
        yield f"rounds.csv {column}: {meaning}"
    for table, columns in getattr(entry.target, "tables", {}).items():
        for column, meaning in columns.items():
            yield f"{table} {column}: {meaning}"


def type_name(schema: dict[str, Any]) -> str:
    """A JSON schema's type in a few words: ``integer >= 1``, ``one of a, b``."""
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if "const" in schema:
        return repr(schema["const"])
    if "anyOf" in schema:
        return " or ".join(type_name(part) for part in schema["anyOf"])
    if "$ref" in schema:
        return "keys and values"
    words = {"null": "none", "array": "list", "object": "keys and values"}
    name = words.get(schema.get("type", "any"), schema.get("type", "any"))
    if "items" in schema:
        name += f" of {type_name(schema['items'])}"
    bounds = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    return f"{name} {' and '.join(f'{sign} {schema[key]:g}' for key, sign in bounds.items() if key in schema)}".rstrip()


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if value in ("", [], {}):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
