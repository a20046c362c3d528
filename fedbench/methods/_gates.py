"""What a method with gates per client adds to the results: columns of rounds.csv, and gates.csv.

``gate_drift`` of a round is |m after - m before| of each gate over a client's participation, averaged over sites and
over the round's cohort. A client begins with the gates that its last participation left it, the first time with their
initial value; what other rounds did to other clients is not in it.

``gate_gradient_variance`` is the variance of the objective's derivative with respect to a gate's logit, penalties
included and before clipping, over all local steps of all clients of the cohort together, averaged over the gates. Steps
of different clients count alike, so a client with more samples counts more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tree import Tree

    Gates = dict[tuple[int, str], Tensor]  # (block, kind of site) -> [clients]

COLUMNS = {
    "gate_mean": "mean gate of all clients that have taken part, over sites; in evaluated rounds",
    "gate_attention_mean": "the same over attention's sites",
    "gate_ffn_mean": "the same over feed-forward sites",
    "gate_drift": "|m after - m before| of a participation, mean over sites and the cohort",
    "gate_gradient_variance": "variance of the objective's derivative by a gate's logit over the cohort's steps",
}
TABLE = "gates.csv"
TABLE_COLUMNS = {
    "client": "number of the client",
    "block": "number of the transformer block",
    "site": "kind of site in it: attention or ffn",
    "value": "the gate m after the client's last participation",
}


def means(gates: Gates) -> dict[str, float]:
    """Means over clients and sites, also by kind of site."""
    found = {key: float(values.mean()) for key, values in gates.items()}
    row = {"gate_mean": sum(found.values()) / len(found)}
    for kind in sorted({kind for _, kind in found}):
        own = [mean for (_, other), mean in found.items() if other == kind]
        row[f"gate_{kind}_mean"] = sum(own) / len(own)
    return row


def observe(before: Gates, after: Gates, gradients: Tree) -> Tree:
    """What one participation did to K clients' gates, stacked.

    Parameters
    ----------
    before, after : the clients' gates when their participation began and ended
    gradients : sums over the participation's steps, as :meth:`fedbench.methods.method.Method.observe` gets them
    """
    moved = [(after[site] - start).abs().double() for site, start in before.items()]
    return {"drift": sum(moved) / len(moved), **gradients}


def dynamics(observed: Tree) -> dict[str, float]:
    """The cohort's ``gate_drift`` and, where gates are learned, ``gate_gradient_variance``."""
    row = {"gate_drift": float(observed["drift"].mean())}
    return row | ({"gate_gradient_variance": pooled_variance(observed)} if "steps" in observed else {})


def pooled_variance(sums: Tree) -> float:
    """Variance of each gradient over all steps of all clients, averaged over the leaves.

    Parameters
    ----------
    sums : ``steps`` [K], ``sum`` and ``squares`` [K, leaves] of one or more clients
    """
    steps = sums["steps"].sum()
    mean = sums["sum"].sum(0) / steps
    return float((sums["squares"].sum(0) / steps - mean.square()).clamp_min(0).mean())


def rows(clients: Sequence[int], gates: Gates) -> list[dict[str, Any]]:
    """One row per client and gate."""
    return [
        {"client": client, "block": block, "site": kind, "value": float(values[position])}
        for position, client in enumerate(clients)
        for (block, kind), values in gates.items()
    ]
