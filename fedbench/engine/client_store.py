"""What each client keeps between participations: private leaves and channel memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fedbench.tree import rows, stack, to_device

if TYPE_CHECKING:
    import torch

    from fedbench.tree import Tree


class ClientStore:
    """Per-client trees, created at first use and kept on the CPU.

    Parameters
    ----------
    create : client number -> that client's initial tree
    trees : what clients have kept so far; never changed
    """

    def __init__(self, create: Callable[[int], Tree], trees: dict[int, Tree]):
        self._create = create
        self.trees = trees

    def gather(self, clients: Iterable[int], device: torch.device) -> Tree:
        """The clients' trees stacked in the given order; reading does not store anything."""
        # each by itself: what a client has kept lies on the CPU, what it starts from may not
        return stack(to_device(self.trees[c] if c in self.trees else self._create(c), device) for c in clients)

    def updated(self, clients: Iterable[int], stacked: Tree) -> dict[int, Tree]:
        """All clients' trees, with row k of `stacked` as client k's."""
        stacked = to_device(stacked, "cpu")
        new = {
            client: {name: leaf.clone() for name, leaf in rows(stacked, position).items()}
            for position, client in enumerate(clients)
        }
        return {**self.trees, **new}
