"""How much is on the device at once, in training and in evaluation alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


class Chunk:
    """A number of clients, or of images; it halves, for good, whenever the device's memory does not suffice.

    Parameters
    ----------
    size : how many at first
    say : called with a line when it had to halve
    of : what it counts, for that line
    """

    def __init__(self, size: int, say: Callable[[str], None], of: str = "clients"):
        self.size, self.say, self.of = size, say, of

    def each(self, items: Sequence, work: Callable[[Any], Result], width: int = 1) -> list[tuple[Sequence, Result]]:
        """Do `work` on all items in order, as many at once as fit; work that ran out of memory is done again.

        Parameters
        ----------
        width : what one item counts for

        Returns
        -------
        (its items, its result) of each piece of work

        Raises
        ------
        torch.OutOfMemoryError
            If memory does not suffice for a single item.
        """
        done, start = [], 0
        while start < len(items):
            part = items[start : start + max(1, self.size // width)]
            try:
                done.append((part, work(part)))
            except torch.OutOfMemoryError:
                if len(part) == 1:
                    raise
            else:
                start += len(part)
                continue
            # not while the exception is handled: its frames hold on to what filled the memory
            self.size = len(part) // 2 * width
            self.say(f"out of memory with {len(part) * width} {self.of} at once; going on with {self.size}")
            torch.cuda.empty_cache()
        return done
