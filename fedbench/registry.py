"""Registries that fill themselves from the files of a package.

A plug-in is one file: an option class and the class or function it configures, joined by
``@REGISTRY.register("name", Options)``. Nothing else in the project lists it.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedbench.errors import FedbenchError, nearest
from fedbench.options import names, parse


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
            if name in self._entries and self._entries[name].target.__module__ != target.__module__:
                other = self._entries[name].target.__module__
                raise FedbenchError(f"{self.kind} {name!r} is registered twice: {other} and {target.__module__}")
            self._entries[name] = Plugin(name, options, target)
            return target

        return add

    def discover(self) -> dict[str, Plugin]:
        """Import the package's modules (names with a leading underscore are helpers) and return all entries."""
        if not self._discovered:
            package = importlib.import_module(self.package)
            for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
                if not module.name.startswith("_"):
                    importlib.import_module(f"{self.package}.{module.name}")
            self._discovered = True
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


DATA_SOURCES = Registry("data source", "fedbench.data")
PARTITION_SCHEMES = Registry("partition scheme", "fedbench.partition")
BACKBONES = Registry("backbone", "fedbench.models.backbones")
METHODS = Registry("method", "fedbench.methods")
CHANNELS = Registry("channel", "fedbench.channels")
FIGURES = Registry("figure", "fedbench.analysis.figures")
