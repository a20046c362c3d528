"""Clients' gradients: clipped each by itself, and summed over local steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tree import Tree


class GradientSums:
    """Sums of some scalars' gradients over the steps of one phase, per client.

    They stay on the device in float64 and are read once a round, so that following a few scalars costs a step nothing
    that can be measured.

    Parameters
    ----------
    names : leaves to follow, one number per client each; with none, nothing is kept
    clients : K
    """

    def __init__(self, names: Sequence[str], clients: int, device: torch.device):
        self.names, self.clients, self.device = names, clients, device
        self._sums: Tree = {}

    def add(self, leaves: Tree) -> None:
        """Count one step of the leading clients, those that are still in `leaves`; gradients must be there."""
        if not self.names:
            return
        found = torch.stack([leaves[name].grad for name in self.names], dim=1).double()
        if not self._sums:
            shape = (self.clients, found.shape[1])
            self._sums = {
                "steps": torch.zeros(self.clients, dtype=torch.float64, device=self.device),
                "sum": torch.zeros(shape, dtype=torch.float64, device=self.device),
                "squares": torch.zeros(shape, dtype=torch.float64, device=self.device),
            }
        active = len(found)
        self._sums["steps"][:active] += 1
        self._sums["sum"][:active] += found
        self._sums["squares"][:active].addcmul_(found, found)

    def tree(self) -> Tree:
        """``steps`` [K], ``sum`` and ``squares`` [K, leaves]; {} where nothing was followed."""
        return self._sums


def clip_each(leaves: Iterable[Tensor], limit: float) -> None:
    """Scale each client's gradient to a global norm of at most `limit`, over all leaves together."""
    gradients = [leaf.grad.reshape(len(leaf), -1) for leaf in leaves if leaf.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(gradient, dim=1) for gradient in gradients])
    factor = (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0).unsqueeze(1)
    for gradient in gradients:
        gradient.mul_(factor)
