"""FedRep: clients fit their own head to the shared body, then improve the body under it.

Collins et al., "Exploiting Shared Representations for Personalized Federated Learning" (ICML 2021),
algorithm 1: several local updates of the head h_k with the representation phi fixed, then updates of phi
with h_k fixed; phi travels and is averaged, h_k stays. FedSDG's paper uses 4 and 1 epochs. Before an
evaluation with fine-tuning only the head trains, as the paper's new clients do. The shared model is
evaluated under the head that everyone starts from. The run's weight decay is on body and head, so that a head that
stays differs from one that travels in nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbench.methods._partly_shared import BODY, HEAD, PrivateHead
from fedbench.methods.fa_lora import LoraOptions
from fedbench.methods.method import Group, Phase
from fedbench.options import PositiveInt, options
from fedbench.registry import METHODS

if TYPE_CHECKING:
    from fedbench.config.spec import RunSpec


@options
class FedRepOptions(LoraOptions):
    """FedRep's two phases; they replace the run's local epochs."""

    head_epochs: PositiveInt = 4
    """Passes over the own samples that train the head with the body frozen; more fit it better to the client."""
    body_epochs: PositiveInt = 1
    """Passes that then train the body with the head frozen; more move the shared part further."""


@METHODS.register("fedrep", FedRepOptions)
class FedRep(PrivateHead):
    """The head trains first and stays, then the body trains under it and travels."""

    options: FedRepOptions

    @staticmethod
    def objection(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        if spec.training.local_steps is not None:
            return f"method {spec.method.name} counts its phases in epochs; remove training.local_steps"
        return PrivateHead.objection(options, provides, spec)

    def phases(self) -> tuple[Phase, ...]:
        return (
            Phase((Group(HEAD),), epochs=self.options.head_epochs),
            Phase((Group(BODY),), epochs=self.options.body_epochs),
        )

    def evaluation_phases(self, epochs: int) -> tuple[Phase, ...]:
        return (Phase((Group(HEAD),), epochs=epochs),) if epochs else ()
