"""Every key that a config file may have, apart from the plug-ins' own options.

Docstrings under fields become the descriptions in the JSON schema and in `fedbench list --options`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from fedbench.config.names import Folder, Name
from fedbench.options import (
    Label,
    NonNegativeFloat,
    NonNegativeInt,
    OpenShare,
    PositiveFloat,
    PositiveInt,
    PositiveShare,
    Share,
    ShareBelowOne,
    options,
)

Overrides = dict[str, Any]


@options
class Training:
    """How clients train and how often they are evaluated."""

    rounds: NonNegativeInt
    """Communication rounds of each run; more train longer and send more."""
    participation: PositiveShare = 1.0
    """Share of the clients in each round's cohort (rounded, at least one); more train and send more per round."""
    local_epochs: PositiveInt = 1
    """Passes over its own training samples that a client makes per round; more trains longer between messages."""
    local_steps: PositiveInt | None = None
    """Local steps per round instead of epochs (the batches still come from shuffled epochs); none takes
    `local_epochs`."""
    batch_size: PositiveInt = 64
    """Samples of each local step; more makes fewer steps of an epoch."""
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """Local optimiser, recreated at each participation. Adam's weight decay is L2 style, AdamW's decoupled."""
    learning_rate: PositiveFloat = 0.01
    """Size of the local steps, in the units of the optimiser; more learns faster and less steadily."""
    momentum: ShareBelowOne = 0.0
    """Momentum of local SGD; more carries earlier steps on for longer."""
    betas: tuple[ShareBelowOne, ShareBelowOne] = (0.9, 0.999)
    """Parts of Adam's and AdamW's moments that stay from step to step; more averages over more steps."""
    weight_decay: NonNegativeFloat = 0.0
    """Pull of everything that trains to zero, heads and copies that stay with a client included; more keeps weights
    smaller. A private branch beside the shared LoRA (FedSDG, FedDPA) and its gates have none."""
    clip: PositiveFloat | None = None
    """Largest norm of a client's whole gradient; longer ones are scaled down to it, and none clips nothing."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Course of the learning rate over the rounds; cosine ends at zero."""
    aggregation: Literal["uniform", "samples"] = "uniform"
    """Weights of the cohort's messages in the mean: all the same, or by numbers of training samples."""
    augmentation: Literal["none", "crop-flip"] = "none"
    """Random changes of training images: none, or shifted crops and horizontal flips."""
    evaluate_every: PositiveInt = 1
    """Rounds between evaluations; more saves time and says less about the course. Round 0 (the base, fine-tuned first
    where `fine_tune_epochs` is above 0) and the last round are always evaluated."""
    fine_tune_epochs: NonNegativeInt = 0
    """Passes over its own samples that every client makes before its personal evaluation, on a copy; more
    fits it better to the client, and 0 evaluates what the federation left."""
    held_out: ShareBelowOne = 0.0
    """Share of the clients (rounded, at least one if above 0) that never join the federation, evaluated apart; more
    leaves fewer to train."""
    held_out_epochs: NonNegativeInt | None = None
    """Passes over its own samples that a held-out client makes before each evaluation; none takes fine_tune_epochs, and
    0 evaluates the shared model on newcomers as it is."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of forward and backward passes; weights and optimisers stay fp32."""


@options
class PublicShare:
    """Training samples that no client holds, for a base trained on other data than the federation's."""

    fraction: OpenShare | None = None
    """Share of the training split, the same of each class (and domain); more leaves fewer samples to clients."""
    classes: list[int] | None = None
    """All training samples of these classes (class indices)."""
    domains: list[str] | None = None
    """All training samples of these domains (names)."""


@options
class DatasetEntry:
    """Keys that every data set has."""

    source: str
    """Plug-in that reads the data; `fedbench list datasets` has them."""
    public: PublicShare | None = None
    """Part of the data that goes to the base model and to no client."""
    test_fraction: OpenShare = 0.2
    """Share of the samples that makes the test split, stratified by (domain, class), where the source has none of its
    own; more leaves fewer to train."""
    label: Label | None = None
    """Name in tables and figures; the entry's own name where not given."""
    training: Overrides = Field(default_factory=dict)
    """Training options of the runs with this data set, over those that come before it."""


@options
class PartitionEntry:
    """Keys that every partition has."""

    scheme: str
    """Plug-in that deals samples to clients; `fedbench list partitions` has them."""
    clients: PositiveInt
    """Number of clients, held-out ones included; more leaves fewer samples to each."""
    validation: ShareBelowOne = 0.2
    """Share of each client's training samples set aside for validation, fixed with the partition; more trains on
    fewer."""
    min_samples: Annotated[int, Field(ge=2)] = 10
    """Training samples (validation included) that every client gets at least, by bounded repair; more moves more
    samples."""
    max_moved: Share = 0.1
    """Share of all training samples that repair may move between clients; what needs more is refused, because it would
    not be distributed as the scheme says. It decides whether a partition is made, not which."""
    label: Label | None = None
    """Name in tables and figures; the entry's own name where not given."""
    training: Overrides = Field(default_factory=dict)
    """Training options of the runs with this partition, over those that come before it."""


@options
class ModelEntry:
    """Keys that every model has."""

    backbone: str
    """Plug-in that builds the network; `fedbench list models` has them."""
    base: str | None = None
    """Entry of `bases` that the federation starts from; none is a random initialisation."""
    head: Literal["trainable", "frozen-kaiming", "frozen-orthogonal", "frozen-etf"] = "trainable"
    """The last layer: trained like the rest, or frozen at random (Kaiming), orthogonal or simplex (ETF) directions."""
    label: Label | None = None
    """Name in tables and figures; the entry's own name where not given."""
    training: Overrides = Field(default_factory=dict)
    """Training options of the runs with this model, over those that come before it."""


