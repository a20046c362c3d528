"""FA+LoRA: FedAvg over the shared LoRA and the head."""

from __future__ import annotations

from typing import Literal

from fedbench.methods.fedavg import FedAvg, TrainableOptions
from fedbench.options import options
from fedbench.registry import METHODS


@options
class LoraOptions(TrainableOptions):
    """FedAvg's options with LoRA as the default choice of leaves."""

    trainable: Literal["full", "lora", "head", "norm"] = "lora"


@METHODS.register("fa-lora", LoraOptions)
class FedAvgLora(FedAvg):
    """FedAvg over shared LoRA and head; the trunk is frozen."""
