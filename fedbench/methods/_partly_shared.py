"""What methods have in common that train one set of leaves, of which some travel and the others stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbench.methods.fedavg import FedAvg, TrainableOptions, trainable_objection

if TYPE_CHECKING:
    import numpy as np

    from fedbench.config.spec import RunSpec
    from fedbench.tree import Tree

HEAD = ("head.",)
BODY = ("trunk.", "lora.")


class PartlyShared(FedAvg):
    """FedAvg over the leaves that do not stay with their client.

    All clients' leaves start from the same values; those of the leaves that stay also complete the shared
    model, for its own evaluation and for clients that never took part.
    """

    def stays(self, name: str) -> bool:
        """Whether a leaf stays with its client."""
        return name.startswith(HEAD)

    def init_shared(self, rng: np.random.Generator) -> Tree:
        return {name: leaf for name, leaf in self.task.init(rng).items() if not self.stays(name)}

    def init_private(self, rng: np.random.Generator, shared: Tree) -> Tree:
        return {name: leaf for name, leaf in self.start.items() if self.stays(name)}

    def global_weights(self, shared: Tree) -> Tree:
        return {**shared, **{name: leaf for name, leaf in self.start.items() if self.stays(name)}}


class PrivateHead(PartlyShared):
    """A body that travels and a head that stays."""

    options: TrainableOptions

    @staticmethod
    def objection(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        return (
            private_head_objection(spec)
            or body_objection(options, spec)
            or trainable_objection(options, provides, spec)
        )


def private_head_objection(spec: RunSpec) -> str | None:
    """Why a head that clients train for themselves does not exist in this model."""
    name, model, head = spec.method.name, spec.model.name, spec.model.common.head
    if head == "trainable":
        return None
    return f"method {name} gives each client a head of its own, but the head of model {model} is {head}"


def body_objection(options: TrainableOptions, spec: RunSpec) -> str | None:
    """Why nothing would travel."""
    if options.trainable != "head":
        return None
    return (
        f"method {spec.method.name} keeps the head and would share nothing with trainable: head; use full, lora or norm"
    )
