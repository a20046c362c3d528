"""A run from its spec to its folder: a federation, the folder, and those who watch."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.config.identity import identity, identity_digest, mismatch
from fedbench.engine import environment, results
from fedbench.engine.checkpointer import Checkpointer
from fedbench.engine.clock import Clock
from fedbench.engine.federation import Compute, Federation
from fedbench.engine.interrupt import Interrupted, StopNow, StopRequest
from fedbench.engine.record import Record
from fedbench.engine.rows import round_row, start_row
from fedbench.engine.summary import summarise
from fedbench.errors import FedbenchError
from fedbench.files import traces
from fedbench.files.io import damage, read_sealed, writing_errors
from fedbench.files.log import Log
from fedbench.files.products import RUN
from fedbench.registry import METHODS
from fedbench.site.locking import alone

if TYPE_CHECKING:
    from fedbench.bases.base import Base
    from fedbench.config.spec import RunSpec
    from fedbench.data.store import Store
    from fedbench.engine.evaluate import Evaluation
    from fedbench.engine.state import FederationState
    from fedbench.partition.partition import Partition
    from fedbench.site.progress import Progress


@dataclass(frozen=True)
class RunFolder:
    """Where a run writes.

    Attributes
    ----------
    out : the run's folder
    checkpoint : folder for checkpoints; emptied when the run is complete
    overwrite : replace results or a checkpoint of another spec instead of refusing
    """

    out: Path
    checkpoint: Path
    overwrite: bool = False


def run(
    spec: RunSpec,
    store: Store,
    partition: Partition,
    base: Base,
    folder: RunFolder,
    compute: Compute,
    progress: Progress | None = None,
    time_limit: float | None = None,
    say: Callable[[str], None] = print,
) -> Run | None:
    """Train a run, or continue it from its checkpoint, and write its folder.

    Parameters
    ----------
    base : what the federation starts from
    time_limit : seconds after which to stop at the last finished round
    say : called with a line if another process is at work on this run, which is then waited for, if a finished
        run's tables are damaged, or if the run diverges

    Returns
    -------
    the run at its end; None if it was complete already

    Raises
    ------
    Interrupted
        After SIGTERM, SIGUSR1, Ctrl-C or the time limit; the checkpoint holds all finished rounds.
    FedbenchError
        If the folder belongs to another spec, has files of a run's names that no run made, cannot be written, or
        another process works on it beyond the time limit.
    """
    began, out = time.monotonic(), folder.out
    with writing_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    with alone(out, folder.checkpoint, say, time_limit):
        RUN.check(out, METHODS[spec.method.common.method].target.tables)
        wanted = identity(spec.digest, store.meta["sha256"], partition.sha256, base.sha256)
        if _is_complete(out, wanted, folder.overwrite, say):
            return None
        log, clock = Log(out / traces.LOG), Clock()
        left = None if time_limit is None else time_limit - (time.monotonic() - began)
        with StopRequest(left) as stop:
            federation = Federation(spec, store, partition, base, compute, stop=stop.reason, say=log)
            checkpointer = Checkpointer(folder.checkpoint, identity_digest(wanted), log, folder.overwrite)
            this = Run(federation, wanted, out, Watchers(clock, checkpointer, stop, log, progress))
            this.go()
        if this.record.diverged_round is not None:
            say(f"{out}: diverged in round {this.record.diverged_round}; the results end there and say so")
        return this


def _is_complete(out: Path, wanted: dict[str, Any], overwrite: bool, say: Callable[[str], None]) -> bool:
    """Whether the folder already holds all of this run; another run's results are an error unless overwritten."""
    if not (out / "summary.json").exists():
        return False
    try:
        summary = read_sealed(out / "summary.json")
    except FedbenchError:
        if overwrite:
            return False
        raise
    reason = mismatch(summary, wanted)
    if reason is None:
        found = damage(out, summary["files"])
        if found:
            say(f"{found}; running again")
        return not found
    if overwrite:
        return False
    raise FedbenchError(f"{out}: holds results {reason}; give another --out, or --overwrite to replace them")


