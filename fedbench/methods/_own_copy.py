"""What methods have in common whose clients hold a second copy of all trainable leaves for themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.methods._partly_shared import BODY, HEAD
from fedbench.methods.fedavg import FedAvg
from fedbench.tree import select

if TYPE_CHECKING:
    import numpy as np

    from fedbench.tree import Tree

OWN = "own."
SHARED = BODY + HEAD


def owned(tree: Tree) -> Tree:
    """The leaves under the names of a client's own copies."""
    return {OWN + name: leaf for name, leaf in tree.items()}


def own(local: Tree) -> Tree:
    """A client's own copies in a local state, under the task's names."""
    return {name.removeprefix(OWN): leaf for name, leaf in local.items() if name.startswith(OWN)}


def shared_part(local: Tree) -> Tree:
    """The shared leaves of a local state."""
    return select(local, *SHARED)


class OwnCopy(FedAvg):
    """All leaves travel; a client's own copy starts from the same values, stays, and is what it is evaluated with."""

    def init_private(self, rng: np.random.Generator, shared: Tree) -> Tree:
        return owned(shared)

    def personal(self, shared: Tree, private: Tree) -> Tree:
        return own(private)
