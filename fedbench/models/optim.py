"""Optimisers and schedules, by the names that options use: for clients and for the central training of bases."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fedbench.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor


def make_optimizer(
    kind: str,
    parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
    momentum: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
    **options: Any,
) -> torch.optim.Optimizer:
    """An optimiser of torch.

    Parameters
    ----------
    kind : "sgd", "adam" or "adamw"
    parameters : leaves, or groups of them with ``lr`` and ``weight_decay`` of their own
    momentum : of SGD
    betas : moments of Adam and AdamW
    options : what all three take: ``lr``, ``weight_decay``, ``fused``
    """
    if kind == "sgd":
        return torch.optim.SGD(parameters, momentum=momentum, **options)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind](parameters, betas=betas, **options)


def cosine(done: int, total: int) -> float:
    """Factor of the learning rate when so much of a training is done: from 1 to 0 along a cosine."""
    return 0.5 * (1 + math.cos(math.pi * done / total))
