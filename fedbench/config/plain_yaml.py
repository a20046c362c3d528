"""YAML reduced to what a config can mean: text, numbers, true, false, nothing, lists, and mappings with text keys.

Values are read as YAML 1.2's core schema reads them: ``yes``, ``on``, ``1:30``, ``1_000`` and dates are text, and 010
is ten. PyYAML by itself follows YAML 1.1, where they are true, 90, 1000, dates and eight.
"""

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
WORDS = {word: value for name, value in (("null", None), ("true", True), ("false", False))
         for word in (name, name.title(), name.upper())} | {"~": None, "": None}  # fmt: skip
# The core schema's numbers, and the characters that they begin with.
NUMBERS = {
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
}
PATTERNS = {kind: re.compile(rf"(?:{pattern})\Z") for kind, (pattern, _) in NUMBERS.items()}


class _Loader(yaml.SafeLoader):
    """PyYAML with the values of YAML 1.2.

    Keys are the text that was written (``no:`` and ``3:`` are names like any other) and may stand once only; sets,
    dates and bytes, which no option accepts, do not exist.
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
        except (ValueError, KeyError):  # `!!int x`, `!!bool x`, more digits than Python reads
            kind = node.tag.removeprefix(PREFIX)
            raise ConstructorError(None, None, f"cannot read {_short(node.value)} as {kind}", node.start_mark) from None

    def construct_word(self, node):
        return WORDS[self.construct_scalar(node)]

    def construct_int(self, node):
        return _int(self.construct_scalar(node).lower())

    def construct_number(self, node):
        return _float(self.construct_scalar(node).lower())


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]} ...")


def _int(text: str) -> int:
    return int(text, 0 if text.startswith(("0o", "0x")) else 10)


def _float(text: str) -> float:
    return float(text.replace(".inf", "inf").replace(".nan", "nan") if text[-1:].isalpha() else text)


def scalar(text: str) -> Any:
    """What a whole text means as one plain value: a number, true, false, nothing, or else itself."""
    if text in WORDS:
        return WORDS[text]
    for kind, read in (("int", _int), ("float", _float)):
        if PATTERNS[kind].match(text):
            return read(text.lower())
    return text


_Loader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(PREFIX) in KINDS
}
for _kind in ("null", "bool"):
    _Loader.add_constructor(f"{PREFIX}{_kind}", _Loader.construct_word)
_Loader.add_constructor(f"{PREFIX}int", _Loader.construct_int)
_Loader.add_constructor(f"{PREFIX}float", _Loader.construct_number)
_Loader.yaml_implicit_resolvers = {}
for _word, _value in WORDS.items():
    _tag = f"{PREFIX}{'null' if _value is None else 'bool'}"
    _Loader.add_implicit_resolver(_tag, re.compile(f"^{re.escape(_word)}$"), [_word[:1]])
for _kind, (_, _first) in NUMBERS.items():
    _Loader.add_implicit_resolver(f"{PREFIX}{_kind}", PATTERNS[_kind], list(_first))
_Loader.add_implicit_resolver(f"{PREFIX}merge", re.compile("^<<$"), ["<"])


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
