"""Base: the starting model, untouched. Every other row is worth its gain over this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.methods.base import Method, Phase
from fedbench.options import options
from fedbench.registry import METHODS

if TYPE_CHECKING:
    from fedbench.models.classifier import Classifier
    from fedbench.models.task import Task


@options
class BaseOptions:
    """The base has no options."""


@METHODS.register("base", BaseOptions)
class Base(Method):
    """The base model untouched: nothing trains, nothing travels."""

    communicates = False

    def build_task(self, classifier: Classifier) -> Task:
        from fedbench.models.task import WeightTask

        return WeightTask(classifier, [])

    def phases(self) -> tuple[Phase, ...]:
        return ()
