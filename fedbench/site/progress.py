"""Showing how far a run is: a bar on a terminal, throttled plain lines everywhere else."""

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedbench.files import traces

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

# column of a row -> how it is shown; a row may lack any of them (not every round is evaluated)
SHOWN = {
    "train_loss": ("loss", lambda value: f"{value:.3f}"),
    "test_accuracy_mean": ("accuracy", lambda value: f"{100 * value:.1f} %"),
    "global_accuracy": ("global", lambda value: f"{100 * value:.1f} %"),
    "test_accuracy": ("accuracy", lambda value: f"{100 * value:.1f} %"),
    "cumulative_bytes": ("sent", lambda value: size(value)),
}


def size(count: float) -> str:
    """Bytes with a decimal unit: ``size(5120) == '5.12 kB'``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def duration(seconds: float) -> str:
    """Seconds as ``s``, ``min:s`` or ``h:min:s``."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours}:{minutes:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}" if minutes else f"{whole} s"


class Progress:
    """Progress of one run (rounds) or one base model (epochs).

    Parameters
    ----------
    stream : where to write; standard error where not given
    every : seconds between plain lines; the first and the last round are always shown
    """

    def __init__(self, stream=None, every: float = 10.0):
        self.stream = stream or sys.stderr
        self.every = every
        self._bar: Bar | None = None

    def start(self, total_rounds: int, label: str, unit: str = "round") -> None:
        """Begin; `total_rounds` counts rounds (or epochs) including those that a checkpoint has already done."""
        self.total, self.label, self.unit = total_rounds, label, unit
        self._shown: dict[str, str] = {}
        self._last: int | None = None
        self._printed = float("-inf")
        # the clock starts with the first reported round: one that resumes must not count its past rounds as quick
        self._first: tuple[int, float] | None = None
        if self.stream.isatty():
            self._open_bar()

    def _open_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}"),
        )
        self._bar = Bar(*columns, console=Console(file=self.stream), transient=False)
        self._task = self._bar.add_task(self.label, total=self.total, shown="")
        self._bar.start()

    def round(self, row: Mapping[str, Any]) -> None:
        """Report a finished round; `row` holds the columns of rounds.csv (or epoch, train_loss, test_accuracy)."""
        number = int(row[self.unit])
        now = time.monotonic()
        self._first = self._first or (number, now)
        self._last = number
        for column, (name, show) in SHOWN.items():
            if row.get(column) is not None:
                self._shown[name] = show(row[column])
        parts = [f"{name} {value}" for name, value in self._shown.items()]
        remaining = self._remaining(number, now)
        if remaining is not None:
            parts.append(f"{duration(remaining)} left")
        text = ", ".join(parts)
        if self._bar is not None:
            self._bar.update(self._task, completed=number, shown=text)
        elif now - self._printed >= self.every or number >= self.total:
            self._printed = now
            print(traces.progress(self.label, self.unit, number, self.total, text), file=self.stream, flush=True)

    def _remaining(self, number: int, now: float) -> float | None:
        first, since = self._first
        if number <= first or number >= self.total:
            return None
        return (now - since) / (number - first) * (self.total - number)

    def finish(self) -> None:
        """End, also after an interruption; safe to call twice."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
