"""Small vision transformers for small images, built for the stored image size.

The default is ViT-Tiny's geometry (12 blocks of width 192, 3 heads) with 4x4 patches: 64 tokens for 32x32 images.
Reference: Dosovitskiy et al. 2021, An Image is Worth 16x16 Words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.errors import FedbenchError
from fedbench.options import PositiveFloat, PositiveInt, options
from fedbench.registry import BACKBONES

if TYPE_CHECKING:
    import numpy as np

    from fedbench.models.classifier import Classifier


@options
class SmallVitOptions:
    """A pre-norm transformer with a class token."""

    patch: PositiveInt = 4
    """Side of a square patch in pixels; smaller makes more tokens. The stored images' height and width must be
    multiples of it."""
    dim: PositiveInt = 192
    """Width of the tokens; more is a larger network."""
    depth: PositiveInt = 12
    """Number of transformer blocks; more is a larger network."""
    heads: PositiveInt = 3
    """Attention heads of each block; they have to divide the width."""
    mlp_ratio: PositiveFloat = 4.0
    """Hidden width of a block's feed-forward part, relative to its width; more is a larger network."""


@BACKBONES.register("small-vit", SmallVitOptions)
class SmallVit:
    """Vision transformer for small images, built for the stored image size (default ViT-Tiny geometry, patch 4)."""

    provides = frozenset({"lora-sites", "norm-affine"})

    @staticmethod
    def adapter_width(options: SmallVitOptions) -> int:
        """The smallest side of a layer that adapters go to."""
        return min(options.dim, int(options.dim * options.mlp_ratio))

    @staticmethod
    def build(
        options: SmallVitOptions, shape: tuple[int, int, int], classes: int, rng: np.random.Generator
    ) -> Classifier:
        """A classifier with random weights for stored images of `shape` (C, H, W).

        Raises
        ------
        FedbenchError
            If patches do not tile the images, or heads do not divide the width.
        """
        from timm.models.vision_transformer import VisionTransformer

        from fedbench.models.classifier import MEAN, STD, Classifier, keyed_initialisation, transformer_sites

        in_channels, height, width = shape
        if height % options.patch or width % options.patch:
            raise FedbenchError(
                f"small-vit: patch {options.patch} does not divide the stored image size {height}x{width}; "
                "choose a divisor of both"
            )
        if options.dim % options.heads:
            raise FedbenchError(
                f"small-vit: heads {options.heads} does not divide dim {options.dim}; choose a divisor of it"
            )
        with keyed_initialisation(rng):
            trunk = VisionTransformer(
                img_size=(height, width),
                patch_size=options.patch,
                in_chans=in_channels,
                num_classes=0,
                embed_dim=options.dim,
                depth=options.depth,
                num_heads=options.heads,
                mlp_ratio=options.mlp_ratio,
            )
            return Classifier(
                trunk,
                options.dim,
                classes,
                mean=(MEAN,) * in_channels,
                std=(STD,) * in_channels,
                sites=transformer_sites(trunk),
            )
