"""Head-only: FedAvg over the classification head, the cheapest baseline that learns."""

from __future__ import annotations

from fedbench.methods.fedavg import FedAvg, Trainable, TrainableOptions
from fedbench.options import options
from fedbench.registry import METHODS


@options
class HeadOptions(TrainableOptions):
    """FedAvg's options with the head as the default choice of leaves."""

    trainable: Trainable = "head"


@METHODS.register("head-only", HeadOptions)
class HeadOnly(FedAvg):
    """FedAvg over the classification head alone; the trunk is frozen."""
