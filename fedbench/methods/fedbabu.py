"""FedBABU: the body is trained and travels under a head that never changes; clients fit a head to evaluate.

Oh, Kim and Yun, "FedBABU: Toward Enhanced Representation for Federated Image Classification" (ICLR 2022),
algorithm 1 (federated training updates the body only) and section 5 (fine-tuning for evaluation). How long
clients fine-tune is the run's `fine_tune_epochs`; at 0 they are evaluated under the initial head, which the
paper calls the initial accuracy. The paper compares fine-tuning the head, the body and both, and finds
the first and the last alike; the head is the default here. The run's weight decay is on whatever trains, also in
fine-tuning.
"""

from __future__ import annotations

from typing import Literal

from fedbench.methods._partly_shared import BODY, HEAD, PrivateHead
from fedbench.methods.fa_lora import LoraOptions
from fedbench.methods.method import Group, Phase
from fedbench.options import options
from fedbench.registry import METHODS


@options
class FedBABUOptions(LoraOptions):
    """What the federation trains, and what clients fine-tune for evaluation."""

    fine_tunes: Literal["head", "all"] = "head"
    """What trains for the run's `fine_tune_epochs` before each personal evaluation; at 0 epochs clients are
    evaluated under the initial head (the paper's initial accuracy)."""


@METHODS.register("fedbabu", FedBABUOptions)
class FedBABU(PrivateHead):
    """The body travels under a frozen initial head; clients fine-tune the head to be evaluated."""

    options: FedBABUOptions

    def phases(self) -> tuple[Phase, ...]:
        return (Phase((Group(BODY),)),)

    def evaluation_phases(self, epochs: int) -> tuple[Phase, ...]:
        leaves = HEAD if self.options.fine_tunes == "head" else HEAD + BODY
        return (Phase((Group(leaves),), epochs=epochs),) if epochs else ()
