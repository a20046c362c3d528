"""A run's own lasting log, whose lines are those of :mod:`fedbench.files.traces`."""

import time
from pathlib import Path

from fedbench.files.io import writing_errors


class Log:
    """Appends stamped lines; no rule declares the file, so nothing deletes it before a retry.

    Parameters
    ----------
    path : the file
    """

    def __init__(self, path: Path):
        self.path = path

    def __call__(self, line: str) -> None:
        with writing_errors(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S%z')} {line}\n")
