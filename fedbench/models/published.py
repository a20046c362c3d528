"""Starting weights made elsewhere: timm's by name, or a safetensors file. Never a silent random start."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedbench.config import BaseEntry, Plugin
from fedbench.errors import FedbenchError
from fedbench.models.build import difference, load_weights, read_weights
from fedbench.registry import BACKBONES

if TYPE_CHECKING:
    from fedbench.models.classifier import Classifier


def load_named(classifier: Classifier, model: Plugin, base: BaseEntry, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Give the trunk timm's published weights; the head stays as it is.

    Parameters
    ----------
    classifier : Classifier
        Changed in place.
    model, base : the model's entry and the base's (``base.tag`` chooses among timm's weights)
    shape : (int, int, int)
        Channels, height and width of the stored images.

    Returns
    -------
    dict
        Where the weights come from, for the base's JSON.

    Raises
    ------
    FedbenchError
        If the backbone has no published weights, they cannot be fetched or do not fit, or they expect other input
        statistics than the model was built with.
    """
    target = BACKBONES[model.entry.backbone].target
    if not hasattr(target, "pretrained_trunk"):
        raise FedbenchError(
            f"models.{model.name}: backbone {model.entry.backbone!r} has no published weights; use a base of kind "
            "pretrain or file"
        )
    try:
        trunk = target.pretrained_trunk(model.options, shape, tag=base.tag)
    except FedbenchError:
        raise
    except Exception as error:  # hub, HTTP and timm errors have no common base class
        raise FedbenchError(
            f"models.{model.name}: cannot fetch pretrained weights ({_brief(error)}); connect to the network, or give "
            "a local safetensors file with a base of kind 'file'"
        ) from error
    published = trunk.pretrained_cfg
    if published["mean"] != classifier_statistics(model, "mean") or published["std"] != classifier_statistics(
        model, "std"
    ):
        raise FedbenchError(
            f"models.{model.name}: weights {published['tag']!r} expect other input statistics than the model has; "
            f"write the tag into the model's name ({published['architecture']}.{published['tag']})"
        )
    classifier.trunk.load_state_dict(trunk.state_dict())
    return {"weights": f"{published['architecture']}.{published['tag']}", "head": "new"}
