"""Reading a config file: merged, validated, every name in it checked.

One set of option classes (:mod:`fedbench.config.entries`) describes every key; the Snakefile and the command line
both read configs through :func:`load` or :func:`validate`, so a mistake gets the same message everywhere.
Entries of plug-ins are flat: ``{method: fedsdg, alignment: base, channel: dense}`` mixes keys that every
method has with FedSDG's own; each half is validated by its own class.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedbench.config import papers
from fedbench.config.entries import (
    BaseEntry,
    ChannelEntry,
    DatasetEntry,
    Experiment,
    FigureEntry,
    File,
    Grid,
    MethodEntry,
    ModelEntry,
    Overrides,
    PartitionEntry,
    Training,
)
from fedbench.config.layers import merge, override, read
from fedbench.errors import FedbenchError, nearest
from fedbench.options import names, parse
from fedbench.registry import (
    BACKBONES,
    CHANNELS,
    DATA_SOURCES,
    FIGURES,
    METHODS,
    PARTITION_SCHEMES,
    Registry,
    import_plugins,
)


@dataclass(frozen=True)
class Entry:
    """A validated entry: the keys that its kind shares, and the plug-in's own options.

    Attributes
    ----------
    source_sha256 : hash of the plug-in's source, where it is not fedbench's own
    """

    name: str
    common: Any
    options: Any
    source_sha256: str | None = None


# kind of entry -> (its common keys, the key that names the plug-in, where plug-ins are registered)
KINDS: dict[str, tuple[type, str, Registry]] = {
    "datasets": (DatasetEntry, "source", DATA_SOURCES),
    "partitions": (PartitionEntry, "scheme", PARTITION_SCHEMES),
    "models": (ModelEntry, "backbone", BACKBONES),
    "channels": (ChannelEntry, "codec", CHANNELS),
    "methods": (MethodEntry, "method", METHODS),
}
FIGURE = (FigureEntry, "figure", FIGURES)


@dataclass(frozen=True)
class Config:
    """A validated config: everything named, nothing resolved yet (see :mod:`fedbench.config.spec`)."""

    name: str
    results: Path
    seeds: tuple[int, ...]
    training: Overrides
    datasets: dict[str, Entry]
    partitions: dict[str, Entry]
    models: dict[str, Entry]
    bases: dict[str, BaseEntry]
    channels: dict[str, Entry]
    methods: dict[str, Entry]
    experiments: dict[str, Experiment]

    def find(self, section: str, name: str, where: str = "") -> Any:
        """The entry `name` of `section`; a wrong name ends in a message with the nearest right one."""
        entries = getattr(self, section)
        if name not in entries:
            prefix = f"{where}: " if where else ""
            raise FedbenchError(f"{prefix}unknown {section.removesuffix('s')} {name!r}; {nearest(name, entries)}")
        return entries[name]

    def figures(self, experiment: str) -> dict[str, Entry]:
        """The figures of an experiment by the names of their files; a name alone is a figure without options."""
        found: dict[str, Entry] = {}
        for place, values in enumerate(self.experiments[experiment].figures):
            path = f"experiments.{experiment}.figures.{place}"
            values = {"figure": values} if isinstance(values, str) else values
            figure = split_entry(*FIGURE, values, path)
            name = figure.common.name or figure.common.figure
            if found.setdefault(name, figure) != figure:
                raise FedbenchError(f"{path}: a second figure named {name!r}; give it another `name`")
        return found


def parse_entry(section: str, name: str, values: Mapping[str, Any]) -> Entry:
    """Validate one entry of a section of plug-ins."""
    return replace(split_entry(*KINDS[section], values, f"{section}.{name}"), name=name)


def split_entry(common: type, key: str, registry: Registry, values: Mapping[str, Any], path: str) -> Entry:
    """Split an entry into common and plug-in keys and validate both halves; it is named after its plug-in."""
    if key not in values:
        raise FedbenchError(f"{path}.{key}: this key is required; {nearest('', registry)}")
    plugin = registry.find(values[key], f"{path}.{key}")
    shared = set(names(common))
    own = {k: v for k, v in values.items() if k not in shared}
    shared_options = parse(common, {k: v for k, v in values.items() if k in shared}, path)
    plugin_options = parse(plugin.options, own, path, also_valid=tuple(shared))
    check_overrides(getattr(shared_options, "training", {}), f"{path}.training")
    return Entry(values[key], shared_options, plugin_options, plugin.source_sha256)


def check_overrides(values: Mapping[str, Any], path: str) -> None:
    """Reject unknown training keys where they are written, not where they are merged."""
    for key in values:
        if key not in names(Training):
            raise FedbenchError(f"{path}.{key}: unknown key; {nearest(key, names(Training))}")


def validate(values: Mapping[str, Any]) -> Config:
    """Validate a config given as plain data and check every name that it mentions."""
    channels = values.get("channels", {})
    if isinstance(channels, Mapping):  # anything else is told apart below, like every other mistake
        if channels.get("dense", {"codec": "dense"}) != {"codec": "dense"}:
            raise FedbenchError(
                "channels.dense: this name stands for uncompressed fp32, which methods without a channel use; "
                "give this channel another name"
            )
        values = {**values, "channels": {"dense": {"codec": "dense"}, **channels}}
    file = parse(File, values, "config")
    import_plugins(file.plugins, "plugins")  # before anything that may name one
    check_overrides(file.training, "config.training")
    plugins = {
        section: {name: parse_entry(section, name, entry) for name, entry in getattr(file, section).items()}
        for section in KINDS
    }
    config = Config(
        name=file.name,
        results=Path(file.results),
        seeds=tuple(file.seeds),
        training=file.training,
        bases={name: parse_base(name, entry) for name, entry in file.bases.items()},
        experiments=file.experiments,
        **plugins,
    )
    _check_references(config)
    return config


def parse_base(name: str, values: Mapping[str, Any]) -> BaseEntry:
    """Validate one entry of `bases`."""
    base = parse(BaseEntry, values, f"bases.{name}")
    if base.kind == "file" and not base.path:
        raise FedbenchError(f"bases.{name}.path: this key is required for kind 'file'")
    return base


def _check_references(config: Config) -> None:
    for name, model in config.models.items():
        if model.common.base is not None:
            config.find("bases", model.common.base, f"models.{name}.base")
    for name, method in config.methods.items():
        config.find("channels", method.common.channel, f"methods.{name}.channel")
    for name, channel in config.channels.items():
        codec = CHANNELS[channel.common.codec].target
        reason = codec.objection(channel.options, channel.common.error_feedback)
        if reason:
            raise FedbenchError(f"channels.{name}: {reason}")
    for name, dataset in config.datasets.items():
        public = dataset.common.public
        if public and sum(part is not None for part in (public.fraction, public.classes, public.domains)) != 1:
            raise FedbenchError(f"datasets.{name}.public: give exactly one of fraction, classes, domains")
    for name, experiment in config.experiments.items():
        path = f"experiments.{name}"
        for position, grid in enumerate(experiment.cells):
            for kind in names(Grid):
                where = f"{path}.cells.{position}.{kind}"
                if not listed(getattr(grid, kind)):
                    raise FedbenchError(f"{where}: an empty list asks for no run; name at least one {kind}")
                for value in listed(getattr(grid, kind)):
                    config.find(f"{kind}s", value, where)
        if experiment.reference is not None:
            config.find("methods", experiment.reference, f"{path}.reference")
            compared = {method for grid in experiment.cells for method in listed(grid.method)}
            if experiment.reference not in compared:
                hint = nearest(experiment.reference, compared)
                raise FedbenchError(f"{path}.reference: {experiment.reference!r} is in none of its cells; {hint}")
        config.figures(name)
        if experiment.selection == "best":
            _check_validation(config, name)
        if experiment.paper is not None:
            _check_paper(experiment, f"{path}.paper")


def _check_validation(config: Config, name: str) -> None:
    """The best round is chosen by validation samples, which every partition of the experiment has to have."""
    for grid in config.experiments[name].cells:
        for partition in listed(grid.partition):
            if not config.partitions[partition].common.validation:
                raise FedbenchError(
                    f"experiments.{name}.selection: 'best' needs validation samples, but partitions.{partition} has "
                    "validation: 0; give it some, or choose last or tail"
                )


def _check_paper(experiment: Experiment, path: str) -> None:
    """A paper without a number for any of the experiment's cells would make an empty table."""
    numbers = papers.find(experiment.paper, path).numbers
    if not any(
        all(getattr(number, kind) in listed(getattr(grid, kind)) for kind in names(Grid))
        for number in numbers
        for grid in experiment.cells
    ):
        raise FedbenchError(
            f"{path}: {experiment.paper!r} has no number for any of its cells; cells are matched by the names in "
            f"fedbench/config/papers/{experiment.paper}.csv"
        )


def listed(value) -> list:
    """A list as it is, a single value as a list of one."""
    return value if isinstance(value, list) else [value]


def load(paths: Iterable[Path | str], assignments: Iterable[str] = ()) -> Config:
    """Read, merge (later files win) and validate config files, then apply assignments."""
    return validate(override(merge(*(read(Path(path)) for path in paths)), assignments))
