"""Accuracy against bytes: whose bytes are counted, and what each method had reached at a given number of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

from fedbench.analysis.statistics import Estimate, estimate
from fedbench.registry import METHODS

if TYPE_CHECKING:
    import pandas as pd

    from fedbench.config.reading import Config
    from fedbench.config.spec import RunSpec

BUDGET = 2e8  # bytes, up and down, of all clients together


def pools(config: Config, method: str) -> bool:
    """Whether a method trains on all data in one place: the data would have to travel, and nobody counts them."""
    return METHODS[config.methods[method].common.method].target.pooled


def sends(spec: RunSpec) -> bool:
    """Whether a run has messages whose bytes are counted."""
    method = METHODS[spec.method.common.method].target
    return method.communicates and not method.pooled and spec.training.rounds > 0


@dataclass(frozen=True)
class Spent:
    """What one method had reached within a budget.

    Attributes
    ----------
    accuracy : over the seeds that were evaluated after a round within the budget; `n` is 0 if none was
    bytes : mean number sent by these evaluations (NaN if there are none)
    stopped : whether the budget ended the training of any seed before its last round
    """

    accuracy: Estimate
    bytes: float
    stopped: bool


def within_budget(rounds: pd.DataFrame, column: str, budget: float) -> Spent:
    """Look up one method's runs on one task at their last evaluation whose cumulative bytes are not above `budget`.

    Round 0 counts for methods that have no other: before its first round a method has reached nothing of its own.

    Parameters
    ----------
    rounds : rows of rounds.csv of these runs, with a `seed` column
    column : the accuracy to look up
    budget : bytes of all clients together
    """
    reached, sent, stopped = [], [], False
    for _, course in rounds.groupby("seed"):
        affordable = course[course.cumulative_bytes <= budget].dropna(subset=column)
        if course["round"].max() > 0:
            affordable = affordable[affordable["round"] > 0]
        stopped |= bool(course.cumulative_bytes.max() > budget)
        if len(affordable):
            reached.append(float(affordable[column].iloc[-1]))
            sent.append(float(affordable.cumulative_bytes.iloc[-1]))
    return Spent(estimate(reached), sum(sent) / len(sent) if sent else nan, stopped)
