"""Trees: named tensors, and the little arithmetic that methods and channels do on them.

A *stacked* tree has a client axis first: leaf ``[K, ...]`` holds K clients' values of a tensor of
shape ``[...]``. Everything here is elementwise in that axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fedbench.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

Tree = dict[str, "Tensor"]


def select(tree: Tree, *prefixes: str) -> Tree:
    """The leaves whose names start with one of the prefixes."""
    return {name: leaf for name, leaf in tree.items() if name.startswith(prefixes)}


def expand(tree: Tree, clients: int) -> Tree:
    """Give every client the same values, ``[...] -> [K, ...]``, without copying."""
    return {name: leaf.unsqueeze(0).expand(clients, *leaf.shape) for name, leaf in tree.items()}


def stack(trees: Iterable[Tree]) -> Tree:
    """Stack single-client trees along a new client axis."""
    trees = list(trees)
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]} if trees else {}


def concatenate(trees: Iterable[Tree]) -> Tree:
    """Join stacked trees along the client axis."""
    trees = list(trees)
    if len(trees) == 1:
        return trees[0]
    return {name: torch.cat([tree[name] for tree in trees]) for name in trees[0]} if trees else {}


def rows(stacked: Tree, index) -> Tree:
    """Clients `index` (an int, slice or index tensor) of a stacked tree."""
    return {name: leaf[index] for name, leaf in stacked.items()}


def add(left: Tree, right: Tree, scale: float = 1.0) -> Tree:
    """``left + scale * right`` on the leaves of `left`; leaves that `right` lacks stay as they are."""
    return {name: leaf + scale * right[name] if name in right else leaf for name, leaf in left.items()}


def subtract(left: Tree, right: Tree) -> Tree:
    """``left - right`` on the leaves of `left`."""
    return {name: leaf - right[name] for name, leaf in left.items()}


def zeros_like(tree: Tree) -> Tree:
    return {name: torch.zeros_like(leaf) for name, leaf in tree.items()}


def weighted_mean(stacked: Tree, weights: Tensor) -> Tree:
    """Mean over the client axis with `weights` [K], which sum to one; finite where all clients' values are."""
    return {name: _mean(leaf, weights) for name, leaf in stacked.items()}


def _mean(leaf: Tensor, weights: Tensor) -> Tensor:
    mean = torch.tensordot(weights.to(leaf), leaf, dims=1)
    if mean.isfinite().all():
        return mean
    # Rounded weights may sum to a little more than one, which is too much for values near the largest number.
    exact = torch.tensordot(weights.to(leaf.device, torch.float64), leaf.double(), dims=1)
    return torch.where(exact.isfinite(), within_range(exact, leaf.dtype), mean)


def within_range(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to `dtype`; what exceeds its largest finite number becomes that number."""
    limit = torch.finfo(dtype).max
    return values.clamp(-limit, limit).to(dtype)


def squared_norms(stacked: Tree) -> Tensor:
    """Squared Euclidean norm of each client's leaves together, [K]."""
    return sum(leaf.reshape(len(leaf), -1).square().sum(1) for leaf in stacked.values())


def count(tree: Tree) -> int:
    """Number of values in the tree."""
    return sum(leaf.numel() for leaf in tree.values())


def norm(tree: Tree) -> float:
    """Euclidean norm of all leaves together."""
    return math.sqrt(sum(float(torch.linalg.vector_norm(leaf)) ** 2 for leaf in tree.values()))


def to_device(tree: Tree, device) -> Tree:
    return {name: leaf.to(device) for name, leaf in tree.items()}
