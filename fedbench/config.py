"""What a config file may say, and reading it.

One set of option classes describes every key; the Snakefile and the command line both read configs
through :func:`load` or :func:`validate`, so a mistake gets the same message everywhere. Entries of
plug-ins are flat: ``{method: fedsdg, alignment: base, channel: dense}`` mixes keys that every method
has with FedSDG's own; each half is validated by its own class.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from fedbench.errors import FedbenchError, nearest
from fedbench.options import (
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    ProperFraction,
    ShareBelowOne,
    names,
    options,
    parse,
)
from fedbench.plain_yaml import plain_yaml
from fedbench.registry import BACKBONES, CHANNELS, DATA_SOURCES, FIGURES, METHODS, PARTITION_SCHEMES, Registry

# Entry names become folder names and Snakemake wildcards.
NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]*"
Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
Overrides = dict[str, Any]


@options
class Training:
    """How clients train and how often they are evaluated."""

    rounds: NonNegativeInt
    """Communication rounds."""
    participation: PositiveFraction = 1.0
    """Share of the clients in each round's cohort (rounded, at least one)."""
    local_epochs: PositiveInt = 1
    """Passes over its own training samples that a client makes per round."""
    local_steps: PositiveInt | None = None
    """Local steps per round instead of epochs (the batches still come from shuffled epochs)."""
    batch_size: PositiveInt = 64
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """Local optimiser, recreated at each participation. Adam's weight decay is L2 style, AdamW's decoupled."""
    learning_rate: PositiveFloat = 0.01
    momentum: Fraction = 0.0
    """Momentum of SGD."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    """Moments of Adam and AdamW."""
    weight_decay: NonNegativeFloat = 0.0
    clip: PositiveFloat | None = None
    """Global-norm gradient clipping, per client."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate over rounds; cosine ends at zero."""
    aggregation: Literal["uniform", "samples"] = "uniform"
    """Weights of the cohort's messages in the mean."""
    augmentation: Literal["none", "crop-flip"] = "none"
    evaluate_every: PositiveInt = 1
    """Rounds between evaluations; the untouched base (round 0) and the last round are always evaluated."""
    fine_tune_epochs: NonNegativeInt = 0
    """Passes over its own samples that every client makes before its personal evaluation, on a copy."""
    held_out: ShareBelowOne = 0.0
    """Share of the clients (rounded, at least one if above 0) that never join the federation, evaluated apart."""
    held_out_epochs: NonNegativeInt | None = None
    """Passes over its own samples that a held-out client makes before each evaluation; none takes fine_tune_epochs."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of forward and backward passes; weights and optimisers stay fp32."""


@options
class PublicShare:
    """Training samples that no client holds, for a base trained on other data than the federation's."""

    fraction: ProperFraction | None = None
    """Stratified share of the training split."""
    classes: list[int] | None = None
    """All samples of these classes (class indices)."""
    domains: list[str] | None = None
    """All samples of these domains."""


@options
class DatasetEntry:
    """Keys that every data set has."""

    source: str
    public: PublicShare | None = None
    """Part of the data that goes to the base model and to no client."""
    test_fraction: ProperFraction = 0.2
    """Size of the test split, stratified by (domain, class), where the source has none of its own."""
    label: str | None = None
    training: Overrides = Field(default_factory=dict)


@options
class PartitionEntry:
    """Keys that every partition has."""

    scheme: str
    clients: PositiveInt
    validation: ShareBelowOne = 0.2
    """Share of each client's training samples set aside for validation, fixed with the partition."""
    min_samples: Annotated[int, Field(ge=2)] = 10
    """Training samples (validation included) that every client gets at least, by bounded repair."""
    label: str | None = None
    training: Overrides = Field(default_factory=dict)


@options
class ModelEntry:
    """Keys that every model has."""

    backbone: str
    base: str | None = None
    """Entry of `bases` that the federation starts from; none is a random initialisation."""
    head: Literal["trainable", "frozen-kaiming", "frozen-orthogonal", "frozen-etf"] = "trainable"
    label: str | None = None
    training: Overrides = Field(default_factory=dict)


