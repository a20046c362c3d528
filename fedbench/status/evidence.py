"""What a run's folders say about it: sizes, times, the end of its logs, who holds its lock.

Only names, sizes and the ends of text files are read. Checkpoints stay closed, since their names tell the round, and
locks are looked up without being taken, since a run that starts at that moment would find itself locked out.
"""

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from fedbench.errors import FedbenchError
from fedbench.files.io import read_sealed
from fedbench.files.traces import CHECKPOINT, COMPLETE, CONTINUED, LOG, PROGRESS, STAMP, STARTED, STOPPED

# The command line's own errors, click's, an uncaught exception's, and those of clusters and shells, which also name the
# line and the process: `environment: line 2: 4711 Killed  python ...`.
FAILURE = re.compile(
    r"(error|Error|slurmstepd: error|fatal): |([A-Za-z_]+\.)*[A-Z]\w+Error\b"
    r"|(\S+: line \d+: +\d+ )?(Killed|Terminated|Aborted|Segmentation fault|Bus error|Illegal instruction)\b"
)
HEADER_BYTES = 100 << 20  # the most that safetensors allows
TAIL_BYTES = 4096
# Clocks of a cluster's machines differ by so much at most; what is dated later is not believed.
CLOCK_SECONDS = 60.0


@dataclass(frozen=True)
class LogTail:
    """The end of a log: when it was last written (seconds since the epoch, 0 if that is not known), its last lines."""

    path: Path
    written: float
    lines: tuple[str, ...]

    @property
    def last(self) -> str:
        return STAMP.sub("", self.lines[-1], count=1)

    @property
    def complete(self) -> bool:
        """Whether a run ended well: these are the last words of its own log and of its job's."""
        return self.last == COMPLETE or self.last.endswith("/summary.json")

    @property
    def stopped(self) -> bool:
        """Whether a run saved and left."""
        return bool(STOPPED.match(self.last))

    @property
    def failed(self) -> bool:
        return bool(FAILURE.match(self.last)) or any(line.startswith("Traceback (most") for line in self.lines[-40:])


@dataclass(frozen=True)
class Evidence:
    """Everything that was found out about one run.

    Attributes
    ----------
    summary : contents of summary.json; None where there is none, it is damaged, or a table that it names is missing
    damaged : what is wrong with the folder of a finished run, or None
    bytes : size of the run folder and its checkpoints
    saved : the newest checkpoint's round and time, or None
    saved_identity : what the newest checkpoint says of its run's spec and inputs; None where nothing can be read
    own : the run's log.txt, in which each start has a line
    job : the log of the workflow's job, with everything that the run printed; None while it is empty, since Snakemake
        makes it before the job runs
    now : when it was found out, in seconds since the epoch
    lock : inode of the lock file, or None where there is none
    """

    summary: dict[str, Any] | None
    damaged: str | None
    bytes: int
    saved: tuple[int, float] | None
    saved_identity: str | None
    own: LogTail | None
    job: LogTail | None
    now: float
    lock: int | None

    @property
    def newest(self) -> LogTail | None:
        """The log that was written last."""
        return max((log for log in (self.own, self.job) if log), key=lambda log: log.written, default=None)

    @property
    def last_sign(self) -> float:
        """When the run last wrote anything; 0 for never."""
        return max(self.saved[1] if self.saved else 0.0, self.newest.written if self.newest else 0.0)

    @cached_property
    def start(self) -> tuple[str, float, int] | None:
        """The last start's spec digest, time (infinite if it is not known), and the round that it started from."""
        lines = self.own.lines if self.own else ()
        for index in range(len(lines) - 1, -1, -1):
            stamp = STAMP.match(lines[index])
            began = stamp and STARTED.match(lines[index], stamp.end())
            if began:
                before = CONTINUED.search(lines[index - 1]) if index else None
                when = _seconds(*stamp.groups())
                when = when if when <= self.now + CLOCK_SECONDS else float("inf")
                return began[1], when, int(before[1]) if before else 0
        return None

    @cached_property
    def progress(self) -> tuple[int, float] | None:
        """The newest finished round that is known of, and when it was known."""
        start, found = self.start, [self.saved] if self.saved else []
        if self.job and start and self.job.written >= start[1]:
            rounds = (match for line in reversed(self.job.lines) if (match := PROGRESS.search(line)))
            found += [(int(match[1]), self.job.written) for match in islice(rounds, 1)]
        return max(found, default=None)

    def seconds_per_round(self) -> float | None:
        """The run's own pace since its last start, or None while it has finished no round."""
        start, progress = self.start, self.progress
        if start is None or progress is None or progress[0] <= start[2] or progress[1] <= start[1]:
            return None
        return (progress[1] - start[1]) / (progress[0] - start[2])


