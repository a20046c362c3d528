"""Ditto: beside the federation each client trains a model of its own, tied to the shared one.

Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization" (ICML 2021), equation 2 and
algorithm 1. A participation trains the received weights w_t as FedAvg does (this travels), then the client's own
v for as many epochs on

    F_k(v) + (mu / 2) ||v - w_t||^2.

v stays, starts from the common initial weights and is what the client is evaluated with; the loss that
is logged is v's. A client without any participation that trains for evaluation starts its v from the shared
weights. The run's weight decay is on both: v is a whole model that minimises the objective of w besides its tie.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fedbench.methods._own_copy import OWN, SHARED, OwnCopy, own, owned, shared_part
from fedbench.methods.fa_lora import LoraOptions
from fedbench.methods.method import Group, Phase
from fedbench.options import NonNegativeFloat, options
from fedbench.registry import METHODS
from fedbench.tree import squared_norms

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tree import Tree


@options
class DittoOptions(LoraOptions):
    """FedAvg's options and the tie between own and shared weights."""

    mu: NonNegativeFloat = 0.1
    """Pull of the own weights to the received ones, on half the squared distance; more makes them less personal
    (mu)."""


@METHODS.register("ditto", DittoOptions)
class Ditto(OwnCopy):
    """FedAvg, and beside it a model of its own per client that is drawn towards the shared one."""

    options: DittoOptions

    def newcomer(self, received: Tree, private: Tree) -> Tree:
        return owned(received)

    def phases(self) -> tuple[Phase, ...]:
        personal = Phase((Group((OWN,)),), view=own, penalty=self.penalty)
        return Phase((Group(SHARED),), view=shared_part), personal

    def evaluation_phases(self, epochs: int) -> tuple[Phase, ...]:
        return (replace(self.phases()[1], epochs=epochs),) if epochs else ()

    def penalty(self, local: Tree, received: Tree) -> Tensor:
        """(mu / 2) ||v - w_t||^2, [K]."""
        personal = own(local)
        return 0.5 * self.options.mu * squared_norms({n: personal[n] - leaf for n, leaf in received.items()})
