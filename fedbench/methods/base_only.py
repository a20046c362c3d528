"""Base: the starting model, untouched. Every other row is worth its gain over this one.

Newcomers have it untouched too, whatever `held_out_epochs` their partition gives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbench.methods.method import Method, Phase
from fedbench.options import options
from fedbench.registry import METHODS

if TYPE_CHECKING:
    from fedbench.config.spec import RunSpec
    from fedbench.models.classifier import Classifier
    from fedbench.models.task import Task


@options
class BaseOptions:
    """The base has no options."""


@METHODS.register("base", BaseOptions)
class Base(Method):
    """The base model untouched: nothing trains, nothing travels."""

    communicates = False

    @staticmethod
    def objection(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        if spec.training.fine_tune_epochs:
            return f"method {spec.method.name} leaves the base untouched; set its training to fine_tune_epochs: 0"
        return None

    def build_task(self, classifier: Classifier) -> Task:
        from fedbench.models.task import WeightTask

        return WeightTask(classifier, [])

    def phases(self) -> tuple[Phase, ...]:
        return ()
