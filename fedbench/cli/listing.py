"""Text of `fedbench list`: what the registries hold, with every option's type, default and meaning."""

from collections.abc import Iterator
from typing import Any

from fedbench.options import adapter
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
            lines += [
                f"    {option}: {kind_of}{default}{about}"
                for option, kind_of, default, about in option_rows(registry[name])
            ]
            lines += [f"    {line}" for line in added_columns(registry[name])]
    return "\n".join(lines)


def markdown(kind: str) -> str:
    """The same as a Markdown table: name, summary, options."""
    registry = KINDS[kind]
    rows = [
        f"| `{name}` | {registry[name].summary} | {', '.join(f'`{row[0]}`' for row in option_rows(registry[name]))} |"
        for name in registry
    ]
    return "\n".join(["| name | what it is | own options |", "|---|---|---|", *rows])


def option_rows(entry: Plugin) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, default and description of each option of a plug-in."""
    schema = adapter(entry.options).json_schema()
    required = schema.get("required", ())
    for name, option in schema.get("properties", {}).items():
        default = " (required)" if name in required else f" = {_plain(option.get('default'))}"
        about = " ".join(option.get("description", "").split())
        yield name, type_name(option), default, f"  {about}" if about else ""


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
    words = {"null": "none", "array": "list", "object": "keys and values"}
    name = words.get(schema.get("type", "any"), schema.get("type", "any"))
    if "items" in schema:
        name += f" of {type_name(schema['items'])}"
    bounds = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    return " ".join([name, *(f"{sign} {schema[key]:g}" for key, sign in bounds.items() if key in schema)])


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
