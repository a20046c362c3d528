"""Centralised training on the union of the clients' data: the ceiling.

One pseudo-client holds every client's training samples and trains for the run's rounds and local epochs;
the optimiser is recreated each round, as a client's is. Nothing is counted as communication: the data
themselves would have to travel, which no byte column here claims to measure.
"""

from __future__ import annotations

from fedbench.methods.fedavg import FedAvg, TrainableOptions
from fedbench.registry import METHODS


@METHODS.register("centralised", TrainableOptions)
class Centralised(FedAvg):
    """Training on the union of all clients' data, the ceiling; no federation, no bytes counted."""

    pooled = True
    communicates = False