def _seconds(local: str, offset: str | None) -> float:
    """A stamp as seconds since the epoch; one without an offset (older versions wrote none) is of this time zone."""
    return datetime.fromisoformat(local + (offset or "")).timestamp()


def gather(folder: Path, checkpoint: Path, job_log: Path, now: float) -> Evidence:
    """Look at a run's folder, its checkpoints, their lock and the log of its job; any of them may be missing.

    Files that are dated later than `now` (seconds since the epoch) say nothing about when they were written.
    """
    files, saves = _files(folder), _files(checkpoint)
    summary = damaged = None
    if "summary.json" in files:
        try:
            summary = read_sealed(folder / "summary.json")
            absent = [name for name in summary["files"] if name not in files]
            if absent:
                summary, damaged = None, f"{folder / absent[0]}: missing; run again"
        except FedbenchError as error:
            damaged = str(error)
    rounds = [
        (int(match[1]), _believed(saves[name].st_mtime, now)) for name in saves if (match := CHECKPOINT.fullmatch(name))
    ]
    newest = max((name for name in saves if CHECKPOINT.fullmatch(name)), default=None)
    finished = summary is not None and not saves  # then its logs have nothing to add
    return Evidence(
        summary=summary,
        damaged=damaged,
        bytes=sum(status.st_size for part in (files, saves) for status in part.values()),
        saved=max(rounds, default=None),
        saved_identity=newest and _identity(checkpoint / newest),
        own=None if finished or LOG not in files else _log(folder / LOG, now),
        job=None if finished else _log(job_log, now),
        now=now,
        lock=_inode(f"{checkpoint}.lock"),
    )


def _identity(checkpoint: Path) -> str | None:
    """The identity in the header of a checkpoint (safetensors: a length, then JSON)."""
    try:
        with open(checkpoint, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            return json.loads(file.read(min(length, HEADER_BYTES)))["__metadata__"]["digest"]
    except (OSError, ValueError, KeyError, TypeError):  # removed or replaced meanwhile, or damaged: the run will say
        return None


def _files(folder: Path) -> dict[str, os.stat_result]:
    found = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # a run at work renames and deletes files
                    if entry.is_file():
                        found[entry.name] = entry.stat()
    except (FileNotFoundError, NotADirectoryError):
        return found
    return found


def _believed(written: float, now: float) -> float:
    """A file's date; 0 if it is in the future."""
    return written if written <= now + CLOCK_SECONDS else 0.0


def _log(path: Path, now: float = float("inf")) -> LogTail | None:
    try:
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            file.seek(max(0, status.st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    return LogTail(path, _believed(status.st_mtime, now), lines) if lines else None


def last_words(path: Path) -> str | None:
    """The last line of a log; None where there is none."""
    log = _log(path)
    return log.last if log else None


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None


def locked_inodes(table: Path = Path("/proc/locks")) -> frozenset[int]:
    """Inodes that a process of this machine holds an flock on; empty where the system has no such table.

    Device numbers are left out of the comparison: several file systems show others here than to ``stat``.
    """
    try:
        text = table.read_text()
    except OSError:
        return frozenset()
    rows = (line.split() for line in text.splitlines())
    return frozenset(int(row[5].rsplit(":", 1)[1]) for row in rows if len(row) == 8 and row[1] == "FLOCK")
