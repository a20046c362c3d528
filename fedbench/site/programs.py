"""Asking other programs without ever waiting for one that hangs."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """What a program said.

    Attributes
    ----------
    status : exit status; None if it is not installed, cannot be started or did not end in time
    output : standard output
    complaint : the last line of standard error, or why there is no answer
    """

    status: int | None
    output: str
    complaint: str

    @property
    def good(self) -> bool:
        return self.status == 0


def ask(command: Sequence[str], seconds: float) -> Answer:
    """Run a command for at most `seconds`; one that takes longer is killed with all its children."""
    if shutil.which(command[0]) is None:
        return Answer(None, "", f"{command[0]} is not installed")
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # so that the children can be killed too
        )
    except OSError as error:
        return Answer(None, "", f"{command[0]} cannot be started: {error.strerror}")
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # a process that waits for a broken driver cannot even be killed
            process.communicate(timeout=1)
        return Answer(None, "", f"{command[0]} did not answer within {seconds:g} s")
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return Answer(process.returncode, output, lines[-1] if lines else f"{command[0]} ended with {process.returncode}")
