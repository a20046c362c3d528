"""What methods have in common that are about LoRA's two factors and cannot train anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.methods.base import Method, lacks
from fedbench.options import PositiveFloat, PositiveInt, options

if TYPE_CHECKING:
    from fedbench.models.classifier import Classifier
    from fedbench.models.task import Task
    from fedbench.spec import RunSpec


@options
class AdapterOptions:
    """The adapters' size."""

    rank: PositiveInt = 8
    """LoRA's inner dimension r."""
    lora_alpha: PositiveFloat = 16.0
    """LoRA's scale is lora_alpha / rank."""


def adapter_mismatch(provides: frozenset[str], spec: RunSpec) -> str | None:
    """Why the model has no place for adapters."""
    reason = f"method {spec.method.name} needs LoRA sites, but model {spec.model.name} has none; use a ViT"
    return lacks(provides, "lora-sites", reason)


class AdaptersAndHead(Method):
    """A method over LoRA and the head."""

    options: AdapterOptions

    def build_task(self, classifier: Classifier) -> Task:
        from fedbench.models.lora import LoraTask

        return LoraTask(classifier, self.options.rank, self.options.lora_alpha)
