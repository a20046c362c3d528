"""FLITE: clients train and send only the latents of a frozen, seeded low-rank map of the weights.

"Federated Lightweight Fine-Tuning" (arXiv 2607.18343); the map is in :mod:`fedbench.models.affine_map`.
Because the map is affine, the mean of the clients' latents gives exactly the mean of their weights; the
largest deviation (rounding) is logged each round as `identity_error`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fedbench.methods.base import Group, Method, Phase, lacks
from fedbench.options import PositiveInt, options
from fedbench.registry import METHODS

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.models.affine_map import AffineMapTask
    from fedbench.models.classifier import Classifier
    from fedbench.spec import RunSpec
    from fedbench.tree import Tree


@options
class FLITEOptions:
    """FLITE's map."""

    dimension: PositiveInt = 64
    """d, latent values per mapped tensor."""
    rank: PositiveInt = 32
    """r, rank of the map; at most d."""
    factors: Literal["stored"] = "stored"
    """Keep the orthonormal factors in memory."""
    map_seed: int = 0
    """Seed of the factors; the same for every client, and the same in every run unless it is itself the question."""
    train_head: bool = False
    """Also train and send the head, where the model's head is trainable."""


@METHODS.register("flite", FLITEOptions)
class FLITE(Method):
    """A latent per convolution travels; a frozen, seeded low-rank map turns it into weights."""

    options: FLITEOptions
    task: AffineMapTask

    @staticmethod
    def mismatch(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        if options.rank > options.dimension:
            return f"method {spec.method.name}: rank {options.rank} exceeds dimension {options.dimension}; lower rank"
        if options.train_head and spec.model.entry.head != "trainable":
            return f"method {spec.method.name} trains the head, but the head of model {spec.model.name} is frozen"
        reason = f"method {spec.method.name} maps convolutions, but model {spec.model.name} has none; use a ResNet"
        return lacks(provides, "mapped-weights", reason)

    def build_task(self, classifier: Classifier) -> AffineMapTask:
        from fedbench.models.affine_map import AffineMapTask

        choice = self.options
        return AffineMapTask(classifier, choice.dimension, choice.rank, choice.map_seed, choice.train_head)

    def phases(self) -> tuple[Phase, ...]:
        return (Phase((Group(("",)),)),)

    def diagnostics(self, shared: Tree, messages: Tree, weights: Tensor) -> dict[str, float]:
        latents = shared["latent"] + messages["latent"]
        return {"identity_error": self.task.identity_error(latents, weights)}

    def facts(self) -> dict[str, Any]:
        return {"factors_sha256": self.task.factors_sha256, "mapped_weights": sum(w.numel() for w in self.task.base)}
