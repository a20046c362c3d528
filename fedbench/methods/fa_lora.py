"""FA+LoRA: FedAvg over the shared LoRA and the head."""

from __future__ import annotations

from fedbench.methods.fedavg import FedAvg, Trainable, TrainableOptions
from fedbench.options import options
from fedbench.registry import METHODS


@options
class LoraOptions(TrainableOptions):
    """FedAvg's options with LoRA as the default choice of leaves."""

    trainable: Trainable = "lora"


@METHODS.register("fa-lora", LoraOptions)
class FedAvgLora(FedAvg):
    """FedAvg over shared LoRA and head; the trunk is frozen."""
