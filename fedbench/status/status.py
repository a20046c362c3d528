"""How far every run of a config is, from files alone: no scheduler is asked and no torch imported.

==========  ================================================================================================
done        its summary.json is that of the config's spec, and of the data, partition and base that lie beside it
running     a process of this machine holds its lock, or it wrote something a short while ago
resumable   it was stopped, and has a checkpoint unless that was before its first round
failed      its last log ends with an error, or just ends
outdated    what lies there was made from another spec, or from other inputs; the workflow makes it again
missing     nothing is there yet, or no longer
==========  ================================================================================================
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from fedbench.config.identity import Present, identity_digest, mismatch
from fedbench.config.places import checkpoint_of
from fedbench.config.plan import Plan
from fedbench.config.spec import Cell
from fedbench.site.progress import duration
from fedbench.status.evidence import Evidence, gather, locked_inodes
from fedbench.status.pace import Pace

STATES = ("done", "running", "resumable", "failed", "outdated", "missing")
# A run saves every minute and prints a line every ten seconds, unless its rounds are longer than that.
RECENT_SECONDS = 600.0
RECENT_ROUNDS = 3


@dataclass(frozen=True)
class Status:
    """One run.

    Attributes
    ----------
    round, rounds : rounds done and wanted
    bytes : on disk, checkpoints included
    seconds_left : expected computing time; None where no run tells
    detail : what else there is to know, such as the last line of a failed run's log
    log : the log that says so
    base_known : False for a finished run that an earlier version made, which did not record its base
    """

    cell: Cell
    state: str
    round: int
    rounds: int
    bytes: int
    seconds_left: float | None
    detail: str = ""
    log: Path | None = None
    base_known: bool = True


def look(plan: Plan, cells: Iterable[Cell], checkpoints: Path, now: float | None = None) -> list[Status]:
    """The status of runs.

    Parameters
    ----------
    cells : runs of the plan
    checkpoints : folder of all checkpoints
    now : seconds since the epoch; the present where not given
    """
    now = time.time() if now is None else now
    found, pace, locks = {}, Pace(), locked_inodes()
    logs = plan.paths.root / "logs/run"
    for cell in cells:
        folder = plan.paths.run(cell)
        found[cell] = evidence = gather(folder, checkpoint_of(folder, checkpoints), logs / f"{cell.path}.log", now)
        if evidence.summary:
            seconds = evidence.summary.get("seconds", {}).get("wall")
            pace.add(cell, seconds, evidence.summary.get("rounds_done"))
    present = Present(plan.paths)
    return [_status(plan, cell, evidence, present, pace, locks, now) for cell, evidence in found.items()]


def _status(
    plan: Plan, cell: Cell, evidence: Evidence, present: Present, pace: Pace, locks: frozenset[int], now: float
) -> Status:
    rounds = plan.spec(replace(cell, seed=0)).training.rounds  # the same for all seeds, and then looked up just once
    digest = plan.run_digest(cell)
    summary = evidence.summary
    wanted = present.identity(cell, digest)
    reason = mismatch(summary, wanted) if summary else None
    if summary and reason is None:
        detail = f"diverged in round {summary.get('diverged_round')}" if summary.get("diverged") else ""
        done, base_known = summary.get("rounds_done", rounds), summary.get("base_sha256") is not None
        return Status(cell, "done", done, rounds, evidence.bytes, 0.0, detail, base_known=base_known)

    start = evidence.start
    own_checkpoint = evidence.saved is not None and (start is None or start[0] == digest)
    foreign = None if own_checkpoint else "a checkpoint of another spec"
    if own_checkpoint and evidence.saved_identity and None not in wanted.values():
        own_checkpoint = evidence.saved_identity == identity_digest(wanted)
        foreign = None if own_checkpoint else "a checkpoint of other data, another partition or another base"
    progress = evidence.progress if own_checkpoint or (start and start[0] == digest) else None
    own_pace = evidence.seconds_per_round() if progress else None
    state, detail, log = _state(evidence, foreign, own_pace, locks, now, reason)

    done = progress[0] if progress and state == "running" else evidence.saved[0] if own_checkpoint else 0
    done = max(done, 0)
    left = own_pace * (rounds - done) if own_pace is not None else pace.seconds(cell, rounds - done)
    return Status(cell, state, done, rounds, evidence.bytes, left, detail, log)


def _state(
    evidence: Evidence,
    foreign: str | None,
    own_pace: float | None,
    locks: frozenset[int],
    now: float,
    reason: str | None,
) -> tuple[str, str, Path | None]:
    """(state, detail, log) of a run that is not done.

    `foreign` says what its checkpoint is instead of the run's own, `reason` what its results are, if it has any.
    """
    log = evidence.newest
    path = log.path if log else None
    age = now - evidence.last_sign
    recent = age < max(RECENT_SECONDS, RECENT_ROUNDS * (own_pace or 0.0))
    if evidence.lock is not None and evidence.lock in locks:
        return "running", "", path
    if evidence.damaged:
        return "failed", evidence.damaged, None
    if log is not None and log.failed:
        return "failed", log.last, path
    ended = log is not None and (log.stopped or log.complete)
    if recent and not ended and not evidence.summary and (evidence.lock is not None or log is evidence.job):
        # on another machine, or just killed, or still making its inputs
        return "running", f"last sign {duration(max(age, 0.0))} ago, no lock on this machine", path
    if evidence.summary or (evidence.saved and foreign):
        return "outdated", f"results {reason}" if evidence.summary else foreign, None
    if evidence.saved:
        return "resumable", log.last if log else "", path
    if log is None:
        return "missing", "", None
    if log.stopped and "after round" not in log.last:
        return "resumable", log.last, path
    if ended:
        return "missing", f"its {'results were' if log.complete else 'checkpoint was'} removed", path
    return "failed", f"ended without a word after: {log.last}", path
