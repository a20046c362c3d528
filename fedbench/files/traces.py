"""What a run leaves for others to read while it is at work: lines of its logs, and names of its checkpoints.

They are written and read back here only. Lines of earlier versions are read too: their stamps have no offset from UTC.
"""

import re

LOG = "log.txt"
COMPLETE = "complete"
STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)([+-]\d{4})? ")
STARTED = re.compile(r"run ([0-9a-f]{16}) \(")
CONTINUED = re.compile(r"continuing after round (\d+)$")
STOPPED = re.compile(r"(stopped|interrupted) (after round|before the first round|by Ctrl-C)\b")
PROGRESS = re.compile(r" round (\d+)/\d+: ")
CHECKPOINT = re.compile(r"round(\d{6})-([0-9a-f]{64})\.safetensors")


def started(spec_digest: str, run: str, device: str) -> str:
    """A run begins, or goes on."""
    return f"run {spec_digest} ({run}) on {device}"


def continuing(round_number: int) -> str:
    """The start that follows has a checkpoint."""
    return f"continuing after round {round_number}"


def stopped(round_number: int, reason: str) -> str:
    """A run was told to stop."""
    return f"stopped {moment(round_number)} ({reason})"


def interrupted(round_number: int, reason: str) -> str:
    """The same on the terminal, and so in the log of the workflow's job."""
    return f"interrupted {moment(round_number)} ({reason}); start again to continue"


def moment(round_number: int) -> str:
    """When it is, in words, if so many rounds are done; -1 for none, not even the evaluation of the start."""
    return "before the first round" if round_number < 0 else f"after round {round_number}"


def progress(label: str, unit: str, number: int, total: int, text: str) -> str:
    """A finished round (or epoch) where there is no terminal."""
    return f"{label} {unit} {number}/{total}: {text}"


def checkpoint_name(round_number: int, sha256: str) -> str:
    """The name of a checkpoint, which says how far it is and what it holds."""
    return f"round{round_number:06d}-{sha256}.safetensors"
