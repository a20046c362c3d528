"""From a config's model entry to a classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.models.heads import make_head
from fedbench.randomness import stream
from fedbench.registry import BACKBONES

if TYPE_CHECKING:
    from fedbench.config.reading import Entry
    from fedbench.models.classifier import Classifier

TRAINABLE = "trainable"


def make_model(model: Entry, shape: tuple[int, int, int], classes: int, seed: int = 0) -> Classifier:
    """A classifier with random weights, on the CPU, in fp32.

    Parameters
    ----------
    model : Entry
        An entry of `models`: the backbone's options and the kind of head.
    shape : (int, int, int)
        Channels, height and width of the stored images.
    classes : int
    seed : int
        Decides every weight; the trunk's do not depend on the kind of head.

    Returns
    -------
    Classifier
        With ``head.weight.requires_grad`` False and a zero bias where the head is frozen.

    Raises
    ------
    FedbenchError
        If the options do not fit the images or the number of classes.
    """
    backbone = BACKBONES[model.common.backbone].target
    classifier = backbone.build(model.options, tuple(shape), classes, stream(seed, "model"))
    if model.common.head != TRAINABLE:
        features = classifier.head.in_features
        classifier.head = make_head(model.common.head, features, classes, stream(seed, "head"))
        classifier.head_is_frozen = True
    return classifier
