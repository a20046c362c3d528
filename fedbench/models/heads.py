"""Classification heads: trainable, or frozen at a fixed geometry from the first step of pretraining on.

A frozen head has a zero bias and rows of unit length (Kaiming: random length), so that only the trunk learns.

- ``frozen-kaiming``: He et al. 2015, independent N(0, 2/D) weights.
- ``frozen-orthogonal``: orthonormal rows. With more classes than features no such rows exist; then the columns
  are orthogonal and scaled by sqrt(classes/D) (a tight frame), so that the mean squared row length stays 1.
- ``frozen-etf``: the simplex equiangular tight frame of neural collapse (Papyan et al. 2020): unit rows whose
  pairwise cosines are all -1/(classes-1), the lowest that is possible. It needs classes <= D + 1.
"""

import numpy as np
import torch
from torch import nn

from fedbench.errors import FedbenchError


def make_head(kind: str, features: int, classes: int, rng: np.random.Generator) -> nn.Linear:
    """A frozen head of the given kind.

    Parameters
    ----------
    kind : {"frozen-kaiming", "frozen-orthogonal", "frozen-etf"}
    features, classes : int
        The weight is [classes, features].
    rng : numpy Generator
        Decides the weights.

    Raises
    ------
    FedbenchError
        If the geometry does not exist for these sizes.
    """
    weight = GEOMETRIES[kind](features, classes, rng)
    head = nn.utils.skip_init(nn.Linear, features, classes)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(weight))
        head.bias.zero_()
    return head.requires_grad_(False)


def kaiming(features: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Weights [classes, features], independent N(0, 2/features)."""
    return rng.standard_normal((classes, features)) * np.sqrt(2 / features)


def orthogonal(features: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Weights [classes, features] with orthonormal rows, or a tight frame where classes > features."""
    if classes <= features:
        return orthonormal_columns(features, classes, rng).T
    return orthonormal_columns(classes, features, rng) * np.sqrt(classes / features)


def simplex(features: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Weights [classes, features] of a randomly rotated simplex equiangular tight frame."""
    if classes < 2 or classes > features + 1:
        raise FedbenchError(
            f"head frozen-etf: {classes} classes do not fit {features} features (2 to features + 1 do); "
            "use frozen-orthogonal or a wider backbone"
        )
    # Helmert's orthonormal basis [classes, classes - 1] of the space orthogonal to (1, ..., 1): its rows are the
    # vertices of a simplex around the origin, at the distance sqrt(1 - 1/classes).
    vertices = np.zeros((classes, classes - 1))
    for column in range(1, classes):
        vertices[:column, column - 1] = 1 / np.sqrt(column * (column + 1))
        vertices[column, column - 1] = -column / np.sqrt(column * (column + 1))
    rotation = orthonormal_columns(features, classes - 1, rng)
    return np.sqrt(classes / (classes - 1)) * vertices @ rotation.T


def orthonormal_columns(rows: int, columns: int, rng: np.random.Generator) -> np.ndarray:
    """A uniformly random [rows, columns] matrix with orthonormal columns (rows >= columns), in float64."""
    q, r = np.linalg.qr(rng.standard_normal((rows, columns)))
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)  # a unique factorisation, hence uniform


GEOMETRIES = {"frozen-kaiming": kaiming, "frozen-orthogonal": orthogonal, "frozen-etf": simplex}
