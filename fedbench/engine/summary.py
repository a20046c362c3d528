"""summary.json of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbench.engine import environment, results
from fedbench.tree import count

if TYPE_CHECKING:
    from fedbench.engine.federation import Federation
    from fedbench.engine.record import Record
    from fedbench.engine.state import FederationState


def summarise(
    federation: Federation, state: FederationState, record: Record, identity: dict[str, Any]
) -> dict[str, Any]:
    """The contents of summary.json: what ran, what came out, what it cost and on what.

    Parameters
    ----------
    identity : keys of :func:`fedbench.config.identity.identity`
    """
    spec, method, compute = federation.spec, federation.method, federation.compute
    chosen = results.selections(record)
    totals = record.totals
    trained = [row for row in record.rows if row["round"] > 0]
    per_round = {
        direction: sum(row[f"{direction}_bytes_per_client"] for row in trained) / len(trained) if trained else 0.0
        for direction in ("uplink", "downlink")
    }
    cell = spec.cell
    return {
        "cell": {name: getattr(cell, name) for name in ("dataset", "partition", "model", "method", "seed")},
        "label": spec.method.common.label or cell.method,
        **identity,
        "spec": spec.full,
        "selections": chosen,
        "base": {
            "personal_mean": results.spread(results.split(record.accuracies["base"], record.held_out)[0])["mean"],
            "global": record.rows[0]["global_accuracy"],
        },
        "bytes": {
            "one_time": federation.one_time_bytes if method.communicates else 0,
            "uplink_total": int(totals.get("uplink", 0)),
            "downlink_total": int(totals.get("downlink", 0)),
            "cumulative_total": int(totals.get("uplink", 0) + totals.get("downlink", 0)),
            **{f"{direction}_per_client_round": value for direction, value in per_round.items()},
        },
        "parameters": {
            "shared": count(state.shared),
            "private": federation.private_parameters,
            "total": federation.total_parameters,
        },
        "diverged": record.diverged_round is not None,
        "diverged_round": record.diverged_round,
        "chance_level": chosen["last"]["personal"]["mean"] <= 1 / federation.store.classes,
        "seconds": {
            "wall": totals["wall"],
            "cpu": totals["cpu"],
            "train": totals.get("train", 0.0),
            "evaluate": totals.get("eval", 0.0),
        },
        "peak_rss_bytes": environment.peak_rss_bytes(),
        "peak_gpu_bytes": environment.peak_gpu_bytes(compute.device),
        "device": environment.device_name(compute.device),
        "threads": compute.threads,
        "chunk": federation.chunk.size,
        "versions": environment.versions(),
        "git": environment.commit(),
        "classes": federation.store.classes,
        "clients": federation.partition.clients,
        "held_out_clients": len(record.held_out),
        "rounds_done": state.round_number,
        "facts": method.facts(),
    }
