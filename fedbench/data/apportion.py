"""Whole numbers in given proportions: the largest-remainder method."""

import numpy as np


def apportion(weights: np.ndarray, total: int, rng: np.random.Generator, most: np.ndarray | None = None) -> np.ndarray:
    """Split `total` into whole parts in proportion to `weights`.

    Every part is its quota rounded down or up; the largest remainders are rounded up and ties are
    drawn. Where a part would exceed its limit, what it cannot take goes to the others by the same rule.

    Parameters
    ----------
    weights : float or int [P], not negative, with a positive sum unless `total` is 0
    total : what the parts add up to
    rng : breaks ties
    most : int [P], largest allowed value of each part

    Returns
    -------
    int64 [P], adding up to `total`

    Raises
    ------
    ValueError
        If the limits leave no room for `total`.
    """
    weights = np.asarray(weights, dtype=np.float64)
    parts = np.zeros(len(weights), dtype=np.int64)
    room = np.full(len(weights), total, dtype=np.int64) if most is None else np.asarray(most, dtype=np.int64).copy()
    left = int(total)
    while left > 0:
        open_weights = np.where(room > 0, weights, 0.0)
        if open_weights.sum() <= 0:
            raise ValueError(f"{left} of {total} do not fit below the limits")
        quota = left * open_weights / open_weights.sum()
        given = np.minimum(np.floor(quota).astype(np.int64), room)
        rest = left - int(given.sum())
        # Remainders of parts that are already full, or that have no weight, must not win.
        remainder = np.where((open_weights > 0) & (given < room), quota - np.floor(quota), -1.0)
        order = np.lexsort((rng.random(len(weights)), -remainder))
        up = order[: min(rest, int((remainder >= 0).sum()))]
        given[up] += 1
        parts += given
        room -= given
        left -= int(given.sum())
    return parts
