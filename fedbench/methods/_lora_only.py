"""What methods have in common that are about LoRA's two factors and cannot train anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.methods.method import Method, lacks
from fedbench.options import PositiveFloat, PositiveInt, options
from fedbench.registry import BACKBONES

if TYPE_CHECKING:
    from fedbench.config.spec import RunSpec
    from fedbench.models.classifier import Classifier
    from fedbench.models.task import Task


@options
class AdapterOptions:
    """The adapters' size."""

    rank: PositiveInt = 8
    """Inner dimension of LoRA; larger trains and sends more. At most the smallest side of a layer that it adapts
    (r)."""
    lora_alpha: PositiveFloat = 16.0
    """How strongly LoRA acts: its output is scaled by this / rank, so more makes larger changes (alpha)."""


def adapter_objection(provides: frozenset[str], spec: RunSpec) -> str | None:
    """Why the model has no place for adapters, or none for such large ones."""
    reason = f"method {spec.method.name} needs LoRA sites, but model {spec.model.name} has none; use a ViT"
    return lacks(provides, "lora-sites", reason) or rank_objection(spec)


def rank_objection(spec: RunSpec) -> str | None:
    """Why adapters are larger than any change of the layers needs, where the model's options tell these layers' width.

    Tasks check all layers (:func:`fedbench.models.lora.check_rank`) once the model is built.
    """
    backbone, name = BACKBONES[spec.model.common.backbone].target, spec.method.name
    if not hasattr(backbone, "adapter_width"):
        return None
    width = backbone.adapter_width(spec.model.options)
    for option in ("rank", "private_rank"):
        rank = getattr(spec.method.options, option, 0)
        if rank > width:
            return f"method {name}: {option} {rank} exceeds the width {width} of model {spec.model.name}; lower it"
    return None


class AdaptersAndHead(Method):
    """A method over LoRA and the head."""

    options: AdapterOptions

    def build_task(self, classifier: Classifier) -> Task:
        from fedbench.models.lora import LoraTask

        return LoraTask(classifier, self.options.rank, self.options.lora_alpha)
