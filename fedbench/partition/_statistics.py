"""How skewed a partition is."""

from __future__ import annotations

from typing import Any

import numpy as np


def entropy(distribution: np.ndarray) -> np.ndarray:
    """Shannon entropy over the last axis, in nats; 0 log 0 is 0."""
    logs = np.log(distribution, where=distribution > 0, out=np.zeros_like(distribution))
    return -(distribution * logs).sum(axis=-1)


def jensen_shannon(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Jensen-Shannon distance (base 2, so 0 to 1) over the last axis: the square root of the divergence."""
    middle = (first + second) / 2
    divergence = (entropy(middle) - (entropy(first) + entropy(second)) / 2) / np.log(2)
    return np.sqrt(np.maximum(divergence, 0.0))  # rounding can leave -1e-17


def gini(sizes: np.ndarray) -> float:
    """Gini coefficient of the clients' sizes: 0 where all are equal, towards 1 where one has everything."""
    ordered = np.sort(np.asarray(sizes, dtype=np.float64))
    ranks = np.arange(1, len(ordered) + 1)
    return float((2 * ranks - len(ordered) - 1) @ ordered / (len(ordered) * ordered.sum()))


def skew(counts: np.ndarray) -> dict[str, Any]:
    """Skew statistics of int counts [K, C] (training and validation samples of each client and class)."""
    sizes = counts.sum(axis=1)
    clients = counts / sizes[:, None]
    pooled = counts.sum(axis=0) / counts.sum()
    effective = np.exp(entropy(clients))
    return {
        "jensen_shannon_mean": float(jensen_shannon(clients, pooled[None]).mean()),
        "effective_classes": effective,
        "effective_classes_mean": float(effective.mean()),
        "gini": gini(sizes),
        "smallest": int(sizes.min()),
        "largest": int(sizes.max()),
    }
