"""Tiny data, models, specs and whole runs, shared by the tests."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from fedbench import lazy
from fedbench.bases.base import Base
from fedbench.channels import dense
from fedbench.config.entries import DatasetEntry, PartitionEntry, Training
from fedbench.config.reading import Entry, parse_entry
from fedbench.config.spec import Cell, RunSpec
from fedbench.data.store import TEST, TRAIN, Store, prepare
from fedbench.engine.checkpointer import Checkpointer
from fedbench.engine.clock import Clock
from fedbench.engine.federation import Compute, Federation
from fedbench.engine.interrupt import StopRequest
from fedbench.engine.record import Record
from fedbench.engine.rows import round_row
from fedbench.engine.run import Run, RunFolder, Watchers, run
from fedbench.engine.state import FederationState
from fedbench.models import images
from fedbench.models.make_model import make_model
from fedbench.options import options, parse
from fedbench.partition.partition import Partition
from fedbench.registry import BACKBONES, METHODS
from fedbench.tree import Tree

# Ordered by what a training step costs: methods are tested on the first one that they can run with.
MODELS = {
    "mlp": {"backbone": "mlp", "hidden": 16},
    "resnet": {"backbone": "resnet-gn", "depth": 8, "width": 0.25},
    "vit": {"backbone": "small-vit", "dim": 32, "depth": 2, "heads": 2},
}
# Training samples per client; with batches of 20 the first makes one batch and the last six.
SIZES = (7, 19, 33, 64, 90, 120)
VALIDATION = (0, 3, 5, 8, 9, 12)
TESTS = (5, 9, 14, 3, 25, 11)
DATASET = Entry(
    "digits", DatasetEntry(source="digits"), parse_entry("datasets", "digits", {"source": "digits"}).options
)


@options
class HandMade:
    """A partition that a test wrote down."""

    sizes: list[int]


def prepare_digits(folder: Path) -> Store:
    """The embedded digits, 8x8 pixels and ten classes, prepared in `folder`."""
    return prepare(DATASET, folder, folder)


def ragged_partition(
    store: Store,
    sizes: tuple[int, ...] = SIZES,
    validation: tuple[int, ...] = VALIDATION,
    tests: tuple[int, ...] = TESTS,
) -> Partition:
    """Clients with exactly the given numbers of training, validation and test samples."""
    train, test = np.flatnonzero(store.splits == TRAIN), np.flatnonzero(store.splits == TEST)
    held = np.cumsum([count for pair in zip(sizes, validation, strict=True) for count in pair])
    parts = np.split(train, held)[:-1]
    return Partition(
        train=parts[0::2],
        validation=parts[1::2],
        test=np.split(test, np.cumsum(tests))[:-1],
        client_domains=np.zeros(len(sizes), np.int64),
        meta={"sha256": "ragged"},
    )


def make_spec(
    method: str = "fedavg",
    model: str | None = None,
    channel: dict[str, Any] | None = None,
    seed: int = 0,
    method_options: dict[str, Any] | None = None,
    **training: Any,
) -> RunSpec:
    """The spec of a short run; `training` overrides one round with batches of 20.

    Without a model, the method gets the first of MODELS that it does not object to.
    """
    name = model or fitting_models(method)[0]
    return RunSpec(
        cell=Cell("digits", "ragged", name, method, seed),
        dataset=DATASET,
        partition=Entry("ragged", PartitionEntry(scheme="hand-made", clients=len(SIZES)), HandMade(sizes=list(SIZES))),
        model=parse_entry("models", name, MODELS[name]),
        base=None,
        method=parse_entry("methods", method, {"method": method, **(method_options or {})}),
        channel=parse_entry("channels", "channel", channel or {"codec": "dense"}),
        training=parse(Training, {"rounds": 1, "batch_size": 20, **training}, "training"),
    )


def fitting_models(method: str) -> list[str]:
    """The tiny models that a method with its default options can run with."""
    return [model for model in MODELS if objection(make_spec(method, model)) is None]


def objection(spec: RunSpec) -> str | None:
    """Why the method cannot run with the model."""
    provides = BACKBONES[spec.model.common.backbone].target.provides
    return METHODS[spec.method.common.method].target.objection(spec.method.options, provides, spec)


def base_weights(spec: RunSpec, store: Store) -> Tree:
    """The starting weights of every run of a model."""
    return make_model(spec.model, store.shape, store.classes).state_dict()


def make_base(spec: RunSpec, store: Store) -> Base:
    """The starting weights as a run takes them."""
    weights = base_weights(spec, store)
    return Base(weights, hashlib.sha256(b"".join(leaf.numpy().tobytes() for leaf in weights.values())).hexdigest())


@contextmanager
def in_float64() -> Iterator[None]:
    """Let everything that the engine computes in float32 be float64, so that order of summation hardly matters.

    In float32 two right runs drift apart as far as their processor's kernels round differently: a step that divides by
    a gradient's size, or a unit that switches near zero, makes much of little. Draws and batches are the same.
    """
    from_numpy = torch.from_numpy

    def widened(array: np.ndarray) -> torch.Tensor:
        tensor = from_numpy(array)
        return tensor.double() if tensor.dtype == torch.float32 else tensor

    with ExitStack() as stack:
        stack.callback(images._affine.cache_clear)
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        images._affine.cache_clear()
        torch.set_default_dtype(torch.float64)
        for module in (lazy.torch, torch):  # the first keeps what it was once asked for
            stack.enter_context(mock.patch.object(module, "from_numpy", widened))
        stack.enter_context(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        stack.enter_context(mock.patch.dict(dense.DTYPES, fp32="float64"))
        yield


@dataclass
class Watch:
    """Stands in for a stop request and for the progress display, and counts what the engine does.

    Attributes
    ----------
    stop_at : stop at this look at the stop request (the engine looks at every local step and after every round)
    stop_after : stop when this round has ended
    looks : looks so far
    rounds : rounds reported so far
    """

    stop_at: int | None = None
    stop_after: int | None = None
    looks: int = 0
    rounds: list[int] = field(default_factory=list)

    def reason(self) -> str | None:
        self.looks += 1
        late = self.stop_at is not None and self.looks >= self.stop_at
        return "test" if late or (self.stop_after is not None and self.stop_after in self.rounds) else None

    def start(self, total_rounds: int, label: str) -> None: ...

    def round(self, row: dict[str, Any]) -> None:
        self.rounds.append(row["round"])

    def finish(self) -> None: ...


@dataclass
class Outcome:
    """A finished run: its folder, and the engine's last state and record (None if it was complete before)."""

    folder: Path
    state: FederationState | None
    record: Record | None

    @property
    def rounds(self) -> list[dict[str, str]]:
        return read_csv(self.folder / "rounds.csv")

    @property
    def clients(self) -> list[dict[str, str]]:
        return read_csv(self.folder / "clients.csv")

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())

    def numbers(self) -> dict[str, list[dict[str, str]]]:
        """Every table of the folder without the columns that hold seconds."""
        return {
            path.name: [
                {column: value for column, value in row.items() if not column.startswith("seconds_")}
                for row in read_csv(path)
            ]
            for path in sorted(self.folder.glob("*.csv"))
        }