@options
class BaseEntry:
    """Where a model's starting weights come from."""

    kind: Literal["pretrain", "pretrained", "file"]
    """`pretrain` trains centrally, `pretrained` takes timm's weights by name, `file` reads safetensors."""
    data: Literal["all", "public"] = "all"
    """pretrain: the whole training split, or only the data set's public share."""
    epochs: PositiveInt = 100
    batch_size: PositiveInt = 128
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    learning_rate: PositiveFloat = 0.05
    momentum: Fraction = 0.9
    weight_decay: NonNegativeFloat = 5e-4
    warmup_epochs: NonNegativeInt = 3
    """Linear warm-up, then cosine to zero."""
    augmentation: Literal["none", "crop-flip"] = "crop-flip"
    precision: Literal["fp32", "bf16"] = "fp32"
    tag: str | None = None
    """pretrained: timm's weight tag, for example augreg_in21k."""
    path: str | None = None
    """file: weights file (safetensors), absolute or under the data root."""
    seed: int = 0
    label: str | None = None


@options
class ChannelEntry:
    """Keys that every channel has."""

    codec: str
    error_feedback: bool = False
    """Clients keep what compression dropped and add it to their next message."""
    label: str | None = None


@options
class MethodEntry:
    """Keys that every method has."""

    method: str
    channel: str = "dense"
    """Entry of `channels` that messages travel through; `dense` (fp32) always exists."""
    label: str | None = None
    training: Overrides = Field(default_factory=dict)


@options
class Grid:
    """A block of cells: every combination of the named entries."""

    dataset: Name | list[Name]
    partition: Name | list[Name]
    model: Name | list[Name]
    method: Name | list[Name]


@options
class Experiment:
    """A question, the cells that answer it, and how they are shown."""

    title: str
    question: str = ""
    cells: Annotated[list[Grid], Field(min_length=1)]
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)] | None = None
    """Seeds of this experiment's runs; the config's own where not given."""
    reference: Name | None = None
    """Method that the paired differences are taken against."""
    metric: Literal["personal", "global"] = "personal"
    selection: Literal["last", "best", "tail"] = "last"
    """Headline: last round, best round by validation, or mean of the last 10 evaluated rounds."""
    figures: list[str] = Field(default_factory=list)


@options
class File:
    """Top level of a config file."""

    name: Name
    results: Annotated[str, StringConstraints(pattern=r"^[^{}]+$")] = "results"
    """Folder for everything that this config's rules write; no braces, which mark wildcards in rules."""
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)] = Field(default_factory=lambda: [0])
    training: Overrides = Field(default_factory=dict)
    """Defaults for every run; data set, partition, model and method entries override them, in that order."""
    datasets: dict[Name, Overrides]
    partitions: dict[Name, Overrides]
    models: dict[Name, Overrides]
    bases: dict[Name, Overrides] = Field(default_factory=dict)
    channels: dict[Name, Overrides] = Field(default_factory=dict)
    methods: dict[Name, Overrides]
    experiments: dict[Name, Experiment]


@dataclass(frozen=True)
class Plugin:
    """A validated entry: the keys that its kind shares, and the plug-in's own options."""

    name: str
    entry: Any
    options: Any


# kind of entry -> (its common keys, the key that names the plug-in, where plug-ins are registered)
KINDS: dict[str, tuple[type, str, Registry]] = {
    "datasets": (DatasetEntry, "source", DATA_SOURCES),
    "partitions": (PartitionEntry, "scheme", PARTITION_SCHEMES),
    "models": (ModelEntry, "backbone", BACKBONES),
    "channels": (ChannelEntry, "codec", CHANNELS),
    "methods": (MethodEntry, "method", METHODS),
}