@options
class BaseEntry:
    """Where a model's starting weights come from."""

    kind: Literal["pretrain", "pretrained", "file"]
    """How the weights are made: `pretrain` trains centrally, `pretrained` takes timm's weights by name, `file` reads
    safetensors."""
    data: Literal["all", "public"] = "all"
    """pretrain: train on the whole training split, or only on the data set's public share."""
    epochs: PositiveInt = 100
    """pretrain: passes over its samples; more train longer."""
    batch_size: PositiveInt = 128
    """pretrain: samples of each step; more makes fewer steps of an epoch."""
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """pretrain: optimiser, as in `training`."""
    learning_rate: PositiveFloat = 0.05
    """pretrain: size of the steps after warm-up; more learns faster and less steadily."""
    momentum: ShareBelowOne = 0.9
    """pretrain: momentum of SGD; more carries earlier steps on for longer."""
    weight_decay: NonNegativeFloat = 5e-4
    """pretrain: pull of all weights to zero; more keeps them smaller."""
    warmup_epochs: NonNegativeInt = 3
    """pretrain: epochs over which the learning rate rises linearly, before it falls to zero as a cosine; more begins
    more slowly."""
    augmentation: Literal["none", "crop-flip"] = "crop-flip"
    """pretrain: random changes of training images, none or shifted crops and horizontal flips."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """pretrain: arithmetic of forward and backward passes; weights and optimiser stay fp32."""
    tag: str | None = None
    """pretrained: timm's weight tag, for example augreg_in21k."""
    path: str | None = None
    """file: weights file (safetensors), absolute or under the data root."""
    seed: int = 0
    """Seed of initial weights and batches; one base serves all seeds of the runs."""
    label: Label | None = None
    """Name in tables and figures; the entry's own name where not given."""


@options
class ChannelEntry:
    """Keys that every channel has."""

    codec: str
    """Plug-in that codes messages; `fedbench list channels` has them."""
    error_feedback: bool = False
    """Clients keep what compression dropped and add it to their next message."""
    label: Label | None = None
    """Name in tables and figures; the entry's own name where not given."""


@options
class MethodEntry:
    """Keys that every method has."""

    method: str
    """Plug-in that says what trains and travels; `fedbench list methods` has them."""
    channel: str = "dense"
    """Entry of `channels` that messages travel through; `dense` (fp32) always exists."""
    label: Label | None = None
    """Name in tables and figures; the entry's own name where not given."""
    training: Overrides = Field(default_factory=dict)
    """Training options of the runs with this method, over those that come before it."""


@options
class Grid:
    """A block of cells: every combination of the named entries."""

    dataset: Name | list[Name]
    """Entry of `datasets`, or a list of them."""
    partition: Name | list[Name]
    """Entry of `partitions`, or a list of them."""
    model: Name | list[Name]
    """Entry of `models`, or a list of them."""
    method: Name | list[Name]
    """Entry of `methods`, or a list of them."""


@options
class FigureEntry:
    """Keys that every figure has."""

    figure: str
    """Plug-in that draws it; `fedbench list figures` has them."""
    name: Name | None = None
    """Name of its files, where an experiment shows two figures of a kind; the figure's own where not given."""


@options
class Experiment:
    """A question, the cells that answer it, and how they are shown."""

    title: Label
    """Heading of the experiment in the report."""
    question: str = ""
    """What it asks, in one sentence for the report."""
    cells: Annotated[list[Grid], Field(min_length=1)]
    """Blocks of runs, each with every combination of the entries that it names."""
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)] | None = None
    """Seeds of this experiment's runs; the config's own where not given."""
    reference: Name | None = None
    """Method that the paired differences are taken against."""
    metric: Literal["personal", "global"] = "personal"
    """Which accuracy leads: of each client's own weights on its own test samples, or of the shared weights on all."""
    selection: Literal["last", "best", "tail"] = "last"
    """Which round leads: the last round, the best round by validation, or the mean of the last 10 evaluated rounds."""
    figures: list[str | Overrides] = Field(default_factory=list)
    """Names of figures, or figures with options, as in {figure: sweep, x: method.rank}."""
    paper: Name | None = None
    """Paper whose published numbers get a table beside this experiment's own, as `fedsdg` or `flite`."""


@options
class File:
    """Top level of a config file."""

    name: Name
    """Name of the config, for messages and the report."""
    results: Folder = "results"
    """Folder for everything that this config's rules write; no spaces, ~ or braces, which mean something in rules."""
    plugins: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    """Own code that registers plug-ins: importable modules, or paths of .py files relative to the config."""
    seeds: Annotated[list[NonNegativeInt], Field(min_length=1)] = Field(default_factory=lambda: [0])
    """Seeds that every cell is run with; more narrow the intervals and cost as many runs more."""
    training: Overrides = Field(default_factory=dict)
    """Defaults for every run; data set, partition, model and method entries override them, in that order."""
    datasets: dict[Name, Overrides]
    """Data sets by their names in this config."""
    partitions: dict[Name, Overrides]
    """Ways of dealing a data set to clients, by name."""
    models: dict[Name, Overrides]
    """Networks and what they start from, by name."""
    bases: dict[Name, Overrides] = Field(default_factory=dict)
    """Starting weights of models, by name."""
    channels: dict[Name, Overrides] = Field(default_factory=dict)
    """Ways of coding messages, by name; `dense` is always there."""
    methods: dict[Name, Overrides]
    """Federated methods with their options, by name."""
    experiments: dict[Name, Experiment]
    """Questions with the cells that answer them, by name."""
