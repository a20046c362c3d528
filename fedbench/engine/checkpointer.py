"""When a run is saved, and what it goes on from; the files themselves are :mod:`fedbench.engine.checkpoint`'s."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.engine import checkpoint
from fedbench.errors import FedbenchError
from fedbench.files.traces import continuing
from fedbench.tree import to_device

if TYPE_CHECKING:
    import torch

    from fedbench.engine.record import Record
    from fedbench.engine.state import FederationState

SECONDS = 60.0


class Checkpointer:
    """Keeps a run's checkpoints.

    Parameters
    ----------
    folder : where they lie
    digest : identity of the run
    say : called with a line about what was found
    overwrite : discard checkpoints that cannot be continued instead of refusing
    every : seconds between checkpoints of a run that goes on
    """

    def __init__(
        self,
        folder: Path,
        digest: str,
        say: Callable[[str], None],
        overwrite: bool = False,
        every: float = SECONDS,
    ):
        self.folder, self.digest, self.say = folder, digest, say
        self.overwrite, self.every = overwrite, every
        self._saved = time.monotonic()

    def load(self, device: torch.device) -> tuple[FederationState, Record] | None:
        """What the last checkpoint holds, the server's trees on `device`; None where there is none.

        Raises
        ------
        FedbenchError
            If the checkpoints are another run's or all damaged, and not to be discarded.
        """
        try:
            found = checkpoint.load(self.folder, self.digest, self.say)
        except FedbenchError:
            if not self.overwrite:
                raise
            self.say("a checkpoint that cannot be continued is discarded; starting from round 0")
            self.remove()
            return None
        if found is None:
            return None
        state, record = found
        self.say(continuing(state.round_number))
        trees: dict[str, Any] = {name: to_device(getattr(state, name), device) for name in checkpoint.TREES}
        return replace(state, **trees), record

    def due(self) -> bool:
        """Whether the last time was long ago."""
        return time.monotonic() - self._saved > self.every

    def save(self, state: FederationState, record: Record) -> None:
        """Save both."""
        checkpoint.save(self.folder, state, record, self.digest)
        self._saved = time.monotonic()

    def remove(self) -> None:
        """Delete the run's checkpoints."""
        checkpoint.remove(self.folder)
