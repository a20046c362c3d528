"""The imports of the package against the table of rooms in docs/architecture.md."""

import ast
import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fedbench"
AT_THE_ROOT = 8
ROW = re.compile(r"^\| (?:`(\w+)`|root) \| .+ \| (.*) ?\|$", re.MULTILINE)


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> set[str]:
    """The package's modules that one of them imports, also inside functions and for type checking only."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {module if module in MODULES else node.module for module in whole}
    return {module for module in found if module in MODULES and module != name}


def room(module: str) -> str:
    """The folder of a module; `stages` is a room of its own, all else at the root is one."""
    parts = module.split(".")
    inside = len(parts) > 2 or (len(parts) == 2 and MODULES[module].name == "__init__.py")
    return parts[1] if inside or parts[-1] == "stages" else "root"


def allowed() -> dict[str, set[str]]:
    """The table: room -> the rooms that it may use."""
    rows = ROW.findall((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    return {name or "root": set(re.findall(r"\w+", uses)) for name, uses in rows}


def test_the_table_has_every_room():
    assert set(allowed()) == {room(name) for name in MODULES}


def test_rooms_use_only_what_the_table_allows():
    table = allowed()
    wrong = [
        f"{name} ({room(name)}) imports {other} ({room(other)})"
        for name in MODULES
        for other in sorted(imports(name))
        if name != "fedbench.__main__"  # the command line's door
        and room(other) not in {room(name), *table[room(name)]}
        and "everything" not in table[room(name)]
    ]
    assert not wrong


def test_the_table_allows_only_what_is_used():
    used = defaultdict(set)
    for name in MODULES:
        used[room(name)] |= {room(other) for other in imports(name)} - {room(name)}
    unused = {name: uses - used[name] for name, uses in allowed().items() if uses - used[name] - {"everything"}}
    assert not unused


def test_no_rooms_and_no_modules_import_each_other_in_a_circle():
    TopologicalSorter({name: uses for name, uses in allowed().items() if "everything" not in uses}).prepare()
    try:
        # a package's face may gather what its own modules hold
        TopologicalSorter({name: imports(name) - {name.rpartition(".")[0]} for name in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_root_has_few_modules():
    own = [path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")]
    assert len(own) <= AT_THE_ROOT, own


def test_no_module_is_long():
    long = {name: lines for name, path in MODULES.items() if (lines := len(path.read_text().splitlines())) > 300}
    assert not long
