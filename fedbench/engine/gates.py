"""Gate values of personalised clients as columns of rounds.csv and rows of gates.csv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    Gates = dict[tuple[int, str], Tensor]  # (block, kind of site) -> [clients]


def columns(gates: Gates) -> dict[str, float]:
    """Means over clients and sites, also by kind of site; {} for methods without gates."""
    if not gates:
        return {}
    means = {key: float(values.mean()) for key, values in gates.items()}
    row = {"gate_mean": sum(means.values()) / len(means)}
    for kind in sorted({kind for _, kind in means}):
        own = [mean for (_, other), mean in means.items() if other == kind]
        row[f"gate_{kind}_mean"] = sum(own) / len(own)
    return row


def rows(clients: Sequence[int], gates: Gates) -> list[dict[str, Any]]:
    """One row per client and gate."""
    return [
        {"client": client, "block": block, "site": kind, "value": float(values[position])}
        for position, client in enumerate(clients)
        for (block, kind), values in gates.items()
    ]
