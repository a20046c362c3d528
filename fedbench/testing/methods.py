"""The contracts of methods."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import torch

from fedbench.channels.make_channel import make_channel
from fedbench.engine.declared import check_declarations
from fedbench.engine.interrupt import Interrupted
from fedbench.methods.method import LocalResult, Method
from fedbench.registry import METHODS
from fedbench.testing.cases import Finished, MethodCase
from fedbench.testing.planning import imports_no_torch
from fedbench.tree import Tree, expand

CLIENTS = 3
CLOSE = 1e-3  # float32 and a handful of steps; a client that trains otherwise is off by far more
EXACT = ("round", "cohort", "lr", "uplink_bytes", "downlink_bytes", "cumulative_bytes", "diverged")


def chunk_size_changes_nothing_but_rounding(case: MethodCase) -> None:
    """Clients that train together are independent: one at a time is the reference for all at once."""
    with case.runs(rounds=1) as runs:
        alone, together = runs.train("alone", chunk=1), runs.train("together", chunk=64)
    for row, other in zip(alone.tables["rounds.csv"], together.tables["rounds.csv"], strict=True):
        for column in EXACT:
            assert row[column] == other[column], f"round {row['round']}: {column} depends on the chunk size"
        for column in ("train_loss", "update_norm", "global_loss"):
            if row[column] or other[column]:
                close = math.isclose(float(row[column]), float(other[column]), rel_tol=CLOSE, abs_tol=CLOSE)
                assert close, f"round {row['round']}: {column} is {row[column]} one by one, {other[column]} together"


def resumes_exactly(case: MethodCase) -> None:
    """A run that is stopped inside a round and after one, and continued, equals one that is not."""
    target = METHODS[case.method].target
    with case.runs() as runs:
        whole = runs.train("whole", chunk=1)
        for hook in ("finish", "diagnostics"):
            with _stopped_at(target, hook):
                try:
                    runs.train("stopped", chunk=1)
                except Interrupted:
                    continue
                assert int(whole.summary["rounds_done"]) == 0, f"`{hook}` is not called in trained rounds"
        _same_tables(whole, runs.train("stopped", chunk=1))


def equal_specs_give_equal_tables(case: MethodCase) -> None:
    """Nothing but the spec decides a run's numbers: no hidden state, no clock, no global random numbers."""
    with case.runs() as runs:
        first = runs.train("first")
        torch.rand(7)
        _same_tables(first, runs.train("second"))


def bytes_are_lengths_of_payloads(case: MethodCase) -> None:
    """The uplink that a run counts is the length of the method's packed message, for each client of the cohort."""
    method, shared = case.make()
    with case.runs(channel=None if not method.communicates else {"codec": "dense", "dtype": "fp16"}) as runs:
        run = runs.train("run")
        channel = make_channel(runs.spec.channel, shared)
    trained = run.tables["rounds.csv"][1:]
    if not method.communicates:
        for row in trained:
            assert int(row["uplink_bytes"]) == int(row["downlink_bytes"]) == 0, "it says that nothing travels"
        return
    message, _ = method.finish(_participation(case, method, shared))
    sent = len(channel.pack({name: leaf[0] for name, leaf in message.items()}, None))
    for row in trained:
        clients = len(row["cohort"].split())
        assert int(row["uplink_bytes"]) == clients * sent > 0, f"a message is {sent} bytes, of {clients} clients"


def private_leaves_never_travel(case: MethodCase) -> None:
    """What clients keep is in no message, and messages are of what the server holds."""
    method, shared = case.make()
    private = case.private(method, shared, CLIENTS)
    assert not shared.keys() & private.keys(), "a leaf is both shared and private"
    if not method.phases():
        return
    message, kept = method.finish(_participation(case, method, shared))
    assert not message.keys() & private.keys(), "a private leaf is in the message"
    assert kept.keys() == private.keys(), "`finish` keeps other leaves than `init_private` made"
    for name, leaf in kept.items():
        assert leaf.shape == private[name].shape, f"private {name} changes its shape"
    if method.communicates:
        assert message.keys() == shared.keys(), "messages have other leaves than the server holds"
        for name, leaf in message.items():
            assert leaf.shape == (CLIENTS, *shared[name].shape), f"message {name} has another shape than the leaf"


