"""FedAvg: clients train a copy of the shared leaves, the server adds the mean of their changes.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data" (AISTATS 2017).
Which leaves train and travel is an option: all weights (FedAvg proper), low-rank adapters and head
(FA+LoRA), the head alone, or the affine parameters of normalisation layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fedbench.methods._lora_only import rank_objection
from fedbench.methods.method import Group, Method, Phase, lacks
from fedbench.options import PositiveFloat, PositiveInt, options
from fedbench.registry import METHODS

if TYPE_CHECKING:
    from fedbench.config.spec import RunSpec
    from fedbench.models.classifier import Classifier
    from fedbench.models.task import Task

Trainable = Literal["full", "lora", "conv-lora", "head", "norm"]


@options
class TrainableOptions:
    """Which leaves train."""

    trainable: Trainable = "full"
    """What trains and travels: all weights; LoRA (of a transformer's linear layers, or of convolutions) and the head;
    the head alone; or normalisation's affine parameters and the head."""
    rank: PositiveInt = 8
    """Inner dimension of LoRA; larger trains and sends more. At most the smallest side of a layer that it adapts
    (r)."""
    lora_alpha: PositiveFloat = 16.0
    """How strongly LoRA acts: its output is scaled by this / rank, so more makes larger changes (alpha)."""


def build_trainable(classifier: Classifier, choice: TrainableOptions) -> Task:
    """The task that trains the chosen leaves."""
    from fedbench.models.conv_lora import ConvLoraTask
    from fedbench.models.lora import HeadTask, LoraTask
    from fedbench.models.task import WeightTask, weight_names

    if choice.trainable == "lora":
        return LoraTask(classifier, choice.rank, choice.lora_alpha)
    if choice.trainable == "conv-lora":
        return ConvLoraTask(classifier, choice.rank, choice.lora_alpha)
    if choice.trainable == "head":
        return HeadTask(classifier)
    return WeightTask(classifier, weight_names(classifier, choice.trainable))


def trainable_objection(choice: TrainableOptions, provides: frozenset[str], spec: RunSpec) -> str | None:
    """Why these leaves do not exist in this model, or not in this size."""
    name, model = spec.method.name, spec.model.name
    if choice.trainable == "lora":
        reason = f"method {name} trains LoRA, but model {model} has no LoRA sites; use a ViT"
        return lacks(provides, "lora-sites", reason) or rank_objection(spec)
    if choice.trainable == "conv-lora":
        reason = f"method {name} trains LoRA of convolutions, but model {model} has none; use a ResNet"
        return lacks(provides, "mapped-weights", reason) or rank_objection(spec)
    if choice.trainable == "norm":
        reason = f"method {name} trains normalisation parameters, but model {model} has none"
        return lacks(provides, "norm-affine", reason)
    if choice.trainable == "head" and spec.model.common.head != "trainable":
        return f"method {name} trains only the head, but the head of model {model} is {spec.model.common.head}"
    return None


@METHODS.register("fedavg", TrainableOptions)
class FedAvg(Method):
    """Weight averaging; all weights train and travel unless `trainable` says otherwise."""

    options: TrainableOptions

    @staticmethod
    def objection(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        return trainable_objection(options, provides, spec)

    def build_task(self, classifier: Classifier) -> Task:
        return build_trainable(classifier, self.options)

    def phases(self) -> tuple[Phase, ...]:
        return (Phase((Group(("",)),)),)
