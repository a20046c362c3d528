"""A run's folder as the engine writes it, from what a process is made to report instead of training."""

from collections import Counter
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol
from unittest.mock import patch

import numpy as np
import torch

from fedbench.config.identity import identity
from fedbench.config.spec import RunSpec
from fedbench.data.store import Store
from fedbench.engine import environment, results
from fedbench.engine.evaluate import Evaluation
from fedbench.engine.federation import Compute
from fedbench.engine.record import Record
from fedbench.engine.rows import byte_columns, start_row
from fedbench.engine.state import FederationState
from fedbench.engine.summary import summarise
from fedbench.methods import _gates
from fedbench.partition.partition import Partition

CLASSES = 10
PLACE = {
    "versions": lambda: {"python": "3.11.7", "torch": "2.14.1", "fedbench": "0.1.0"},
    "commit": lambda: {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
    "peak_rss_bytes": lambda: 500_000_000,
    "device_name": lambda device: "cpu",
}


class Process(Protocol):
    """What a run reports.

    Attributes
    ----------
    rounds : the last one; where the run diverges, it is the first without a finite loss
    held_out : clients outside the federation
    shared, private, total : numbers of values
    """

    spec: RunSpec
    rounds: int
    diverged: bool
    clients: int
    held_out: list[int]
    domain_names: tuple[str, ...]
    communicates: bool
    shared: int
    private: int
    total: int
    one_time_bytes: int
    seconds: float

    def evaluation(self, number: int) -> Evaluation: ...

    def messages(self, number: int) -> dict[int, tuple[int, int]]:
        """Bytes up and down of each client of a round's cohort."""

    def diagnostics(self, number: int) -> dict[str, float]: ...

    def gates(self) -> list[dict[str, Any]]: ...


def write_folder(out: Path, process: Process) -> None:
    """Let the engine collect, summarise and write what a process reports."""
    store, partition = _data(process.domain_names), _partition(process.clients, len(process.domain_names))
    record, participations = Record(held_out=process.held_out), Counter()
    for number in range(process.rounds + 1):
        _round(record, participations, process, number)
    weights = {"w": torch.zeros(1).expand(process.shared)}
    state = FederationState(record.last_round, weights, {}, {}, participations=participations)
    record.totals |= {part: process.seconds * share for part, share in
                     (("wall", 1), ("cpu", 0.9), ("train", 0.7), ("eval", 0.2))}  # fmt: skip
    made_of = identity(process.spec.digest, store.meta["sha256"], partition.sha256, "2" * 64)
    federation = SimpleNamespace(
        spec=process.spec, store=store, partition=partition, one_time_bytes=process.one_time_bytes,
        method=SimpleNamespace(communicates=process.communicates, facts=dict), compute=Compute(threads=1),
        private_parameters=process.private, total_parameters=process.total, chunk=SimpleNamespace(size=10),
    )  # fmt: skip
    with patch.multiple(environment, **PLACE):
        summary = summarise(federation, state, record, made_of)
    tables = results.tables(state, record, store, partition, _gates.COLUMNS)
    tables[_gates.TABLE] = (list(_gates.TABLE_COLUMNS), process.gates())
    results.write_results(out, tables, summary)


def _round(record: Record, participations: Counter, process: Process, number: int) -> None:
    row, evaluation = start_row(), None
    if number:
        sent = process.messages(number)
        row = {
            "round": number,
            "cohort": " ".join(map(str, sent)),
            "train_loss": 2 / number,
            "lr": 0.001,
            "diverged": int(process.diverged and number == process.rounds),
            "seconds_train": 1.0,
            **process.diagnostics(number),
            **byte_columns(*map(list, zip(*sent.values(), strict=True)), record),
        }
        participations.update(sent.keys())
    every = process.spec.training.evaluate_every
    if row["diverged"]:
        row["train_loss"] = None
    elif number % every == 0 or number == process.rounds:
        evaluation = process.evaluation(number)
        row |= results.evaluation_columns(evaluation)
    record.add(row, evaluation)


@lru_cache
def _data(domains: tuple[str, ...]) -> Store:
    size = 20_000
    of = np.arange(size) % len(domains)
    classes = tuple(map(str, range(CLASSES)))
    images = np.zeros((size, 1, 1, 1), np.uint8)
    return Store(
        images, of % CLASSES, of, np.zeros(size, np.uint8), classes, domains, None, {"sha256": {"all": "0" * 64}}
    )


@lru_cache
def _partition(clients: int, domains: int) -> Partition:
    """Client k holds 100 + 3k samples to train, 20 + k to validate and 25 + 2k to test."""
    sizes = [(100 + 3 * client, 20 + client, 25 + 2 * client) for client in range(clients)]
    ends = np.cumsum([size for own in sizes for size in own])
    parts = np.split(np.arange(ends[-1]), ends[:-1])
    main = np.arange(clients) % domains
    return Partition(parts[::3], parts[1::3], parts[2::3], main, {"sha256": "1" * 64})
