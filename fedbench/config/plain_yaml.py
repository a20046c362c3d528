"""YAML reduced to what a config can mean: text, numbers, true, false, nothing, lists, and mappings with text keys."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from fedbench.errors import FedbenchError

PREFIX = "tag:yaml.org,2002:"
KINDS = ("str", "int", "float", "bool", "null", "seq", "map")
VALUES = 1_000_000  # in one text
SCIENTIFIC = re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):
    """PyYAML with repairs.

    Keys are the text that was written (``no:`` and ``3:`` are names like any other) and may stand once only; 1e-3 is
    a number and a date is text; sets, dates and bytes, which no option accepts, do not exist.
    """

    def compose_mapping_node(self, anchor):
        # before merge keys are resolved: what `<<` brings along may be overridden
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConstructorError(None, None, "a key has to be text", key.start_mark)
            if key.tag == f"{PREFIX}merge":
                continue
            if key.value in seen:
                raise ConstructorError(None, None, f"the key {key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
            key.tag = f"{PREFIX}str"
        return node

    def construct_document(self, node):
        _count(node, {})
        return super().construct_document(node)

    def construct_object(self, node, deep=False):
        if isinstance(node, yaml.ScalarNode) and "\0" in node.value:
            raise ConstructorError(None, None, "text cannot have a NUL character", node.start_mark)
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError) as error:  # `!!int x`, `!!bool x`, more digits than Python reads
            raise ConstructorError(None, None, f"cannot read this value ({error})", node.start_mark) from None


_Loader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(PREFIX) in KINDS
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{PREFIX}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{PREFIX}float", SCIENTIFIC, list("-+0123456789"))


def _count(node: yaml.Node, known: dict[yaml.Node, int]) -> int:
    """How many values a node stands for, with those of the aliases in it; refused where few lines make millions."""
    if node in known:
        return known[node]
    known[node] = 0  # in case it is inside of itself, which is refused elsewhere
    parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    count = 1 + (0 if isinstance(node, yaml.ScalarNode) else sum(_count(part, known) for part in parts))
    if count > VALUES:
        raise ConstructorError(None, None, f"more than {VALUES:,} values, counting each alias", node.start_mark)
    known[node] = count
    return count


def plain_yaml(text: str, where: Path | str) -> Any:
    """Read YAML into plain data.

    Parameters
    ----------
    text : the YAML
    where : the file or option that it stands in, for messages

    Raises
    ------
    FedbenchError
        In one line, with the line of the mistake.
    """
    try:
        values = yaml.load(text, _Loader)
        json.dumps(values, ensure_ascii=False).encode()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}" if mark and mark.line else ""
        problem = " ".join(f"{error.context or ''} {error.problem or ''}".split())
        raise FedbenchError(f"{where}{place}: not valid YAML: {problem}") from None
    except yaml.YAMLError as error:
        raise FedbenchError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise FedbenchError(f"{where}: not valid YAML: nested too deeply") from None
    except ValueError as error:  # an alias inside of what it stands for, half of a surrogate pair
        raise FedbenchError(f"{where}: not plain data: {error}") from None
    return values
