"""Registries that fill themselves from the files of a package, and from installed packages of others.

A plug-in is one file: an option class and the class or function it configures, joined by
``@REGISTRY.register("name", Options)``. Nothing else in the project lists it. It may be anywhere: what is imported is
registered (see :mod:`fedbench.plugins`).
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedbench.errors import FedbenchError, nearest
from fedbench.options import names, parse
from fedbench.plugins import import_installed, import_plugin, source_hash


@dataclass(frozen=True)
class Plugin:
    """One plug-in: its name, its option class, and what builds or runs it."""

    name: str
    options: type
    target: Any

    @property
    def summary(self) -> str:
        """First line of the target's docstring."""
        return (self.target.__doc__ or "").strip().split("\n")[0]

    @property
    def source_sha256(self) -> str | None:
        """Hash of the source that defines a plug-in from outside; None for fedbench's own."""
        return source_hash(self.target.__module__, self.options.__module__)


class Registry(Mapping[str, Plugin]):
    """Plug-ins of one kind, found by importing every public module of `package` on first use."""

    def __init__(self, kind: str, package: str):
        self.kind = kind
        self.package = package
        self._entries: dict[str, Plugin] = {}
        self._discovered = False

    def register(self, name: str, options: type) -> Callable:
        """Decorate a class or function so that configs can name it."""

        def add(target):
            other = self._entries.get(name)
            # the same definition may come again: a module that failed half-way and is imported once more
            if other is not None and _address(other.target) != _address(target):
                raise FedbenchError(
                    f"{self.kind} {name!r} is registered twice: {_address(other.target)} and {_address(target)}"
                )
            self._entries[name] = Plugin(name, options, target)
            return target

        return add

    def import_own(self) -> None:
        """Import the package's modules; names with a leading underscore are helpers."""
        if not self._discovered:
            package = importlib.import_module(self.package)
            for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
                if not module.name.startswith("_"):
                    importlib.import_module(f"{self.package}.{module.name}")
            self._discovered = True

    def discover(self) -> dict[str, Plugin]:
        """All entries: the package's own, those of installed packages, and what a config has imported."""
        self.import_own()
        import_installed()
        return self._entries

    def __getitem__(self, name: str) -> Plugin:
        entries = self.discover()
        if name not in entries:
            raise KeyError(name)
        return entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.discover()))

    def __len__(self) -> int:
        return len(self.discover())

    def find(self, name: str, path: str) -> Plugin:
        """Like ``self[name]``, but a wrong name ends in a message that says the right one."""
        if not isinstance(name, str) or name not in self:
            raise FedbenchError(f"{path}: unknown {self.kind} {name!r}; {nearest(name, self)}")
        return self[name]

    def parse(self, name: str, values: Mapping[str, Any], path: str, also_valid: tuple[str, ...] = ()):
        """Validate `values` as the options of plug-in `name`."""
        return parse(self.find(name, path).options, values, path, also_valid)

    def keys_of(self, name: str) -> tuple[str, ...]:
        """The option names of plug-in `name`."""
        return names(self[name].options)


def _address(target: Any) -> str:
    """Where a plug-in is defined: module, or file, and name."""
    return f"{target.__module__}:{target.__qualname__}"


DATA_SOURCES = Registry("data source", "fedbench.data")
PARTITION_SCHEMES = Registry("partition scheme", "fedbench.partition")
BACKBONES = Registry("backbone", "fedbench.models.backbones")
METHODS = Registry("method", "fedbench.methods")
CHANNELS = Registry("channel", "fedbench.channels")
FIGURES = Registry("figure", "fedbench.analysis.figures")
REGISTRIES = (DATA_SOURCES, PARTITION_SCHEMES, BACKBONES, METHODS, CHANNELS, FIGURES)


def import_plugins(modules: Sequence[str], where: str) -> None:
    """Import modules from outside, after everything that is here already: of two that share a name, theirs is refused.

    Parameters
    ----------
    modules : importable names, or paths of .py files
    where : the key that lists them, for messages
    """
    for registry in REGISTRIES if modules else ():
        registry.discover()
    for position, name in enumerate(modules):
        import_plugin(name, f"{where}.{position}")
