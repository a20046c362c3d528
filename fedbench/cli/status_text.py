"""The statuses of runs as a table for people or as JSON for scripts."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fedbench.config.identity import unrecorded_line
from fedbench.site.progress import duration, size
from fedbench.status.evidence import last_words
from fedbench.status.status import STATES, Status

COLORS = {"done": "green", "running": "cyan", "resumable": "yellow", "failed": "red", "outdated": "magenta"}
HEADER = ("state", "rounds", "disk", "left", "run", "")
NUMBERS = (1, 2, 3)  # these columns are flushed right


def table(statuses: Iterable[Status], width: int | None = None) -> str:
    """One line for each run below a header.

    Parameters
    ----------
    width : cut lines there and colour the states, for a terminal; None for plain whole lines
    """
    rows = [HEADER, *map(_row, statuses)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = []
    for row in rows:
        padded = [text.ljust(space) for text, space in zip(row, widths, strict=True)]
        for column in NUMBERS:
            padded[column] = row[column].rjust(widths[column])
        line = "  ".join(padded).rstrip()
        if width is not None:
            line = line if len(line) <= width else line[: width - 1] + "…"
            line = click.style(row[0], fg=COLORS.get(row[0])) + line[len(row[0]) :]
        lines.append(line)
    return "\n".join(lines)


def _row(status: Status) -> tuple[str, ...]:
    finished = status.state == "done"
    left = "" if finished else "?" if status.seconds_left is None else duration(status.seconds_left)
    disk = size(status.bytes) if status.bytes else ""
    # a finished run says how many rounds it took: methods without rounds, and runs that diverged, take fewer
    rounds = str(status.round) if finished else f"{status.round}/{status.rounds}"
    return status.state, rounds, disk, left, status.cell.path, status.detail


def totals(statuses: Sequence[Status]) -> dict[str, Any]:
    """Sums over runs: counts of states, bytes, computing time left, and for how many that or their base is unknown."""
    counts = Counter(status.state for status in statuses)
    known = [status.seconds_left for status in statuses if status.seconds_left is not None]
    return {
        "runs": len(statuses),
        "states": {state: counts[state] for state in STATES},
        "bytes": sum(status.bytes for status in statuses),
        "seconds_left": sum(known),
        "runs_without_estimate": len(statuses) - len(known),
        "runs_without_base": sum(not status.base_known for status in statuses),
    }


def totals_line(statuses: Sequence[Status]) -> str:
    """The sums in one line."""
    sums = totals(statuses)
    counts = ", ".join(f"{count} {state}" for state, count in sums["states"].items() if count)
    unknown = sums["runs_without_estimate"]
    if unknown == sums["runs"] - sums["states"]["done"]:
        left = "no run tells yet how long the rest takes" if unknown else "nothing left"
    else:
        left = f"about {duration(sums['seconds_left'])} of computing left"
        left += f" and {unknown} runs of unknown length" if unknown else ""
    return f"{sums['runs']} runs: {counts}; {size(sums['bytes'])} on disk; {left}"


def notes(statuses: Sequence[Status]) -> list[str]:
    """Lines on what was not checked."""
    unknown = totals(statuses)["runs_without_base"]
    return [unrecorded_line(unknown)] if unknown else []


def failures(jobs: Mapping[str, Path]) -> str:
    """What failed: names, the last lines of their logs, and where these are; nothing if none did.

    Parameters
    ----------
    jobs : name -> log, which is missing or empty if a job never began
    """
    if not jobs:  # the workflow itself was interrupted
        return ""
    lines = [
        f"  {name}: {last_words(log) or 'never began, the reason stands above'} ({log})"
        for name, log in sorted(jobs.items())
    ]
    return "\n".join([f"{len(jobs)} failed (fedbench status shows all runs):", *lines])


def as_json(statuses: Sequence[Status], shown: Iterable[Status]) -> str:
    """The shown runs and the sums over all of them; times in seconds."""
    runs = [
        {
            "run": status.cell.path,
            "state": status.state,
            "round": status.round,
            "rounds": status.rounds,
            "bytes": status.bytes,
            "seconds_left": status.seconds_left,
            "detail": status.detail,
            "log": None if status.log is None else str(status.log),
        }
        for status in shown
    ]
    return json.dumps({"runs": runs, "totals": totals(statuses)}, indent=2)
