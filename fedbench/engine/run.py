"""A run from its spec to its folder: rounds, evaluations, checkpoints, results."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fedbench.channels.channel import dense_bytes
from fedbench.channels.make_channel import make_channel
from fedbench.config.identity import identity, identity_digest, mismatch
from fedbench.engine import checkpoint as checkpoints
from fedbench.engine import environment, results
from fedbench.engine.chunk import Chunk
from fedbench.engine.client_store import ClientStore
from fedbench.engine.clients import ClientTrainer
from fedbench.engine.declared import declared_tables, declared_values, rehearse
from fedbench.engine.evaluate import Evaluator
from fedbench.engine.interrupt import Interrupted, StopNow, StopRequest, moment
from fedbench.engine.population import Population, draw_held_out
from fedbench.engine.server import Server
from fedbench.engine.summary import summarise
from fedbench.errors import FedbenchError
from fedbench.files.io import damage, read_sealed, writing_errors
from fedbench.files.products import RUN
from fedbench.models.make_model import make_model
from fedbench.randomness import stream
from fedbench.registry import METHODS
from fedbench.site.locking import alone
from fedbench.tree import count, to_device

if TYPE_CHECKING:
    from fedbench.bases.base import Base
    from fedbench.config.spec import RunSpec
    from fedbench.data.store import Store
    from fedbench.partition.partition import Partition
    from fedbench.site.progress import Progress

CHECKPOINT_SECONDS = 60.0


def run(
    spec: RunSpec,
    store: Store,
    partition: Partition,
    base: Base,
    out: Path,
    checkpoint: Path,
    device: torch.device,
    threads: int,
    chunk: int | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
    time_limit: float | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Train a run, or continue it from its checkpoint, and write its folder.

    Parameters
    ----------
    base : what the federation starts from
    out : the run's folder
    checkpoint : folder for checkpoints; emptied when the run is complete
    chunk : clients trained at once; None takes the task's rule
    overwrite : replace results or a checkpoint of another spec instead of refusing
    time_limit : seconds after which to stop at the last finished round
    say : called with a line if another process is at work on this run, which is then waited for, if a finished
        run's tables are damaged, or if the run diverges

    Raises
    ------
    Interrupted
        After SIGTERM, SIGUSR1, Ctrl-C or the time limit; the checkpoint holds all finished rounds.
    FedbenchError
        If the folder belongs to another spec, has files of a run's names that no run made, cannot be written, or
        another process works on it beyond the time limit.
    """
    began = time.monotonic()
    with writing_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    with alone(out, checkpoint, say, time_limit):
        RUN.check(out, METHODS[spec.method.common.method].target.tables)
        wanted = identity(spec.digest, store.meta["sha256"], partition.sha256, base.sha256)
        if _is_complete(out, wanted, overwrite, say):
            return
        log = Log(out / "log.txt")
        left = None if time_limit is None else time_limit - (time.monotonic() - began)
        with StopRequest(left) as stop:
            this = Run(
                spec, store, partition, base, out, checkpoint, device, threads, chunk, progress, overwrite, stop, log
            )
            this.go()
        if this.state.diverged_round is not None:
            say(f"{out}: diverged in round {this.state.diverged_round}; the results end there and say so")


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


