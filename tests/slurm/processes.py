"""What the system's table of processes says about those of a cluster's jobs."""

import re
from contextlib import suppress
from pathlib import Path


def environment_of(process: int) -> dict[str, str]:
    """The variables that a process was started with; none if it has ended."""
    try:
        text = Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def step_daemon(process: int) -> int | None:
    """The slurmstepd above a process; None if the process or the daemon has ended."""
    with suppress(OSError):
        while process > 1:
            name, rest = re.fullmatch(
                r"\d+ \((.*)\) \S (\d+) .*", Path(f"/proc/{process}/stat").read_text().strip(), re.DOTALL
            ).groups()
            if name == "slurmstepd":
                return process
            process = int(rest)
    return None
