"""pFedMe: clients move the shared weights towards personal ones that solve a proximal problem.

Dinh, Tran and Nguyen, "Personalized Federated Learning with Moreau Envelopes" (NeurIPS 2020), algorithm 1.
For each batch, K steps on

    f_k(theta; batch) + (lambda / 2) ||theta - w||^2                  (equation 7)

give the personal weights theta, then  w <- w - eta lambda (w - theta)  (equation 8). w travels, and the server
takes (1 - beta) w_t + beta mean_k w_k; theta is what a client is evaluated with. The steps on theta are the run's
local optimiser at the run's learning rate. As in the authors' code theta goes on from batch to batch and
starts each participation from the received w. Before an evaluation with fine-tuning theta starts from w likewise
and w stays. The run's weight decay is on theta, as a part of f_k: only theta meets the loss, and w just follows it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedbench.methods._own_copy import OWN, OwnCopy, own, owned, shared_part
from fedbench.methods.fa_lora import LoraOptions
from fedbench.methods.fedavg import trainable_objection
from fedbench.methods.method import Group, Phase
from fedbench.options import PositiveFloat, PositiveInt, options
from fedbench.registry import METHODS
from fedbench.tree import add, squared_norms

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.config.spec import RunSpec
    from fedbench.tree import Tree


@options
class PFedMeOptions(LoraOptions):
    """The proximal problem and the steps on the shared weights; defaults as in the authors' code."""

    proximity: PositiveFloat = 15.0
    """Pull of the personal weights to the shared ones; more makes them less personal (lambda)."""
    inner_steps: PositiveInt = 5
    """Optimiser steps on the personal weights for each batch; more solve the proximal problem better (K)."""
    outer_rate: PositiveFloat = 0.005
    """Rate of the shared weights' step towards the personal ones after each batch; more follows them faster (eta)."""
    beta: PositiveFloat = 1.0
    """Server's step towards the mean of the clients' shared weights; 1 takes the mean, less keeps part of the old
    (beta)."""


@METHODS.register("pfedme", PFedMeOptions)
class PFedMe(OwnCopy):
    """Personal weights solve a proximal problem around the shared ones, which follow them."""

    options: PFedMeOptions

    @staticmethod
    def objection(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        name, training = spec.method.name, spec.training
        if options.outer_rate * options.proximity > 1:
            return f"method {name}: outer_rate * proximity is above 1, so w would step beyond theta; lower either"
        if training.optimizer == "sgd" and training.learning_rate * options.proximity >= 2:
            return (
                f"method {name}: SGD diverges on the proximal term where learning_rate * proximity is 2 or more; "
                "lower either"
            )
        return trainable_objection(options, provides, spec)

    def phases(self) -> tuple[Phase, ...]:
        return (
            Phase(
                (Group((OWN,)),),
                repeats=self.options.inner_steps,
                view=own,
                penalty=self.penalty,
                before=lambda local: owned(shared_part(local)),
                after_batch=self.follow,
            ),
        )

    def evaluation_phases(self, epochs: int) -> tuple[Phase, ...]:
        return tuple(replace(phase, epochs=epochs, after_batch=None) for phase in self.phases()) if epochs else ()

    def penalty(self, local: Tree, received: Tree) -> Tensor:
        """(lambda / 2) ||theta - w||^2 with w as the client has moved it so far, [K]."""
        personal, shared = own(local), shared_part(local)
        return 0.5 * self.options.proximity * squared_norms({n: personal[n] - leaf for n, leaf in shared.items()})

    def follow(self, local: Tree) -> Tree:
        """w - eta lambda (w - theta)."""
        step, personal = self.options.outer_rate * self.options.proximity, own(local)
        return {name: leaf - step * (leaf - personal[name]) for name, leaf in shared_part(local).items()}

    def aggregate(self, shared: Tree, mean_message: Tree, server: Tree, share: float) -> tuple[Tree, Tree]:
        return add(shared, mean_message, self.options.beta), server
