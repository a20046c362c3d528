"""The two-convolution network of McMahan et al. 2017 (FedAvg): conv 5x5 32, pool, conv 5x5 64, pool, fc 512."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from fedbench.errors import FedbenchError
from fedbench.options import PositiveInt, options
from fedbench.registry import BACKBONES

if TYPE_CHECKING:
    import numpy as np

    from fedbench.models.classifier import Classifier


@options
class CnnOptions:
    """Two convolutions, two max-pools, one hidden layer."""

    hidden: PositiveInt = 512
    """Units of the fully connected layer before the head; more is a larger network."""


@BACKBONES.register("cnn", CnnOptions)
class Cnn:
    """FedAvg's network of two 5x5 convolutions and a hidden layer."""

    provides = frozenset({"mapped-weights"})

    @staticmethod
    def build(options: CnnOptions, shape: tuple[int, int, int], classes: int, rng: np.random.Generator) -> Classifier:
        """A classifier with random weights for stored images of `shape` (C, H, W).

        Raises
        ------
        FedbenchError
            If the images are too small for two pools.
        """
        from torch import nn

        from fedbench.models.channels_last import ChannelsLast
        from fedbench.models.classifier import MEAN, STD, Classifier, convolution_weights, keyed_initialisation

        in_channels, height, width = shape
        if min(height, width) < 4:
            raise FedbenchError(f"cnn: images of {height}x{width} are too small for two pools; use the mlp backbone")
        with keyed_initialisation(rng):
            # Pooling before the ReLU gives the same values and gradients, and leaves it a quarter of the work.
            trunk = nn.Sequential(
                OrderedDict(
                    layout=ChannelsLast(),
                    conv1=nn.Conv2d(in_channels, 32, 5, padding=2),
                    pool1=nn.MaxPool2d(2),
                    relu1=nn.ReLU(),
                    conv2=nn.Conv2d(32, 64, 5, padding=2),
                    pool2=nn.MaxPool2d(2),
                    relu2=nn.ReLU(),
                    flatten=nn.Flatten(),
                    hidden=nn.Linear(64 * (height // 4) * (width // 4), options.hidden),
                    relu3=nn.ReLU(),
                )
            )
            return Classifier(
                trunk,
                options.hidden,
                classes,
                mean=(MEAN,) * in_channels,
                std=(STD,) * in_channels,
                mapped=convolution_weights(trunk),
            )
