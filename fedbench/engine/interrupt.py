"""Stopping a run early without losing a round."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any

from fedbench.files.traces import interrupted


class Interrupted(Exception):
    """The run was asked to stop; its checkpoint holds everything up to `round_number` (-1: there is none yet)."""

    def __init__(self, round_number: int, reason: str):
        super().__init__(interrupted(round_number, reason))
        self.round_number = round_number


class StopRequest:
    """Watches for SIGTERM and SIGUSR1 (what clusters send), SIGINT (Ctrl-C), and for a time limit.

    Parameters
    ----------
    seconds : float or None
        Wall time after which to stop; None for no limit.

    Notes
    -----
    The engine asks at every local step and throws away the unfinished round, so that it stops within
    seconds and a resumed run repeats that round exactly. Who presses Ctrl-C a second time does not want to wait
    for that: it then does what it did before.
    """

    SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)

    def __init__(self, seconds: float | None = None):
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self._received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in self.SIGNALS:
            if number == signal.SIGINT and signal.getsignal(number) is signal.SIG_IGN:
                continue  # started in the background by a script: Ctrl-C is meant for what runs in front
            self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = number
        if number == signal.SIGINT:
            signal.signal(number, self._previous[number])

    def reason(self) -> str | None:
        """Why to stop, or None."""
        if self._received is not None:
            return signal.Signals(self._received).name
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return "time limit"
        return None


class StopNow(Exception):
    """Raised inside a round when a stop is requested; never leaves the engine."""
