"""Gates of personalised clients: columns of rounds.csv and rows of gates.csv.

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

from fedbench.engine.gradients import pooled_variance

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tree import Tree

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


def observe(before: Gates, after: Gates, gradients: Tree) -> Tree:
    """What one participation did to K clients' gates, stacked; {} for methods without gates.

    Parameters
    ----------
    before, after : the clients' gates when their participation began and ended
    gradients : sums over the participation's steps (:class:`fedbench.engine.gradients.GradientSums`)
    """
    if not after:
        return {}
    moved = [(after[site] - start).abs().double() for site, start in before.items()]
    return {"drift": sum(moved) / len(moved), **gradients}


def dynamics(observed: Tree) -> dict[str, float]:
    """The cohort's ``gate_drift`` and, where gates are learned, ``gate_gradient_variance``."""
    if not observed:
        return {}
    row = {"gate_drift": float(observed["drift"].mean())}
    return row | ({"gate_gradient_variance": pooled_variance(observed)} if "steps" in observed else {})


def rows(clients: Sequence[int], gates: Gates) -> list[dict[str, Any]]:
    """One row per client and gate."""
    return [
        {"client": client, "block": block, "site": kind, "value": float(values[position])}
        for position, client in enumerate(clients)
        for (block, kind), values in gates.items()
    ]
