"""FedSDG: shared LoRA travels, a private LoRA stays, aligned in scale and gated per mapping.

"Identifiable Gated Residual Personalization for Federated PEFT" (ECCV 2026); the forward pass is in
:mod:`fedbench.models.dual_lora`. A client minimises

    CE + lambda1 * sum_l m_l + lambda2 * ||theta_p||_2^2

(both sums) over the shared LoRA, the head, its private LoRA and its gate logits together. Only the change
of shared LoRA and head goes up, so a round costs the bytes of FA+LoRA. The shared model is evaluated at
m = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedbench.methods import _gates
from fedbench.methods._lora_only import adapter_objection
from fedbench.methods.method import Group, Method, Phase
from fedbench.options import Float, NonNegativeFloat, PositiveFloat, PositiveInt, Share, options
from fedbench.registry import METHODS
from fedbench.tree import select, squared_norms

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedbench.config.spec import RunSpec
    from fedbench.models.classifier import Classifier
    from fedbench.models.dual_lora import DualLoraTask
    from fedbench.tree import Tree


@options
class FedSDGOptions:
    """FedSDG and its ablations."""

    rank: PositiveInt = 8
    """Inner dimension of the shared LoRA; larger trains and sends more. At most the smallest side of a layer that it
    adapts (r)."""
    lora_alpha: PositiveFloat = 16.0
    """How strongly both branches act: their outputs are scaled by this / their rank, so more makes larger
    changes (alpha)."""
    private_rank: PositiveInt = 8
    """Inner dimension of the private LoRA, with the same bound; larger trains more and sends nothing (r)."""
    alignment: Literal["base", "global", "geomean", "floor", "none"] = "base"
    """What the private branch's scale is brought to: the frozen output's RMS (the paper's choice), the shared
    residual's, their geometric mean, the shared residual's but at least a tenth of the frozen output's, or
    nothing."""
    gate: Literal["learned", "fixed"] = "learned"
    """Whether each client learns how much of the private branch it takes, or all take `gate_value`."""
    gate_value: Share = 0.047
    """Gate where it is fixed: 0 uses the shared branch alone, 1 the private one in full (m)."""
    gate_level: Literal["site", "block"] = "site"
    """Where gates are: one for each adapted mapping, or one for each transformer block."""
    gate_init: Float = -3.0
    """Logit that learned gates start from; higher starts with more of the private branch, and -3 is a gate of 0.047."""
    gate_learning_rate: PositiveFloat = 0.1
    """Learning rate of the gate logits, in place of the run's; more moves gates faster."""
    gate_penalty: NonNegativeFloat = 0.01
    """Penalty on the gates summed over mappings (a block's gate counts once for each mapping that shares it); more
    keeps them lower (lambda1)."""
    private_penalty: NonNegativeFloat = 0.001
    """Penalty on the private LoRA's squared norm; more keeps it smaller (lambda2)."""
    head: Literal["shared", "private"] = "shared"
    """Whether the head travels or stays with each client. A private head keeps the run's weight decay, as a shared one
    does; private LoRA and gates have none."""


@METHODS.register("fedsdg", FedSDGOptions)
class FedSDG(Method):
    """Shared LoRA travels; a private LoRA, aligned to the frozen backbone and gated, stays."""

    options: FedSDGOptions
    task: DualLoraTask
    columns = _gates.COLUMNS
    tables: ClassVar = {_gates.TABLE: _gates.TABLE_COLUMNS}
    followed_leaves = ("gate.",)

    @staticmethod
    def objection(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        if options.head == "private" and spec.model.common.head != "trainable":
            return f"method {spec.method.name} keeps a private head, but the head of model {spec.model.name} is frozen"
        return adapter_objection(provides, spec)

    def build_task(self, classifier: Classifier) -> DualLoraTask:
        from fedbench.models.dual_lora import DualLoraTask

        choice = self.options
        return DualLoraTask(
            classifier,
            rank=choice.rank,
            alpha=choice.lora_alpha,
            private_rank=choice.private_rank,
            alignment=choice.alignment,
            gate_level=choice.gate_level,
            gate_value=choice.gate_value if choice.gate == "fixed" else None,
            gate_init=choice.gate_init,
        )

    def init_shared(self, rng: np.random.Generator) -> Tree:
        start = self.task.init(rng)
        return start if self.options.head == "shared" else select(start, "lora.")

    def init_private(self, rng: np.random.Generator, shared: Tree) -> Tree:
        return {**self.task.init_private(rng), **self._own_head()}

    def _own_head(self) -> Tree:
        """The common starting head where heads are private: each client's, and the shared model's for evaluation."""
        return {} if self.options.head == "shared" else select(self.start, "head.")

    def phases(self) -> tuple[Phase, ...]:
        groups = [Group(("lora.", "head.")), Group(("private.",), weight_decay=0.0)]
        if self.options.gate == "learned":
            groups.append(Group(("gate.",), learning_rate=self.options.gate_learning_rate, weight_decay=0.0))
        return (Phase(tuple(groups), penalty=self.penalty),)

    def penalty(self, local: Tree, received: Tree) -> Tensor:
        """lambda1 * sum of gates + lambda2 * squared norm of the private LoRA, [K]."""
        value = self.options.private_penalty * squared_norms(select(local, "private."))
        if self.options.gate == "fixed":  # a constant: no gradient, and no claim on the loss
            return value
        # One term per mapping, also where a block's mappings share their logit (the paper sums over l).
        gates = [self.task.gate(site, local) for site in self.task.classifier.sites]
        return value + self.options.gate_penalty * sum(gates)

    def global_weights(self, shared: Tree) -> Tree:
        return {**shared, **self._own_head()}

    def gates(self, private: Tree) -> dict[tuple[int, str], Tensor]:
        """Gates per (block, kind of site), each [K]."""
        from fedbench.lazy import torch

        clients = next(iter(private.values())).shape[0]
        values: dict[tuple[int, str], Tensor] = {}
        for site in self.task.classifier.sites:
            gate = self.task.gate(site, private)
            values[site.block, site.kind] = gate if self.options.gate == "learned" else torch.full((clients,), gate)
        return values

    def observe(self, before: Tree, after: Tree, gradients: Tree) -> Tree:
        return _gates.observe(self.gates(before), self.gates(after), gradients)

    def diagnostics(self, shared: Tree, messages: Tree, weights: Tensor, observed: Tree) -> dict[str, float]:
        return _gates.dynamics(observed)

    def private_diagnostics(self, private: Tree) -> dict[str, float]:
        return _gates.means(self.gates(private))

    def rows(self, clients: Sequence[int], private: Tree) -> dict[str, list[dict[str, Any]]]:
        return {_gates.TABLE: _gates.rows(clients, self.gates(private))}
