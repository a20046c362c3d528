"""The SLURM job around this process: how long it may still go on, and which task of an array it is."""

import base64
import json
import os
import re
import time
import zlib
from collections.abc import Sequence

from fedbench.site.programs import ask

SECONDS = 20.0
MARGIN = 60.0  # for the step that is being computed, saving, and what runs around the run
SHARE = 0.2  # of what is left, where that is little


def time_limit() -> float | None:
    """Seconds after which to stop, so that a run can save before it is killed.

    None outside of SLURM's jobs, where they have no limit, or where SLURM is silent.
    """
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


def array_task(arguments: Sequence[str]) -> str | None:
    """The shell command of this task of a job array; None outside of arrays and for an array's first task.

    The SLURM executor (2.8) starts every task with Snakemake's command for the first, which carries the commands of the
    others and starts its own task's beneath it. Once that has ended, though, it waits for the *first* task's outputs,
    calls its own task failed without them, and deletes them (issue 447 of snakemake-executor-plugin-slurm). So a task
    has to become its own command.

    Parameters
    ----------
    arguments : Snakemake's command line, in which ``--slurm-jobstep-array-execs`` holds base64 of a JSON object:
        task -> hex digits of the zlib-compressed command
    """
    own = os.environ.get("SLURM_ARRAY_TASK_ID", "")
    text = " ".join(arguments)
    found = re.search(r"--slurm-jobstep-array-execs[= ](\S+)", text)
    if found is None:
        return None
    others = json.loads(base64.b64decode(found[1].strip("'")))
    return zlib.decompress(bytes.fromhex(others[own])).decode() if own in others else None