def newcomers_stay_outside(case: MethodCase) -> None:
    """Held-out clients are in no cohort, keep nothing, and are evaluated all the same."""
    method, shared = case.make()
    private = case.private(method, shared, CLIENTS)
    begins = method.newcomer(expand(shared, CLIENTS), private)
    assert begins.keys() == private.keys(), "`newcomer` makes other leaves than `init_private`"
    if method.pooled:
        return
    with case.runs(held_out=0.4) as runs:
        run = runs.train("run")
    outside = {row["client"] for row in run.tables["clients.csv"] if int(row["held_out"])}
    assert outside, "no client is held out"
    for row in run.tables["rounds.csv"]:
        assert not outside & set(row["cohort"].split()), f"round {row['round']}: a held-out client trains"
        assert float(row["held_out_accuracy_mean"]) >= 0
    for row in run.tables["clients.csv"]:
        assert row["client"] not in outside or int(row["participations"]) == 0


def columns_are_declared(case: MethodCase) -> None:
    """Columns, tables and facts are declared with their meaning, and written as declared."""
    method, _ = case.make()
    check_declarations(method)
    meanings = [*method.columns.values(), *(text for table in method.tables.values() for text in table.values())]
    assert all(meanings), "a column has no meaning"
    json.dumps(method.facts())
    with case.runs() as runs:
        run = runs.train("run")
    rows = run.tables["rounds.csv"]
    written = [column for column in rows[0] if column in method.columns]
    assert written == list(method.columns), "rounds.csv has other columns than the method declares"
    for column in method.columns:
        assert any(row[column] for row in rows) or not rows[1:], f"no round fills column {column}"
    for name, columns in method.tables.items():
        table = run.tables[name]
        assert not table or list(table[0]) == list(columns), f"{name} has other columns than the method declares"


def inputs_stay_as_they_were(case: MethodCase) -> None:
    """A method's functions make new trees; the engine relies on the old ones."""
    method, shared = case.make()
    result = _participation(case, method, shared)
    private = {name: leaf for name, leaf in result.trained.items() if name not in shared}
    server = method.init_server(shared)
    given = {"shared": shared, "received": result.received, "trained": result.trained, "server": server}
    before = {part: {name: leaf.clone() for name, leaf in tree.items()} for part, tree in given.items()}
    method.personal(result.received, private)
    method.global_weights(shared)
    if method.phases():
        message, kept = method.finish(result)
        moved = {name: leaf.clone() for name, leaf in message.items()}
        if message:
            mean = {name: leaf.mean(0) for name, leaf in message.items()}
            new, _ = method.aggregate(shared, mean, server, 0.5)
            assert new.keys() == shared.keys(), "`aggregate` makes other leaves than the server holds"
        method.personal(result.received, kept)
        _same_tree("message", message, moved)
    for part, tree in given.items():
        _same_tree(part, tree, before[part])


def planning_imports_no_torch(case: MethodCase) -> None:
    """Planning reads every plug-in's options in each of thousands of jobs."""
    imports_no_torch(METHODS[case.method].target)


METHOD_CHECKS: dict[str, Callable[[MethodCase], None]] = {
    check.__name__: check
    for check in (
        chunk_size_changes_nothing_but_rounding,
        resumes_exactly,
        equal_specs_give_equal_tables,
        bytes_are_lengths_of_payloads,
        private_leaves_never_travel,
        newcomers_stay_outside,
        columns_are_declared,
        inputs_stay_as_they_were,
        planning_imports_no_torch,
    )
}


@contextmanager
def _stopped_at(target: type[Method], hook: str) -> Iterator[None]:
    """Tell the run to stop, as a cluster would, when its first round calls a function of the method."""
    real, calls = getattr(target, hook), []

    def stopping(self, *arguments):
        calls.append(hook)
        if len(calls) == 2:  # the first call is the rehearsal before round 0
            signal.raise_signal(signal.SIGTERM)
        return real(self, *arguments)

    with mock.patch.object(target, hook, stopping):
        yield


def _participation(case: MethodCase, method: Method, shared: Tree) -> LocalResult:
    """What local training might have led to: every leaf moved a little, for each client in another way."""
    received = expand(shared, CLIENTS)
    start = {**received, **case.private(method, shared, CLIENTS)}
    shift = torch.arange(1, CLIENTS + 1)
    trained = {name: leaf + 0.01 * shift.view(-1, *[1] * (leaf.dim() - 1)) for name, leaf in start.items()}
    return LocalResult(received, trained, torch.full((CLIENTS,), 2.0), method.training.learning_rate)


def _same_tables(first: Finished, second: Finished) -> None:
    assert first.tables.keys() == second.tables.keys()
    for name, table in first.tables.items():
        for row, other in zip(table, second.tables[name], strict=True):
            differ = [column for column in row if row[column] != other[column]]
            assert not differ, f"{name}: {', '.join(differ)} differ in {row} and {other}"


def _same_tree(part: str, tree: Tree, before: Tree) -> None:
    for name, leaf in tree.items():
        assert torch.equal(leaf, before[name]), f"{part} {name} is written on"