class Log:
    """The run's own lasting log; no rule declares it, so nothing deletes it before a retry."""

    def __init__(self, path: Path):
        self.path = path

    def __call__(self, line: str) -> None:
        with writing_errors(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S%z')} {line}\n")


class Run:
    """One run in progress."""

    def __init__(
        self, spec, store, partition, base, out, checkpoint, device, threads, chunk, progress, overwrite, stop, log
    ):
        self.spec, self.store, self.partition = spec, store, partition
        self.out, self.checkpoint, self.device, self.threads = out, checkpoint, device, threads
        self.progress, self.stop, self.log = progress, stop, log
        self.training, self.seed = spec.training, spec.seed
        self.started, self.cpu_started = time.perf_counter(), time.process_time()
        # exact and repeatable arithmetic: TF32 and autotuned kernels would make runs differ
        torch.backends.cudnn.benchmark = False
        self.one_time_bytes = dense_bytes(base.weights)
        self.identity = identity(spec.digest, store.meta["sha256"], partition.sha256, base.sha256)

        classifier = make_model(spec.model, store.shape, store.classes)
        classifier.load_state_dict(base.weights)
        classifier.to(device).eval()
        self.total_parameters = sum(parameter.numel() for parameter in classifier.parameters())
        method_class = METHODS[spec.method.common.method].target
        self.method = method_class(spec.method.options, classifier, self.training, self.seed)
        held_out = draw_held_out(self.seed, partition.clients, self.training.held_out)
        population = Population(store, partition, classifier, device, self.method.pooled, held_out)
        self.trainer = ClientTrainer(self.method, self.training, population, self.seed, stop.reason)
        self.chunk = Chunk(chunk or self.method.task.chunk(self.training.batch_size, device), log)
        self.evaluator = Evaluator(self.trainer, self.chunk)

        shared = to_device(self.method.init_shared(stream(self.seed, "shared")), device)
        self.channel = make_channel(spec.channel, shared)
        self.state = self._restore(overwrite) or checkpoints.State(
            round_number=-1,
            shared=shared,
            server=to_device(self.method.init_server(shared), device),
            channel=to_device(self.channel.init_server(), device),
            private={},
            memory={},
            held_out=held_out,
        )
        self.private = ClientStore(
            lambda client: self.method.init_private(stream(self.seed, "private", client), shared)
        )
        self.private.trees = self.state.private
        self.memory = ClientStore(lambda client: self.channel.init_memory())
        self.memory.trees = self.state.memory
        self.private_parameters = count(self.method.init_private(stream(self.seed, "private", 0), shared))
        rehearse(self.method, self.state.shared, self.private.gather([0], device))

    def _restore(self, overwrite: bool) -> checkpoints.State | None:
        try:
            state = checkpoints.load(self.checkpoint, identity_digest(self.identity), self.log)
        except FedbenchError:
            if not overwrite:
                raise
            self.log("a checkpoint that cannot be continued is discarded; starting from round 0")
            checkpoints.remove(self.checkpoint)
            return None
        if state is not None:
            for part in checkpoints.TREES:
                setattr(state, part, to_device(getattr(state, part), self.device))
            self.log(f"continuing after round {state.round_number}")
        return state

    @property
    def rounds(self) -> int:
        return self.training.rounds if self.method.phases() else 0

    def go(self) -> None:
        """All remaining rounds, then the results."""
        self.log(f"run {self.spec.digest} ({self.spec.cell.path}) on {environment.device_name(self.device)}")
        held_out = [] if self.method.pooled else self.state.held_out
        server = Server(self.trainer, self.channel, self.state, self.private, self.memory, self.chunk, held_out)
        with self._progress():
            saved = time.monotonic()
            for number in range(self.state.round_number + 1, self.rounds + 1):
                if self.state.diverged_round is not None:
                    break
                try:
                    self._round(server, number)
                except StopNow:
                    self._stop()
                if self.stop.reason():
                    self._stop()
                if time.monotonic() - saved > CHECKPOINT_SECONDS:
                    self._save()
                    saved = time.monotonic()
        self._clock()
        clients = self._personalised()
        rows = self.method.rows(clients, self.private.gather(clients, self.device)) if clients else {}
        tables = declared_tables(self.method, rows)
        results.write_results(
            self.out, self.state, self.store, self.partition, list(self.method.columns), tables, summarise(self)
        )
        checkpoints.remove(self.checkpoint)
        self.log("complete")

    def _round(self, server: Server, number: int) -> None:
        began = time.perf_counter()
        row = {"round": 0, "cumulative_bytes": 0, "diverged": 0} if number == 0 else server.round(number)
        row["seconds_train"] = time.perf_counter() - began if number else None
        last = number == self.rounds
        if not row["diverged"] and (number % self.training.evaluate_every == 0 or last):
            began = time.perf_counter()
            row |= self._evaluate(row)
            row["seconds_eval"] = time.perf_counter() - began
        self.state.round_number = number
        self.state.rows.append(row)
        for kind in ("train", "eval"):
            seconds = row.get(f"seconds_{kind}") or 0.0
            self.state.totals[kind] = self.state.totals.get(kind, 0.0) + seconds
        if self.progress is not None:
            self.progress.round(row)
        if row["diverged"]:
            self.log(f"diverged in round {number}")

    def _evaluate(self, row: dict[str, Any]) -> dict[str, Any]:
        evaluation = self.evaluator.evaluate(self.state.shared, self.private, self._personalised())
        columns = results.evaluation_columns(evaluation)
        results.remember(self.state, evaluation, {**row, **columns})
        clients = self._personalised()
        if not clients:
            return columns
        found = self.method.private_diagnostics(self.private.gather(clients, self.device))
        return columns | declared_values(self.method, found)

    def _personalised(self) -> list[int]:
        """Clients that hold something of their own."""
        return sorted(self.state.seen) if self.private_parameters else []

    @contextmanager
    def _progress(self):
        if self.progress is None:
            yield
            return
        self.progress.start(self.rounds, self.spec.cell.path)
        try:
            yield
        finally:
            self.progress.finish()

    def _clock(self) -> None:
        """Move the time since the last call into the state's totals."""
        now, cpu = time.perf_counter(), time.process_time()
        totals = self.state.totals
        totals["wall"] = totals.get("wall", 0.0) + now - self.started
        totals["cpu"] = totals.get("cpu", 0.0) + cpu - self.cpu_started
        self.started, self.cpu_started = now, cpu

    def _save(self) -> None:
        self._clock()
        checkpoints.save(self.checkpoint, self.state, identity_digest(self.identity))

    def _stop(self) -> None:
        if self.state.round_number >= 0:  # before round 0 there is nothing to go on from
            self._save()
        self.log(f"stopped {moment(self.state.round_number)} ({self.stop.reason()})")
        raise Interrupted(self.state.round_number, self.stop.reason())