@dataclass(frozen=True)
class Config:
    """A validated config: everything named, nothing resolved yet (see :mod:`fedbench.spec`)."""

    name: str
    results: Path
    seeds: tuple[int, ...]
    training: Overrides
    datasets: dict[str, Plugin]
    partitions: dict[str, Plugin]
    models: dict[str, Plugin]
    bases: dict[str, BaseEntry]
    channels: dict[str, Plugin]
    methods: dict[str, Plugin]
    experiments: dict[str, Experiment]

    def find(self, section: str, name: str, where: str = "") -> Any:
        """The entry `name` of `section`; a wrong name ends in a message with the nearest right one."""
        entries = getattr(self, section)
        if name not in entries:
            prefix = f"{where}: " if where else ""
            raise FedbenchError(f"{prefix}unknown {section.removesuffix('s')} {name!r}; {nearest(name, entries)}")
        return entries[name]


def parse_entry(section: str, name: str, values: Mapping[str, Any]) -> Plugin:
    """Split one entry into common and plug-in keys and validate both halves."""
    common, key, registry = KINDS[section]
    path = f"{section}.{name}"
    if key not in values:
        raise FedbenchError(f"{path}.{key}: this key is required; {nearest('', registry)}")
    entry_registered = registry.find(values[key], f"{path}.{key}")
    shared = set(names(common))
    own = {k: v for k, v in values.items() if k not in shared}
    entry = parse(common, {k: v for k, v in values.items() if k in shared}, path)
    plugin_options = parse(entry_registered.options, own, path, also_valid=tuple(shared))
    check_overrides(getattr(entry, "training", {}), f"{path}.training")
    return Plugin(name, entry, plugin_options)


def check_overrides(values: Mapping[str, Any], path: str) -> None:
    """Reject unknown training keys where they are written, not where they are merged."""
    for key in values:
        if key not in names(Training):
            raise FedbenchError(f"{path}.{key}: unknown key; {nearest(key, names(Training))}")


def validate(values: Mapping[str, Any]) -> Config:
    """Validate a config given as plain data and check every name that it mentions."""
    channels = values.get("channels", {})
    if isinstance(channels, Mapping):  # anything else is told apart below, like every other mistake
        values = {**values, "channels": {"dense": {"codec": "dense"}, **channels}}
    file = parse(File, values, "config")
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
        if model.entry.base is not None:
            config.find("bases", model.entry.base, f"models.{name}.base")
    for name, method in config.methods.items():
        config.find("channels", method.entry.channel, f"methods.{name}.channel")
    for name, channel in config.channels.items():
        codec = CHANNELS[channel.entry.codec].target
        reason = codec.objection(channel.options, channel.entry.error_feedback)
        if reason:
            raise FedbenchError(f"channels.{name}: {reason}")
    for name, dataset in config.datasets.items():
        public = dataset.entry.public
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
        for figure in experiment.figures:
            FIGURES.find(figure, f"{path}.figures")


def listed(value) -> list:
    """A list as it is, a single value as a list of one."""
    return value if isinstance(value, list) else [value]


def read(path: Path) -> dict[str, Any]:
    """Read one YAML file into plain data."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise FedbenchError(f"{path}: cannot read this config: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise FedbenchError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    values = plain_yaml(text, path)
    if not isinstance(values, dict):
        raise FedbenchError(f"{path}: expected keys and values at the top level")
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
    """Apply ``path.to.key=value`` assignments; values are read as YAML."""
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise FedbenchError(f"--set {assignment}: expected key=value, for example training.rounds=5")
        layer: Any = plain_yaml(text, f"--set {assignment}")
        for key in reversed(path.split(".")):
            layer = {key: layer}
        values = merge(values, layer)
    return dict(values)


def load(paths: Iterable[Path | str], assignments: Iterable[str] = ()) -> Config:
    """Read, merge (later files win) and validate config files, then apply assignments."""
    return validate(override(merge(*(read(Path(path)) for path in paths)), assignments))
