"""A perceptron with one hidden layer: the smallest model, where overheads show (3072-32-10 has 98,666 weights)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from fedbench.options import PositiveInt, options
from fedbench.registry import BACKBONES

if TYPE_CHECKING:
    import numpy as np

    from fedbench.models.classifier import Classifier


@options
class MlpOptions:
    """One hidden layer with ReLU."""

    hidden: PositiveInt = 32
    """Units of the hidden layer; more is a larger network."""


@BACKBONES.register("mlp", MlpOptions)
class Mlp:
    """Perceptron with one hidden layer on flattened pixels."""

    provides: frozenset[str] = frozenset()

    @staticmethod
    def build(options: MlpOptions, shape: tuple[int, int, int], classes: int, rng: np.random.Generator) -> Classifier:
        """A classifier with random weights for stored images of `shape` (C, H, W)."""
        from torch import nn

        from fedbench.models.classifier import MEAN, STD, Classifier, keyed_initialisation
        from fedbench.models.linear import WeightFirstLinear

        with keyed_initialisation(rng):
            trunk = nn.Sequential(nn.Flatten(), WeightFirstLinear(prod(shape), options.hidden), nn.ReLU())
            return Classifier(trunk, options.hidden, classes, mean=(MEAN,) * shape[0], std=(STD,) * shape[0])
