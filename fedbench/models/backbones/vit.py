"""Vision transformers by timm name, at the size their weights were trained at or another one.

Input statistics and size come from the weights' own data configuration: ``vit_tiny_patch16_224.augreg_in21k``
has mean = std = 0.5, not ImageNet's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbench.errors import FedbenchError, nearest
from fedbench.options import PositiveInt, options
from fedbench.registry import BACKBONES

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from fedbench.models.classifier import Classifier


@options
class VitOptions:
    """A transformer of timm's `vit_*` family."""

    name: str = "vit_tiny_patch16_224"
    """Name of a timm model, optionally with a weight tag (vit_tiny_patch16_224.augreg_in21k)."""
    image_size: PositiveInt | None = None
    """Side of the square input that images are resized to; none takes the size in the weights' configuration."""


@BACKBONES.register("vit", VitOptions)
class Vit:
    """Vision transformer by timm name (default ViT-Tiny/16 at 224), images resized on the device."""

    provides = frozenset({"lora-sites", "norm-affine"})

    @staticmethod
    def build(options: VitOptions, shape: tuple[int, int, int], classes: int, rng: np.random.Generator) -> Classifier:
        """A classifier with random weights.

        Parameters
        ----------
        options : VitOptions
        shape : (int, int, int)
            Channels, height and width of the stored images.
        classes : int
        rng : numpy Generator
            Decides every initial weight.

        Raises
        ------
        FedbenchError
            If timm has no such transformer, or the image size does not fit its patches.
        """
        from timm.data import resolve_data_config

        from fedbench.models.classifier import Classifier, keyed_initialisation, transformer_sites

        with keyed_initialisation(rng):
            trunk = _create(options.name, options, shape[0])
            data = resolve_data_config(pretrained_cfg=trunk.pretrained_cfg)
            return Classifier(
                trunk,
                trunk.num_features,
                classes,
                mean=channels(data["mean"], shape[0]),
                std=channels(data["std"], shape[0]),
                input_size=tuple(trunk.patch_embed.img_size),
                sites=transformer_sites(trunk),
            )

    @staticmethod
    def pretrained_trunk(
        options: VitOptions,
        shape: tuple[int, int, int],
        tag: str | None = None,
        weights: dict[str, Tensor] | None = None,
    ) -> nn.Module:
        """The trunk with timm's published weights, or with `weights` under timm's names; strictly loaded.

        Position embeddings are resampled where the input size differs from the weights' own.

        Parameters
        ----------
        tag : str or None
            timm's weight tag; None takes the tag in ``options.name``, or timm's default.
        weights : dict of tensors or None
            Loaded instead of a download; a classification head in it is left out.

        Raises
        ------
        FedbenchError
            If timm has no such tag, or the tag's input statistics are not the ones that `build` gave the model.
        Exception
            Whatever timm raises when a download or a load fails; the caller knows what to say about it.
        """
        if weights is None:
            name = options.name if tag is None else f"{options.name.partition('.')[0]}.{tag}"
            _check_name(name)
            _check_same_statistics(options.name, name)
            return _create(name, options, shape[0], pretrained=True)
        overlay = {
            "state_dict": {key: value for key, value in weights.items() if not key.startswith(("head.", "head_dist."))},
            "custom_load": False,  # the original augreg files are NPZ with their own reader; these are timm's names
            "num_classes": 0,  # equal to the model's, so that timm loads strictly
        }
        return _create(options.name, options, shape[0], pretrained=True, pretrained_cfg_overlay=overlay)


def channels(values: tuple[float, ...], count: int) -> tuple[float, ...]:
    """Three channels' statistics as they are, or their mean for grey images."""
    return tuple(values) if count == len(values) else (sum(values) / len(values),) * count


def _check_name(name: str) -> None:
    import timm

    known = timm.list_models("vit_*")
    architecture, _, tag = name.partition(".")
    if architecture not in known:
        raise FedbenchError(f"vit: timm has no vision transformer {name!r}; {nearest(name, known)}")
    tagged = timm.list_pretrained(f"{architecture}.*")
    if tag and name not in tagged:
        raise FedbenchError(f"vit: timm has no weights {name!r}; {nearest(name, tagged)}")


def _check_same_statistics(built: str, loaded: str) -> None:
    from timm.data import resolve_data_config
    from timm.models import get_pretrained_cfg

    own, other = (resolve_data_config(pretrained_cfg=get_pretrained_cfg(name).to_dict()) for name in (built, loaded))
    if (own["mean"], own["std"]) != (other["mean"], other["std"]):
        raise FedbenchError(
            f"vit: weights {loaded!r} expect inputs of mean {other['mean']} and std {other['std']}, unlike {built!r}; "
            f"write name: {loaded} in the model's entry"
        )


def _create(name: str, options: VitOptions, in_channels: int, **extra: Any) -> nn.Module:
    import timm
    from timm.models.vision_transformer import VisionTransformer

    _check_name(name)
    size = {} if options.image_size is None else {"img_size": options.image_size}
    trunk = timm.create_model(name, num_classes=0, in_chans=in_channels, **size, **extra)
    if not isinstance(trunk, VisionTransformer):
        raise FedbenchError(
            f"vit: {name!r} is a {type(trunk).__name__}, not a plain vision transformer; choose another name"
        )
    patch = trunk.patch_embed.patch_size[0]
    if any(side % patch for side in trunk.patch_embed.img_size):
        raise FedbenchError(
            f"vit: image_size {options.image_size} is not a multiple of {name!r}'s patch size {patch}; change it"
        )
    return trunk
