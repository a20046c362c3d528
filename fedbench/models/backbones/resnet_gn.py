"""Residual networks with group normalisation, with the stem for small images (3x3, stride 1, no max-pool).

Batch norm's running statistics have no place in federated averaging, so norms are groups (Hsieh et al. 2020).
Depths 18 and 34 are He et al. 2016's ImageNet networks (64-128-256-512); 8 and 20 their CIFAR networks (16-32-64),
here with projection shortcuts throughout. ResNet-18 has 20 convolutions with 11,159,232 weights for RGB images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fedbench.options import PositiveFloat, PositiveInt, options
from fedbench.registry import BACKBONES

if TYPE_CHECKING:
    import numpy as np

    from fedbench.models.classifier import Classifier

# depth -> (channels per stage, basic blocks per stage)
DEPTHS = {
    8: ((16, 32, 64), (1, 1, 1)),
    20: ((16, 32, 64), (3, 3, 3)),
    18: ((64, 128, 256, 512), (2, 2, 2, 2)),
    34: ((64, 128, 256, 512), (3, 4, 6, 3)),
}


@options
class ResNetOptions:
    """A residual network of basic blocks."""

    depth: Literal[8, 20, 18, 34] = 18
    """Number of layers: 8 and 20 are the CIFAR networks (16-32-64 channels), 18 and 34 the wide ones
    (64-128-256-512)."""
    groups: PositiveInt = 32
    """Groups of each norm; more normalise fewer channels together. Narrow layers take the largest count that leaves two
    channels per group."""
    width: PositiveFloat = 1.0
    """Factor on the channels of every stage; more is a larger network."""


def _widths(options: ResNetOptions) -> tuple[int, ...]:
    """Channels of each stage."""
    return tuple(max(1, round(width * options.width)) for width in DEPTHS[options.depth][0])


@BACKBONES.register("resnet-gn", ResNetOptions)
class ResNetGroupNorm:
    """ResNet-8, -20, -18 or -34 with GroupNorm and the CIFAR stem."""

    provides = frozenset({"mapped-weights", "norm-affine"})

    @staticmethod
    def adapter_width(options: ResNetOptions) -> int:
        """The smallest side of an adapted convolution as a matrix; that of few image channels may be smaller still."""
        return _widths(options)[0]

    @staticmethod
    def build(
        options: ResNetOptions, shape: tuple[int, int, int], classes: int, rng: np.random.Generator
    ) -> Classifier:
        """A classifier with random weights (He initialisation) for images of `shape` (C, H, W) or any other size."""
        from fedbench.models.backbones._resnet_trunk import ResNetTrunk
        from fedbench.models.classifier import MEAN, STD, Classifier, convolution_weights, keyed_initialisation

        widths, blocks = _widths(options), DEPTHS[options.depth][1]
        with keyed_initialisation(rng):
            trunk = ResNetTrunk(shape[0], widths, blocks, options.groups)
            return Classifier(
                trunk,
                widths[-1],
                classes,
                mean=(MEAN,) * shape[0],
                std=(STD,) * shape[0],
                mapped=convolution_weights(trunk),
            )
