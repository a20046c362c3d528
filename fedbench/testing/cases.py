"""What is checked: a method or a channel with options, and the tiny runs and messages that it is tried on."""

from __future__ import annotations

import csv
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedbench.channels.make_channel import make_channel
from fedbench.config.plan import Plan
from fedbench.config.reading import parse_entry, validate
from fedbench.config.spec import Cell, RunSpec, digest, resolve
from fedbench.errors import FedbenchError
from fedbench.models.make_model import make_model
from fedbench.randomness import stream
from fedbench.registry import METHODS
from fedbench.stages import Workspace

if TYPE_CHECKING:
    import numpy as np

    from fedbench.channels.channel import Channel
    from fedbench.methods.method import Method
    from fedbench.tree import Tree

# Cheapest first: a method is tried on the first one that it does not object to.
MODELS = {
    "mlp": {"backbone": "mlp", "hidden": 8},
    "resnet": {"backbone": "resnet-gn", "depth": 8, "width": 0.25},
    "vit": {"backbone": "small-vit", "dim": 16, "depth": 1, "heads": 2},
}
TRAINING = {"rounds": 2, "participation": 0.6, "batch_size": 32, "learning_rate": 0.05}
SHAPES = {
    "d": (3, 1, 3, 2),
    "c": (2, 3),
    "b": (7,),
    "a": (),
}  # a codec goes by the template's order, not the alphabet's


@dataclass(frozen=True)
class MethodCase:
    """A method as a config names it, and what it trains.

    Attributes
    ----------
    model : an entry of `models`; the first small one that the method does not object to where not given
    training : training options, over those of a run of two rounds
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] | None = None
    training: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def spec(self) -> RunSpec:
        """The run of this method alone."""
        return self.plan_of({})[1]

    def plan_of(self, training: Mapping[str, Any], channel: Mapping[str, Any] | None = None) -> tuple[Plan, RunSpec]:
        """A config of one run, and that run's spec.

        Raises
        ------
        FedbenchError
            The method's own reason, if it objects to every model.
        """
        models = {f"own-{digest(self.model)}": self.model} if self.model else MODELS
        values: dict[str, Any] = {
            "name": "contract",
            "training": {**TRAINING, **self.training, **training},
            "datasets": {"digits": {"source": "digits", "public": {"fraction": 0.8}}},
            "partitions": {"uneven": {"scheme": "quantity", "clients": 5, "sigma": 0.5}},
            "models": models,
            "channels": {"tested": channel or {"codec": "dense", "dtype": "fp32"}},
            "methods": {"tested": {"method": self.method, **self.options, "channel": "tested"}},
            "experiments": {
                "only": {
                    "title": "Only",
                    "cells": [{"dataset": "digits", "partition": "uneven", "model": list(models), "method": "tested"}],
                }
            },
        }
        if not METHODS.find(self.method, "method").target.communicates:
            del values["methods"]["tested"]["channel"]
        config = validate(values)
        for place, model in enumerate(models):
            try:
                return Plan(config), resolve(config, Cell("digits", "uneven", model, "tested", 0))
            except FedbenchError:
                if place == len(models) - 1:
                    raise
        raise AssertionError("unreachable")

    def make(self) -> tuple[Method, Tree]:
        """The method on its model, and what the server holds at the beginning."""
        spec = self.spec
        classifier = make_model(spec.model, (1, 8, 8), 10)
        method = METHODS[self.method].target(spec.method.options, classifier, spec.training, spec.seed)
        return method, method.init_shared(stream(spec.seed, "shared"))

    def private(self, method: Method, shared: Tree, clients: int) -> Tree:
        """What so many clients keep at the beginning, stacked."""
        each = [method.init_private(stream(self.spec.seed, "private", client), shared) for client in range(clients)]
        return {name: torch.stack([tree[name] for tree in each]) for name in each[0]}

    @contextmanager
    def runs(self, channel: Mapping[str, Any] | None = None, **training: Any) -> Iterator[Runs]:
        """Runs of this case in a folder that is gone afterwards."""
        plan, spec = self.plan_of(training, channel)
        with tempfile.TemporaryDirectory() as folder:
            yield Runs(plan, spec, Path(folder))


@dataclass(frozen=True)
class Runs:
    """Runs of one spec, told apart by names."""

    plan: Plan
    spec: RunSpec
    folder: Path

    def train(self, name: str, chunk: int | None = None) -> Finished:
        """Train the run, or continue it."""
        made = _inputs()
        # one thread: only then are equal runs equal bit for bit
        work = Workspace(Plan(self.plan.config, made), made, "cpu", 1, lambda line: None)
        threads = torch.get_num_threads()
        try:
            with _quiet():
                return _finished(work.train(self.spec, self.folder / name, self.folder / "checkpoints", chunk))
        finally:
            torch.set_num_threads(threads)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the progress display out of the checks' output."""
    with open("/dev/null", "w", encoding="utf-8") as nowhere:
        before, sys.stderr = sys.stderr, nowhere
        try:
            yield
        finally:
            sys.stderr = before


@cache
def _keep() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="fedbench-testing-")


def _inputs() -> Path:
    """A folder for the data, partitions and bases that all checks of this process share."""
    return Path(_keep().name)


@dataclass(frozen=True)
class Finished:
    """What a finished run wrote.

    Attributes
    ----------
    tables : rows of each table by its file's name, without the columns that hold seconds
    """

    summary: dict[str, Any]
    tables: dict[str, list[dict[str, str]]]


def _finished(folder: Path) -> Finished:
    tables = {}
    for path in sorted(folder.glob("*.csv")):
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        tables[path.name] = [{key: row[key] for key in row if not key.startswith("seconds_")} for row in rows]
    return Finished(json.loads((folder / "summary.json").read_text(encoding="utf-8")), tables)


@dataclass(frozen=True)
class ChannelCase:
    """A codec as a config names it, and messages to send through it."""

    codec: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self, error_feedback: bool = False, empty: bool = False) -> Channel:
        """The channel for messages of :meth:`messages`, or for one without any value."""
        values = {"codec": self.codec, **self.options, "error_feedback": error_feedback}
        template = {} if empty else {name: torch.empty(shape) for name, shape in SHAPES.items()}
        return make_channel(parse_entry("channels", "tested", values), template)

    def messages(self) -> Tree:
        """Three clients' messages: normal values, one of all zeros, and one with ties and both zeros."""
        rng = stream(0, "contract")
        tree = {}
        for name, shape in SHAPES.items():
            normal = torch.from_numpy(rng.standard_normal(shape)).float()
            ties = torch.where(normal > 0.5, 1.0, torch.where(normal < -0.5, -1.0, normal * 0))
            tree[name] = torch.stack([normal, torch.zeros(shape), ties])
        return tree

    @staticmethod
    def streams(position: int) -> np.random.Generator:
        """Each client's generator for the round, made anew at every call."""
        return stream(0, "channel", 1, position)
