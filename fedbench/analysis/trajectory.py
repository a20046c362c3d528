"""A method's course over the rounds, averaged over seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def mean_trajectory(rounds: pd.DataFrame, column: str) -> pd.DataFrame:
    """Average one method's runs on one task over their seeds.

    Parameters
    ----------
    rounds : rows of rounds.csv of these runs, with a `seed` column
    column : the accuracy to follow

    Returns
    -------
    One row per round that every seed has evaluated: `round`, `mean`, sample `std` (NaN for one seed) and the
    mean cumulative `bytes`.
    """
    evaluated = rounds.dropna(subset=column)
    found = evaluated.groupby("round").agg(
        n=(column, "size"), mean=(column, "mean"), std=(column, "std"), bytes=("cumulative_bytes", "mean")
    )
    return found[found.n == rounds.seed.nunique()].drop(columns="n").reset_index()
