"""Rows of rounds.csv, before a round is evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbench.engine.record import DIRECTIONS

if TYPE_CHECKING:
    from fedbench.engine.record import Record
    from fedbench.engine.server import RoundResult


def start_row() -> dict[str, Any]:
    """The row of round 0, without evaluation."""
    return {"round": 0, "cumulative_bytes": 0, "diverged": 0}


def round_row(result: RoundResult, before: Record) -> dict[str, Any]:
    """A trained round's row of rounds.csv, without evaluation and seconds.

    Parameters
    ----------
    before : of the rounds before it
    """
    row = {
        "round": result.state.round_number,
        "cohort": " ".join(map(str, result.cohort)),
        "train_loss": result.train_loss,
        "lr": result.learning_rate,
        **result.diagnostics,
        **byte_columns(result.uplink_bytes, result.downlink_bytes, before),
        "diverged": int(result.diverged),
    }
    return row if result.update_norm is None else {**row, "update_norm": result.update_norm}


def byte_columns(uplink: list[int], downlink: list[int], before: Record) -> dict[str, Any]:
    """Columns of a round in which each client of the cohort sent and received so much."""
    return {
        "uplink_bytes": sum(uplink),
        "downlink_bytes": sum(downlink),
        "uplink_bytes_per_client": sum(uplink) / len(uplink),
        "downlink_bytes_per_client": sum(downlink) / len(downlink),
        "cumulative_bytes": sum(before.totals.get(way, 0) for way in DIRECTIONS) + sum(uplink) + sum(downlink),
    }
