"""Starting weights made elsewhere: timm's by name, or a safetensors file. Never a silent random start."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbench.config.entries import BaseEntry
from fedbench.config.reading import Entry
from fedbench.data import raw
from fedbench.errors import FedbenchError
from fedbench.models.weights import difference, load_weights, read_weights
from fedbench.registry import BACKBONES

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedbench.models.classifier import Classifier

HEAD = ("head.weight", "head.bias")


def load_named(classifier: Classifier, model: Entry, base: BaseEntry, shape: tuple[int, int, int]) -> dict[str, Any]:
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
        If the backbone has no published weights, or they cannot be fetched or do not fit.
    """
    target = BACKBONES[model.common.backbone].target
    if not hasattr(target, "pretrained_trunk"):
        raise FedbenchError(
            f"models.{model.name}: backbone {model.common.backbone!r} has no published weights; use a base of kind "
            "pretrain or file"
        )
    try:
        trunk = target.pretrained_trunk(model.options, shape, tag=base.tag)
    except FedbenchError:
        raise
    except Exception as error:  # the errors of hubs, HTTP and timm have no common base class
        raise FedbenchError(
            f"models.{model.name}: cannot get pretrained weights ({brief(error)}); check the network, or give a local "
            "safetensors file with a base of kind 'file'"
        ) from error
    classifier.trunk.load_state_dict(trunk.state_dict())
    name, tag = trunk.pretrained_cfg["architecture"], trunk.pretrained_cfg["tag"]
    return {"weights": f"{name}.{tag}", "head": "new"}


def load_file(
    classifier: Classifier, model: Entry, base: BaseEntry, shape: tuple[int, int, int], data_root: Path
) -> dict[str, Any]:
    """Give the classifier the weights of a safetensors file: this project's names, or timm's for timm models.

    A file in this project's names also brings its head if that has the same classes; otherwise (another number
    of classes, or timm's names) the head stays as it is, which the returned record says.

    Parameters
    ----------
    data_root : Path
        Folder that a relative ``base.path`` starts from; the other parameters are :func:`load_named`'s.

    Raises
    ------
    FedbenchError
        If the file is missing, damaged, not safetensors, or of another architecture.
    """
    path = Path(data_root) / base.path
    weights = read_weights(path)
    with open(path, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    record = {"weights": base.path, "weights_sha256": sha256, "raw": raw.record([path])}
    if any(name.startswith("trunk.") for name in weights):
        if all(name in weights for name in HEAD) and weights[HEAD[0]].shape != classifier.head.weight.shape:
            own = classifier.state_dict()
            load_weights(classifier, {**weights, **{name: own[name] for name in HEAD}}, path)
            return {**record, "head": "new"}
        load_weights(classifier, weights, path)
        return {**record, "head": "file"}
    target = BACKBONES[model.common.backbone].target
    if hasattr(target, "pretrained_trunk"):
        weights = _resampled(target, model, shape, weights, path).state_dict()
    complaint = difference(classifier.trunk.state_dict(), weights)
    if complaint:
        raise FedbenchError(f"{path}: weights of another architecture: {complaint}; use a file made for this model")
    classifier.trunk.load_state_dict(weights)
    return {**record, "head": "new"}


def _resampled(
    target: Any, model: Entry, shape: tuple[int, int, int], weights: dict[str, Tensor], path: Path
) -> nn.Module:
    """The trunk with `weights` fitted to the model's image size and channels."""
    try:
        return target.pretrained_trunk(model.options, shape, weights=weights)
    except FedbenchError:
        raise
    except Exception as error:  # timm and torch complain about a misfit in several ways
        raise FedbenchError(
            f"{path}: weights of another architecture: {brief(error)}; use a file made for this model"
        ) from error


def brief(error: Exception) -> str:
    """The most telling line of a library's error: torch puts the first difference on the second line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[1] if len(lines) > 1 and lines[0].startswith("Error(s) in loading") else "".join(lines[:1])
    text = text if len(text) <= 200 else f"{text[:200]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
