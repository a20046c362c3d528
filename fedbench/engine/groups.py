"""Leaves that train together, and their optimiser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.errors import FedbenchError
from fedbench.models.optim import make_optimizer

if TYPE_CHECKING:
    import torch

    from fedbench.config.entries import Training
    from fedbench.methods.method import Group, Phase
    from fedbench.tree import Tree


def grouped(phase: Phase, local: Tree) -> list[tuple[Group, list[str]]]:
    """The phase's groups with the names of the leaves that each trains."""
    groups: list[tuple[Group, list[str]]] = []
    taken: set[str] = set()
    for group in phase.groups:
        names = [name for name in local if name.startswith(group.prefixes)]
        twice = taken.intersection(names)
        if twice:
            raise FedbenchError(f"leaf {min(twice)!r} is in two optimiser groups of one phase")
        taken.update(names)
        if names:
            groups.append((group, names))
    if not groups:
        raise FedbenchError(f"no leaf matches the phase's groups; the local state has {', '.join(local) or 'none'}")
    return groups


def group_optimizer(
    training: Training, groups: list[tuple[Group, list[str]]], leaves: Tree, lr_factor: float
) -> torch.optim.Optimizer:
    """The run's optimiser for a phase's groups.

    Parameters
    ----------
    groups : as :func:`grouped` gives them
    lr_factor : what the round multiplies scheduled learning rates with
    """
    parameters = []
    for group, names in groups:
        learning_rate = training.learning_rate if group.learning_rate is None else group.learning_rate
        parameters.append(
            {
                "params": [leaves[name] for name in names],
                "lr": learning_rate * (lr_factor if group.scheduled else 1.0),
                "weight_decay": training.weight_decay if group.weight_decay is None else group.weight_decay,
            }
        )
    return make_optimizer(training.optimizer, parameters, training.momentum, training.betas, lr=1.0, fused=True)
