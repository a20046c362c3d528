"""How long runs take, learnt from finished ones."""

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from fedbench.config.spec import Cell


@dataclass
class Sums:
    """Totals over finished runs."""

    seconds: float = 0.0
    rounds: int = 0
    runs: int = 0


class Pace:
    """Seconds per round of each kind of run.

    A run is judged by the closest kin there is: other seeds of it, else other partitions of its data set, else other
    data sets. Runs on another device are kin too, so that a mixture of CPUs and GPUs makes the expectation rough.
    """

    def __init__(self):
        self._sums: dict[Hashable, Sums] = defaultdict(Sums)

    def add(self, cell: Cell, seconds: float | None, rounds: int | None) -> None:
        """Learn from a finished run; one that does not say how long it took teaches nothing."""
        if seconds is None or rounds is None:
            return
        for key in _kin(cell):
            sums = self._sums[key]
            sums.seconds += seconds
            sums.rounds += rounds
            sums.runs += 1

    def seconds(self, cell: Cell, rounds: int) -> float | None:
        """Expected seconds of `rounds` rounds, or None where no kin has finished.

        A method that has no rounds (the untouched base) takes as long as its kin took on average.
        """
        sums = next((self._sums[key] for key in _kin(cell) if key in self._sums), None)
        if sums is None:
            return None
        return sums.seconds / sums.rounds * rounds if sums.rounds else sums.seconds / sums.runs


def _kin(cell: Cell) -> Iterator[Hashable]:
    yield cell.dataset, cell.partition, cell.model, cell.method
    yield cell.dataset, cell.model, cell.method
    yield cell.model, cell.method
