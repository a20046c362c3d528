"""Plug-ins from outside: a user's own modules, imported by name or by path, and the hash of their source.

A module registers what it has, as the project's own plug-ins do. Its source is part of what its runs depend on, so it
is hashed here; that reads files and imports nothing more.
"""

import ast
import hashlib
import importlib
import os
import sys
from functools import cache
from importlib.metadata import entry_points
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

from fedbench.errors import FedbenchError

GROUP = "fedbench.plugins"
OWN = __name__.partition(".")[0]


def beside(config: Path, names: list[Any]) -> list[Any]:
    """The names of plug-ins that a config gives, with the paths of files as they are from here."""
    return [str(config.parent / name) if isinstance(name, str) and name.endswith(".py") else name for name in names]


def import_plugin(name: str, where: str) -> None:
    """Import a module that registers plug-ins.

    Parameters
    ----------
    name : an importable module or package, or the path of a .py file
    where : where it is asked for, for messages, as in ``plugins.0``

    Raises
    ------
    FedbenchError
        In one line, if it is not there, or cannot be imported for whatever reason.
    """
    try:
        if name.endswith(".py"):
            _import_file(Path(name).resolve())
        else:
            importlib.import_module(name)
    except FedbenchError as error:
        raise FedbenchError(f"{where}: {name}: {error}") from None
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise FedbenchError(f"{where}: {name}: {_described(error, name)}") from None
        advice = "install it beside fedbench, or give the path of a .py file"
        raise FedbenchError(f"{where}: no module named {name!r}; {advice}") from None
    except OSError as error:
        raise FedbenchError(f"{where}: cannot read {name}: {error.strerror or error}") from None
    except (Exception, SystemExit) as error:  # whatever a user's own code may do
        raise FedbenchError(f"{where}: {name}: {_described(error, name)}") from None


def _import_file(path: Path) -> None:
    """Run a file as a module that is named after its path, which is what messages say and no other module has."""
    name = str(path)
    loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    if name in {os.path.realpath(file) for file in loaded if file}:  # perhaps by its name, by an installed package
        return
    module = ModuleType(name)
    module.__file__ = name
    # not through a loader, which would leave compiled files beside it
    code = compile(path.read_bytes(), name, "exec")
    sys.modules[name] = module
    try:
        exec(code, vars(module))
    except BaseException:
        del sys.modules[name]
        raise


def _described(error: BaseException, name: str) -> str:
    """An error of a module's own code in one line, with the line of the innermost module that it came up in."""
    file, line, trace = getattr(error, "filename", None), getattr(error, "lineno", None), error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "<module>" and not isinstance(error, SyntaxError):
            file, line = code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    where = f"line {line}: " if line else ""
    other = f"{file}: " if line and file and os.path.realpath(file) != os.path.realpath(name) else ""
    return f"{other}{where}{type(error).__name__}: {' '.join(str(error).split())}"


@cache
def import_installed() -> None:
    """Import what installed packages name as entry points of the group ``fedbench.plugins``."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        owner = point.dist.name if point.dist else "an unknown package"
        import_plugin(point.module, f"entry point {point.name!r} of {owner}")


@cache
def source_hash(*modules: str) -> str | None:
    """SHA-256 of the source of modules from outside; None for fedbench's own.

    Of a single file it is that of its contents. Of several, those that a module imports from its own package included,
    it is that of their hashes and names, as ``sha256sum`` prints them.
    """
    files = {found: path for name in modules for found, path in _files(name).items()}
    if not files:
        return None
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    if len(hashes) == 1:
        return next(iter(hashes.values()))
    lines = (f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _files(module: str) -> dict[str, Path]:
    """The file of a module from outside, and those that it imports from its own package."""
    if module.endswith(".py"):
        return {Path(module).name: Path(module)}
    top = module.partition(".")[0]
    found: dict[str, Path] = {}
    waiting = [] if top == OWN else [module]
    while waiting:
        name = waiting.pop()
        path = _file(name)
        if name not in found and path is not None:
            found[name] = path
            waiting += [other for other in _imports(name, path) if other.partition(".")[0] == top]
    return found


def _file(module: str) -> Path | None:
    """Where a module of an imported package lies, found without importing it."""
    top, *inner = module.split(".")
    package = sys.modules.get(top)
    if not hasattr(package, "__path__"):
        file = getattr(package, "__file__", None)
        return Path(file) if file and not inner else None
    for folder in package.__path__:
        place = Path(folder, *inner)
        for path in (place / "__init__.py", place.parent / f"{place.name}.py"):
            if path.is_file():
                return path
    return None


def _imports(module: str, path: Path) -> set[str]:
    """The modules that a file imports anywhere in it."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            start = resolve_name(start, package) if node.level else start
            inner = {alias.name: f"{start}.{alias.name}" for alias in node.names}
            found |= {whole if _file(whole) else start for whole in inner.values()}
    return found
