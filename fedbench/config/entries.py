"""Every key that a config file may have, apart from the plug-ins' own options.

Docstrings under fields become the descriptions in the JSON schema and in `fedbench list --options`.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from fedbench.options import (
    Fraction,
    Label,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    ProperFraction,
    ShareBelowOne,
    options,
)

# Entry names become folder names and Snakemake wildcards.
NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]*"
FOLDER = r"^[\w./+@=,:%-]+$"
Overrides = dict[str, Any]


def _folder(path: str) -> str:
    """A folder whose name means the same in a rule, in a shell and in a list of targets."""
    if not re.fullmatch(FOLDER, path):
        raise ValueError(
            "a folder's name may have letters, digits and the characters . / _ + @ = , : % - but no others"
        )
    return path


def _name(name: str) -> str:
    """The name of an entry."""
    if not re.fullmatch(NAME, name):
        raise ValueError("a name has letters a to z and digits, and behind the first the characters . _ + - too")
    return name


Name = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"pattern": f"^{NAME}$"})]


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
    momentum: ShareBelowOne = 0.0
    """Momentum of SGD."""
    betas: tuple[ShareBelowOne, ShareBelowOne] = (0.9, 0.999)
    """Moments of Adam and AdamW."""
    weight_decay: NonNegativeFloat = 0.0
    """Of everything that trains, heads and copies that stay with a client included; a private branch beside the shared
    LoRA (FedSDG, FedDPA) and its gates have none."""
    clip: PositiveFloat | None = None
    """Global-norm gradient clipping, per client."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate over rounds; cosine ends at zero."""
    aggregation: Literal["uniform", "samples"] = "uniform"
    """Weights of the cohort's messages in the mean."""
    augmentation: Literal["none", "crop-flip"] = "none"
    evaluate_every: PositiveInt = 1
    """Rounds between evaluations; round 0 (the base, fine-tuned first where `fine_tune_epochs` is above 0) and the last
    round are always evaluated."""
    fine_tune_epochs: NonNegativeInt = 0
    """Passes over its own samples that every client makes before its personal evaluation, on a copy; 0 evaluates what
    the federation left."""
    held_out: ShareBelowOne = 0.0
    """Share of the clients (rounded, at least one if above 0) that never join the federation, evaluated apart."""
    held_out_epochs: NonNegativeInt | None = None
    """Passes over its own samples that a held-out client makes before each evaluation; none takes fine_tune_epochs, and
    0 evaluates the shared model on newcomers as it is."""
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
    label: Label | None = None
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
    max_moved: Fraction = 0.1
    """Share of all training samples that repair may move between clients; what needs more is refused, because it would
    not be distributed as the scheme says. It decides whether a partition is made, not which."""
    label: Label | None = None
    training: Overrides = Field(default_factory=dict)


@options
class ModelEntry:
    """Keys that every model has."""

    backbone: str
    base: str | None = None
    """Entry of `bases` that the federation starts from; none is a random initialisation."""
    head: Literal["trainable", "frozen-kaiming", "frozen-orthogonal", "frozen-etf"] = "trainable"
    label: Label | None = None
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
    momentum: ShareBelowOne = 0.9
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
    label: Label | None = None


@options
class ChannelEntry:
    """Keys that every channel has."""

    codec: str
    error_feedback: bool = False
    """Clients keep what compression dropped and add it to their next message."""
    label: Label | None = None


@options
class MethodEntry:
    """Keys that every method has."""

    method: str
    channel: str = "dense"
    """Entry of `channels` that messages travel through; `dense` (fp32) always exists."""
    label: Label | None = None
    training: Overrides = Field(default_factory=dict)


@options
class Grid:
    """A block of cells: every combination of the named entries."""

    dataset: Name | list[Name]
    partition: Name | list[Name]
    model: Name | list[Name]
    method: Name | list[Name]


@options
class FigureEntry:
    """Keys that every figure has."""

    figure: str
    name: Name | None = None
    """Name of its files, where an experiment shows two figures of a kind; the figure's own where not given."""


@options
class Experiment:
    """A question, the cells that answer it, and how they are shown."""

    title: Label
    question: str = ""
    cells: Annotated[list[Grid], Field(min_length=1)]
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)] | None = None
    """Seeds of this experiment's runs; the config's own where not given."""
    reference: Name | None = None
    """Method that the paired differences are taken against."""
    metric: Literal["personal", "global"] = "personal"
    selection: Literal["last", "best", "tail"] = "last"
    """Headline: last round, best round by validation, or mean of the last 10 evaluated rounds."""
    figures: list[str | Overrides] = Field(default_factory=list)
    """Names of figures, or `figure` with options: {figure: sweep, x: method.rank}."""
    paper: Name | None = None
    """Paper whose published numbers get a table beside this experiment's own, as `fedsdg` or `flite`."""


@options
class File:
    """Top level of a config file."""

    name: Name
    results: Annotated[str, AfterValidator(_folder), Field(json_schema_extra={"pattern": FOLDER})] = "results"
    """Folder for everything that this config's rules write; no spaces, ~ or braces, which mean something in rules."""
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
