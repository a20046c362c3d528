"""The record of a run: what its rounds were like, as rounds.csv and the selections need it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbench.engine.evaluate import Evaluation

TAIL = 10  # evaluated rounds in the "tail" selection
KINDS = ("train", "eval")  # of seconds
DIRECTIONS = ("uplink", "downlink")


@dataclass
class Record:
    """What happened so far; no round depends on it.

    Attributes
    ----------
    rows : rows of rounds.csv
    accuracies : named per-client vectors (base, last, best, global)
    domains : the same per domain
    tail, domain_tail : per-client and per-domain accuracies of the last evaluated rounds
    totals : sums over rounds (bytes, seconds)
    held_out : clients that are evaluated apart
    diverged_round : the round that ended the run early
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    accuracies: dict[str, list[float]] = field(default_factory=dict)
    domains: dict[str, list[float]] = field(default_factory=dict)
    tail: list[list[float]] = field(default_factory=list)
    domain_tail: list[list[float]] = field(default_factory=list)
    totals: dict[str, float] = field(default_factory=dict)
    held_out: list[int] = field(default_factory=list)
    diverged_round: int | None = None

    @property
    def last_round(self) -> int:
        """The last round that is done; -1 before round 0, which is the evaluation of the start."""
        return self.rows[-1]["round"] if self.rows else -1

    @property
    def evaluated(self) -> list[dict[str, Any]]:
        """Rows of evaluated rounds."""
        return [row for row in self.rows if row.get("global_accuracy") is not None]

    def add(self, row: dict[str, Any], evaluation: Evaluation | None) -> None:
        """Take in a round that is done, with its evaluation's columns if it was evaluated."""
        if evaluation is not None:
            self._remember(evaluation, row)
        self.rows.append(row)
        if row.get("diverged"):
            self.diverged_round = row["round"]
        for direction in DIRECTIONS:
            if f"{direction}_bytes" in row:
                self.count(direction, row[f"{direction}_bytes"])
        for kind in KINDS:
            self.count(kind, row.get(f"seconds_{kind}") or 0.0)

    def count(self, total: str, amount: float) -> None:
        """Add to one of the totals."""
        self.totals[total] = self.totals.get(total, 0) + amount

    def _remember(self, evaluation: Evaluation, row: dict[str, Any]) -> None:
        """Keep the accuracies of clients and domains that the selections need; `row` is not yet among the rows.

        Round 0 stands in for all selections until a trained round is evaluated. Without validation samples there is
        no best round.
        """
        earlier = [old for old in self.evaluated if old["round"] > 0]
        best = row["val_accuracy"] is not None and all(row["val_accuracy"] > old["val_accuracy"] for old in earlier)
        for kept, tail, personal, shared in (
            (self.accuracies, self.tail, evaluation.personal, evaluation.shared),
            (self.domains, self.domain_tail, evaluation.domain_personal, evaluation.domain_shared),
        ):
            if row["round"] == 0:
                kept["base"] = shared.tolist()
            if best:
                kept["best"] = personal.tolist()
            kept["last"], kept["global"] = personal.tolist(), shared.tolist()
            tail[:] = [*(tail if earlier else []), personal.tolist()][-TAIL:]