@dataclass(frozen=True)
class Watchers:
    """Who watches a run, each for one thing.

    Attributes
    ----------
    clock : counts its seconds
    checkpointer : saves it
    stop : says when it has to end
    log : takes lines that last
    progress : shows how far it is
    """

    clock: Clock
    checkpointer: Checkpointer
    stop: StopRequest
    log: Callable[[str], None]
    progress: Progress | None = None


@dataclass(frozen=True)
class Step:
    """A round that is done and not yet part of the run: the state after it, its row, its evaluation if it has one."""

    state: FederationState
    row: dict[str, Any]
    evaluation: Evaluation | None


class Run:
    """A federation on its way through its rounds into its folder.

    Parameters
    ----------
    federation : the maths
    identity : what the results say that they are of (:func:`fedbench.config.identity.identity`)
    out : the folder
    watchers : who watches

    Attributes
    ----------
    state, record : of the rounds done; a round becomes part of them as a whole or not at all
    """

    def __init__(self, federation: Federation, identity: dict[str, Any], out: Path, watchers: Watchers):
        self.federation, self.identity, self.out, self.watchers = federation, identity, out, watchers
        found = watchers.checkpointer.load(federation.compute.device)
        self.state, self.record = found or (federation.init(), Record(held_out=federation.held_out))

    def go(self) -> None:
        """All remaining rounds, then the results.

        Raises
        ------
        Interrupted
            If a stop was requested; what is done is saved.
        """
        federation, watchers = self.federation, self.watchers
        spec, device = federation.spec, federation.compute.device
        watchers.log(traces.started(spec.digest, spec.cell.path, environment.device_name(device)))
        with self._progress():
            for number in range(self.record.last_round + 1, federation.rounds + 1):
                if self.record.diverged_round is not None:
                    break
                try:
                    step = self._step(number)
                except StopNow:
                    self._stop()
                self._commit(step)
                if watchers.stop.reason():
                    self._stop()
                if watchers.checkpointer.due():
                    self._save()
        self._write()
        watchers.checkpointer.remove()
        watchers.log(traces.COMPLETE)

    def _step(self, number: int) -> Step:
        """Round `number` and its evaluation; changes nothing. Round 0 is the evaluation of the start."""
        federation, training = self.federation, self.federation.spec.training
        began, state = time.perf_counter(), self.state
        if number:
            result = federation.round(state, number)
            state, row = result.state, round_row(result, self.record)
        else:
            row = start_row()
        row["seconds_train"] = time.perf_counter() - began if number else None
        due = number % training.evaluate_every == 0 or number == federation.rounds
        if row["diverged"] or not due:
            return Step(state, row, None)
        began = time.perf_counter()
        evaluation = federation.evaluate(state)
        row |= results.evaluation_columns(evaluation)
        row["seconds_eval"] = time.perf_counter() - began
        return Step(state, row, evaluation)

    def _commit(self, step: Step) -> None:
        """Make a round part of the run."""
        self.state = step.state
        self.record.add(step.row, step.evaluation)
        if self.watchers.progress is not None:
            self.watchers.progress.round(step.row)
        if step.row["diverged"]:
            self.watchers.log(f"diverged in round {step.row['round']}")

    def _write(self) -> None:
        self._lap()
        federation, state, record = self.federation, self.state, self.record
        summary = summarise(federation, state, record, self.identity)
        tables = results.tables(state, record, federation.store, federation.partition, federation.method.columns)
        results.write_results(self.out, {**tables, **federation.tables(state)}, summary)

    @contextmanager
    def _progress(self):
        progress = self.watchers.progress
        if progress is None:
            yield
            return
        progress.start(self.federation.rounds, self.federation.spec.cell.path)
        try:
            yield
        finally:
            progress.finish()

    def _lap(self) -> None:
        """Move the time since the last lap into the record."""
        for kind, seconds in self.watchers.clock.lap().items():
            self.record.count(kind, seconds)

    def _save(self) -> None:
        self._lap()
        self.watchers.checkpointer.save(self.state, self.record)

    def _stop(self) -> None:
        done, reason = self.record.last_round, self.watchers.stop.reason()
        if done >= 0:  # before round 0 there is nothing to go on from
            self._save()
        self.watchers.log(traces.stopped(done, reason))
        raise Interrupted(done, reason)
