"""How long a run took, over all its sittings."""

from __future__ import annotations

import time


class Clock:
    """Counts wall and CPU seconds of this process from now on."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def lap(self) -> dict[str, float]:
        """Seconds ("wall", "cpu") since the last lap, or since the beginning."""
        wall, cpu = time.perf_counter(), time.process_time()
        lap = {"wall": wall - self._wall, "cpu": cpu - self._cpu}
        self._wall, self._cpu = wall, cpu
        return lap
