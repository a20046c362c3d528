"""From experiments to runs: resolved specs, their identities and their places on disk."""

import hashlib
import itertools
import json
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from fedbench.config.entries import BaseEntry, Training
from fedbench.config.layers import merge
from fedbench.config.reading import Config, Entry, listed
from fedbench.errors import FedbenchError, nearest
from fedbench.options import parse
from fedbench.registry import BACKBONES, METHODS

# Presentation, the layers that Training was merged from, and a limit that only refuses: none changes a result itself.
NOT_IDENTITY = ("label", "training", "max_moved")


@dataclass(frozen=True)
class Cell:
    """The names of one run; also its target name below the results folder."""

    dataset: str
    partition: str
    model: str
    method: str
    seed: int

    @property
    def path(self) -> str:
        return f"{self.dataset}/{self.partition}/{self.model}/{self.method}/seed{self.seed}"


@dataclass(frozen=True)
class RunSpec:
    """Everything that determines a run's numbers, resolved from a config."""

    cell: Cell
    dataset: Entry
    partition: Entry
    model: Entry
    base: BaseEntry | None
    method: Entry
    channel: Entry
    training: Training

    @property
    def seed(self) -> int:
        return self.cell.seed

    @cached_property
    def data_spec(self) -> dict[str, Any]:
        """What the prepared data depend on."""
        return plain(self.dataset)

    @cached_property
    def partition_spec(self) -> dict[str, Any]:
        """What the partition depends on."""
        return {"dataset": self.data_spec, "partition": plain(self.partition), "seed": self.seed}

    @cached_property
    def base_spec(self) -> dict[str, Any]:
        """What the base model depends on."""
        base = None if self.base is None else {k: v for k, v in asdict(self.base).items() if k not in NOT_IDENTITY}
        return {"dataset": self.data_spec, "model": plain(self.model), "base": base}

    @cached_property
    def full(self) -> dict[str, Any]:
        """What the run depends on, as plain data."""
        return {
            **self.base_spec,
            "partition": plain(self.partition),
            "method": {k: v for k, v in plain(self.method).items() if k != "channel"},
            "channel": plain(self.channel),
            "training": asdict(self.training),
            "seed": self.seed,
        }

    @cached_property
    def seedless_digest(self) -> str:
        """Identity of all that it shares with the same run from other seeds."""
        return digest({key: value for key, value in self.full.items() if key != "seed"})

    @cached_property
    def digest(self) -> str:
        """Identity of the run."""
        return seeded(self.seedless_digest, self.seed)


def plain(plugin: Entry) -> dict[str, Any]:
    """A plug-in entry as one flat mapping, without labels; of a plug-in from outside the source is part, too."""
    values = {**asdict(plugin.common), **asdict(plugin.options)}
    source = {} if plugin.source_sha256 is None else {"source_sha256": plugin.source_sha256}
    return {**{key: value for key, value in values.items() if key not in NOT_IDENTITY}, **source}


def digest(values: Any) -> str:
    """A short identity of plain data."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def seeded(seedless: str, seed: int) -> str:
    """The identity of a run, from that of all but its seed."""
    return digest([seedless, seed])


def resolve(config: Config, cell: Cell) -> RunSpec:
    """Look up a cell's entries, merge its training options and check that its parts fit together."""
    dataset = config.find("datasets", cell.dataset)
    partition = config.find("partitions", cell.partition)
    model = config.find("models", cell.model)
    method = config.find("methods", cell.method)
    layers = [config.training, *(plugin.common.training for plugin in (dataset, partition, model, method))]
    training = parse(Training, merge(*layers), f"training of {cell.path}")
    base = config.bases[model.common.base] if model.common.base else None
    if base is not None and base.data == "public" and base.kind == "pretrain" and dataset.common.public is None:
        raise FedbenchError(
            f"{cell.path}: base {model.common.base!r} trains on a public share, but datasets.{cell.dataset} "
            "has no 'public' key; add one or use another model"
        )
    spec = RunSpec(cell, dataset, partition, model, base, method, config.channels[method.common.channel], training)
    check_fit(spec)
    return spec


def held_out_size(clients: int, share: float) -> int:
    """How many of so many clients stay out of the federation: at least one of any share."""
    return max(1, round(share * clients)) if share else 0


def check_fit(spec: RunSpec) -> None:
    """Reject combinations that make no sense, with the method's own reason, before anything runs."""
    method = METHODS[spec.method.common.method].target
    backbone = BACKBONES[spec.model.common.backbone].target
    reason = method.objection(spec.method.options, backbone.provides, spec)
    if reason is None and not method.communicates and spec.channel.common.codec != "dense":
        reason = f"method {spec.method.name} sends nothing that channel {spec.channel.name} could code; remove channel"
    clients, held_out = spec.partition.common.clients, spec.training.held_out
    if reason is None and held_out_size(clients, held_out) >= clients:
        reason = (
            f"training.held_out {held_out:g} of {clients} clients leaves none to train; lower it or use more clients"
        )
    if reason:
        raise FedbenchError(f"{spec.cell.path}: {reason}")


def cells(config: Config, experiment: str | None = None) -> list[Cell]:
    """The runs that a config (or one experiment of it) asks for, each once, in the order of first mention."""
    experiments = config.experiments.values() if experiment is None else [config.find("experiments", experiment)]
    found: dict[Cell, None] = {}
    for entry in experiments:
        for grid in entry.cells:
            axes = [listed(getattr(grid, field.name)) for field in fields(grid)]
            for seed in entry.seeds or config.seeds:
                for dataset, partition, model, method in itertools.product(*axes):
                    found[Cell(dataset, partition, model, method, seed)] = None
    return list(found)


def find_cell(config: Config, cell: Cell) -> Cell:
    """Return `cell` if the config asks for it; otherwise say which cell was probably meant."""
    every = cells(config)
    if cell not in every:
        hint = nearest(cell.path, [c.path for c in every], otherwise="`fedbench cells` lists the runs")
        raise FedbenchError(f"no run named {cell.path!r} in config {config.name!r}; {hint}")
    return cell


@dataclass(frozen=True)
class Paths:
    """Where each stage writes below the results folder."""

    root: Path

    def data(self, dataset: str) -> Path:
        return self.root / "data" / dataset

    def partition(self, dataset: str, partition: str, seed: int | str) -> Path:
        return self.root / "partitions" / dataset / partition / f"seed{seed}"

    def base(self, dataset: str, model: str) -> Path:
        return self.root / "bases" / dataset / model

    def run(self, cell: Cell) -> Path:
        return self.root / "runs" / cell.path