def read_csv(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run_cell(
    folder: Path,
    store: Store,
    partition: Partition,
    spec: RunSpec,
    chunk: int | None = None,
    watch: Watch | None = None,
    overwrite: bool = False,
    **keywords: Any,
) -> Outcome:
    """Train `spec` into ``folder/run`` with its checkpoint in ``folder/checkpoint``.

    Raises
    ------
    Interrupted
        If `watch` stops it; calling again continues.
    """
    with mock.patch.object(StopRequest, "reason", (lambda _: watch.reason()) if watch else StopRequest.reason):
        done = run(
            spec,
            store,
            partition,
            make_base(spec, store),
            RunFolder(folder / "run", folder / "checkpoint", overwrite),
            Compute(threads=1, chunk=chunk),
            progress=watch,
            **keywords,
        )
    return Outcome(folder / "run", done and done.state, done and done.record)


def go(folder: Path, federation: Federation) -> Outcome:
    """Let a federation run into ``folder/run``."""
    checkpointer = Checkpointer(folder / "checkpoint", "digest", print)
    watchers = Watchers(Clock(), checkpointer, StopRequest(), log=lambda line: None)
    done = Run(federation, {}, folder / "run", watchers)
    done.go()
    return Outcome(folder / "run", done.state, done.record)


class Play:
    """A federation whose state moves on with each round, and all that it consists of, to look inside.

    Attributes
    ----------
    state, record : after the rounds so far
    """

    def __init__(self, federation: Any, state: FederationState):
        self.federation, self.state, self.record = federation, state, Record()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.federation, name)

    def round(self, number: int) -> dict[str, Any]:
        """Run a round; returns its row."""
        result = self.federation.round(self.state, number)
        row = round_row(result, self.record)
        self.state = result.state
        self.record.add(row, None)
        return row

    @property
    def private(self) -> Any:
        """What clients keep to themselves now."""
        return self.federation.private(self.state)

    def evaluate(self) -> Any:
        return self.federation.evaluate(self.state)


def make_federation(
    store: Store, partition: Partition, spec: RunSpec, chunk: int | None = None, **overrides: Any
) -> Federation:
    """The federation of a spec, from the same start as its runs."""
    return Federation(spec, store, partition, make_base(spec, store), Compute(threads=1, chunk=chunk), **overrides)


def play(store: Store, partition: Partition, spec: RunSpec, chunk: int | None = None, **overrides: Any) -> Play:
    """A federation before its first round."""
    federation = make_federation(store, partition, spec, chunk, say=lambda line: None, **overrides)
    return Play(federation, federation.init())


def trees_of(state: Any) -> dict[str, Tree]:
    """All the trees that a run's state holds, by name."""
    named = {part: getattr(state, part) for part in ("shared", "server", "channel")}
    for part in ("private", "memory"):
        # clients that keep nothing may or may not have an entry
        named.update({f"{part} of {c}": tree for c, tree in sorted(getattr(state, part).items()) if tree})
    return named


def assert_equal_trees(first: dict[str, Tree], second: dict[str, Tree], tolerance: float | None = None) -> None:
    """Named trees are equal, bit for bit or within an absolute and relative tolerance."""
    assert first.keys() == second.keys()
    for part, tree in first.items():
        assert tree.keys() == second[part].keys(), part
        for name, leaf in tree.items():
            other = second[part][name]
            assert leaf.shape == other.shape, f"{part} {name}"
            if tolerance is None:
                assert torch.equal(leaf, other), f"{part} {name} differs"
            else:
                torch.testing.assert_close(
                    leaf, other, rtol=tolerance, atol=tolerance, msg=lambda text, at=f"{part} {name}": f"{at}: {text}"
                )
