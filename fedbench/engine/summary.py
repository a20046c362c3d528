"""summary.json of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fedbench.engine import environment, results
from fedbench.tree import count

if TYPE_CHECKING:
    import torch

    from fedbench.config.spec import RunSpec
    from fedbench.data.store import Store
    from fedbench.engine.checkpoint import State
    from fedbench.engine.chunk import Chunk
    from fedbench.methods.method import Method
    from fedbench.partition.partition import Partition


class Run(Protocol):
    """What a summary is made from.

    Attributes
    ----------
    identity : keys of :func:`fedbench.config.identity.identity`
    one_time_bytes : size of the base
    private_parameters, total_parameters : numbers of values
    """

    spec: RunSpec
    identity: dict[str, Any]
    store: Store
    partition: Partition
    method: Method
    state: State
    device: torch.device
    threads: int
    chunk: Chunk
    one_time_bytes: int
    private_parameters: int
    total_parameters: int


def summarise(run: Run) -> dict[str, Any]:
    """The contents of summary.json: what ran, what came out, what it cost and on what."""
    state, spec = run.state, run.spec
    chosen = results.selections(state)
    totals = state.totals
    trained = [row for row in state.rows if row["round"] > 0]
    per_round = {
        direction: sum(row[f"{direction}_bytes_per_client"] for row in trained) / len(trained) if trained else 0.0
        for direction in ("uplink", "downlink")
    }
    cell = spec.cell
    return {
        "cell": {name: getattr(cell, name) for name in ("dataset", "partition", "model", "method", "seed")},
        "label": spec.method.common.label or cell.method,
        **run.identity,
        "spec": spec.full,
        "selections": chosen,
        "base": {
            "personal_mean": results.spread(results.split(state.accuracies["base"], state.held_out)[0])["mean"],
            "global": state.rows[0]["global_accuracy"],
        },
        "bytes": {
            "one_time": run.one_time_bytes if run.method.communicates else 0,
            "uplink_total": int(totals.get("uplink", 0)),
            "downlink_total": int(totals.get("downlink", 0)),
            "cumulative_total": int(totals.get("uplink", 0) + totals.get("downlink", 0)),
            **{f"{direction}_per_client_round": value for direction, value in per_round.items()},
        },
        "parameters": {
            "shared": count(state.shared),
            "private": run.private_parameters,
            "total": run.total_parameters,
        },
        "diverged": state.diverged_round is not None,
        "diverged_round": state.diverged_round,
        "chance_level": chosen["last"]["personal"]["mean"] <= 1 / run.store.classes,
        "seconds": {
            "wall": totals["wall"],
            "cpu": totals["cpu"],
            "train": totals.get("train", 0.0),
            "evaluate": totals.get("eval", 0.0),
        },
        "peak_rss_bytes": environment.peak_rss_bytes(),
        "peak_gpu_bytes": environment.peak_gpu_bytes(run.device),
        "device": environment.device_name(run.device),
        "threads": run.threads,
        "chunk": run.chunk.size,
        "versions": environment.versions(),
        "git": environment.commit(),
        "classes": run.store.classes,
        "clients": run.partition.clients,
        "held_out_clients": len(state.held_out),
        "rounds_done": state.round_number,
        "facts": run.method.facts(),
    }
