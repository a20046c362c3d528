"""Config files as plain data, one over the other, and single values over all of them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedbench.config.plain_yaml import plain_yaml, scalar
from fedbench.errors import FedbenchError, nearest
from fedbench.plugins import beside

CONFIG_BYTES = 8 << 20
MARKED = tuple("\"'|>!&*")  # what text begins with that is more than bare words to YAML


def read(path: Path) -> dict[str, Any]:
    """Read one YAML file into plain data."""
    try:
        with open(path, "rb") as file:  # may be a pipe, so its size is known only once it is read
            data = file.read(CONFIG_BYTES + 1)
        if len(data) > CONFIG_BYTES:
            raise FedbenchError(f"{path}: more than {CONFIG_BYTES:,} bytes, which no config has; check the path")
        text = data.decode()
    except OSError as error:
        raise FedbenchError(f"{path}: cannot read this config: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise FedbenchError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    values = plain_yaml(text, path)
    if not isinstance(values, dict):
        raise FedbenchError(f"{path}: expected keys and values at the top level")
    if isinstance(values.get("plugins"), list):
        values["plugins"] = beside(path, values["plugins"])
    return values


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings; later layers win."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
            result[key] = merge(result[key], value) if both else value
    return result


def override(values: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Apply ``path.to.key=value`` assignments; values are read as YAML, but ``#`` begins no comment in bare text.

    Names may have dots themselves: at each level the longest existing one that the path goes on with is meant.
    """
    for assignment in map(_decoded, assignments):
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise FedbenchError(f"--set {assignment}: expected key=value, for example training.rounds=5")
        layer: Any = plain_yaml(text, f"--set {assignment}")
        if not isinstance(layer, dict | list) and not text.lstrip().startswith(MARKED):
            layer = scalar(text.strip())
        if layer == {}:
            raise FedbenchError(f"--set {assignment}: mappings are merged, so an empty one changes nothing; name a key")
        for key in reversed(_steps(path, values, f"--set {assignment}")):
            layer = {key: layer}
        values = merge(values, layer)
    return dict(values)


def _decoded(assignment: str) -> str:
    """The text that was typed; where the locale is not UTF-8, Python takes its letters for bytes."""
    try:
        return assignment.encode(errors="surrogateescape").decode()
    except UnicodeError:
        raise FedbenchError(f"--set {assignment}: not UTF-8 text; type it again") from None


def _steps(path: str, values: Any, where: str) -> list[str]:
    """The keys that a dotted path goes through."""
    parts = path.split(".")
    steps: list[str] = []
    while parts:
        known = values if isinstance(values, Mapping) else {}
        length = next((n for n in range(len(parts), 0, -1) if ".".join(parts[:n]) in known), 1)
        key, parts = ".".join(parts[:length]), parts[length:]
        longer = [name for name in known if name.startswith(f"{key}.")]
        # a name that is misspelt behind its dot: cut there, it would be another entry, or a key that none has
        if longer and parts and (key not in known or not parts[0].isidentifier()):
            found = f"{key}.{parts[0]}"
            raise FedbenchError(f"{where}: nothing is named {'.'.join([*steps, found])!r}; {nearest(found, longer)}")
        steps.append(key)
        values = known.get(key)
    return steps
