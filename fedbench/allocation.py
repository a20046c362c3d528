"""How long the SLURM job around this process may still go on, so that a run can save and stop before it is killed."""

import os
import re
import time

from fedbench.commands import ask

SECONDS = 20.0
MARGIN = 60.0  # for the step that is being computed, saving, and what runs around the run
SHARE = 0.2  # of what is left, where that is little


def time_limit() -> float | None:
    """Seconds after which to stop; None outside of SLURM's jobs, where they have no limit, or where SLURM is silent."""
    left = _left()
    return None if left is None else max(left - min(MARGIN, SHARE * left), 0.0)


def _left() -> float | None:
    job, end = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_END_TIME", "")
    if job is None:
        return None
    # SLURM >= 23.02, and not inside of all steps; in the past if the limit was raised, or the shell outlived its job
    if end.isdecimal() and float(end) > time.time():
        return float(end) - time.time()
    return seconds(ask(["squeue", "--noheader", f"--jobs={job}", "--format=%L"], SECONDS).output)


def seconds(text: str) -> float | None:
    """A time as squeue writes it, ``[days-][[hours:]minutes:]seconds``; None for its words, such as UNLIMITED."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", text.strip())
    if match is None:
        return None
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return 86400 * days + 3600 * hours + 60 * minutes + rest
