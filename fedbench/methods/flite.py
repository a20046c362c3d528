"""FLITE: clients train and send only the latents of a frozen, seeded low-rank map of the weights.

"Federated Lightweight Fine-Tuning" (arXiv 2607.18343); the map is in :mod:`fedbench.models.affine_map`.
Because the map is affine, the mean of the clients' latents gives exactly the mean of their weights; the
largest deviation (rounding) is logged each round as `identity_error`.

Two things that the paper does not say. Only y = V^T z (r numbers per tensor) reaches the weights: `latent: y` trains
and sends y itself. And at a fixed rank a larger d only enlarges Adam's step: each of d numbers moves by about the
learning rate, so weights move by about learning_rate * sqrt(d); compare dimensions at equal steps (`match_dimension`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedbench.methods.method import Group, Method, Phase, lacks
from fedbench.options import PositiveInt, options
from fedbench.registry import METHODS

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.config.spec import RunSpec
    from fedbench.models.affine_map import AffineMapTask
    from fedbench.models.classifier import Classifier
    from fedbench.tree import Tree


@options
class FLITEOptions:
    """FLITE's map."""

    dimension: PositiveInt = 64
    """Latent values of each mapped tensor; more train and send more (d)."""
    rank: PositiveInt = 32
    """Rank of the map from latent to weights, at most `dimension`; more reaches more directions (r)."""
    factors: Literal["stored", "stored-bf16", "seeded", "rademacher", "dense"] = "stored"
    """How the map is kept: orthonormal factors in memory (fp32 or bf16), drawn again from their seed in every pass (the
    same factors, no memory, much slower), hashed signs instead of them (bit-equal on any device, orthogonal only on
    average; rank up to 32), or multiplied out to one dense matrix per tensor (small models only)."""
    latent: Literal["z", "y"] = "z"
    """What trains and travels for each mapped tensor: z (d numbers), or y = V^T z (r numbers; `dimension` then has no
    part)."""
    match_dimension: PositiveInt | None = None
    """Number of latent values whose Adam steps are matched in size; more makes larger steps, and none changes none. The
    latent's learning rate is multiplied by sqrt(match_dimension / n), n = d numbers of z or r of y, because a step in
    weight norm is about learning_rate * sqrt(n)."""
    map_seed: int = 0
    """Seed that the map's factors are drawn from; the same for every client, and the same in every run unless it is
    itself the question."""
    train_head: bool = False
    """Also train and send the head, where the model's head is trainable."""


@METHODS.register("flite", FLITEOptions)
class FLITE(Method):
    """A latent per convolution travels; a frozen, seeded low-rank map turns it into weights."""

    options: FLITEOptions
    task: AffineMapTask
    columns: ClassVar = {
        "identity_error": "largest |mean of the clients' weights - weights of the mean latent|, before the channel"
    }

    @staticmethod
    def objection(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        name = spec.method.name
        if options.latent == "z" and options.rank > options.dimension:
            return f"method {name}: rank {options.rank} exceeds dimension {options.dimension}; lower rank"
        if options.factors == "rademacher" and options.rank > 32:
            return f"method {name}: a 32-bit hash has no {options.rank} signs; lower rank to 32"
        if options.factors == "dense" and options.latent == "y":
            return f"method {name}: a dense map takes z, not y; use factors: stored"
        if options.train_head and spec.model.common.head != "trainable":
            return f"method {name} trains the head, but the head of model {spec.model.name} is frozen"
        reason = f"method {name} maps convolutions, but model {spec.model.name} has none; use a ResNet"
        return lacks(provides, "mapped-weights", reason)

    def build_task(self, classifier: Classifier) -> AffineMapTask:
        from fedbench.models.affine_map import AffineMapTask

        choice = self.options
        return AffineMapTask(
            classifier,
            choice.dimension,
            choice.rank,
            choice.map_seed,
            choice.train_head,
            choice.factors,
            choice.latent,
        )

    def phases(self) -> tuple[Phase, ...]:
        return (Phase((Group(("latent",), self.learning_rate), Group(("head.",)))),)

    @property
    def learning_rate(self) -> float | None:
        """The latent's own learning rate; None for the run's."""
        choice = self.options
        if choice.match_dimension is None:
            return None
        numbers = choice.dimension if choice.latent == "z" else choice.rank
        return self.training.learning_rate * (choice.match_dimension / numbers) ** 0.5

    def diagnostics(self, shared: Tree, messages: Tree, weights: Tensor, observed: Tree) -> dict[str, float]:
        latents = shared["latent"] + messages["latent"]
        return {"identity_error": self.task.identity_error(latents, weights)}

    def facts(self) -> dict[str, Any]:
        return {
            "factors_sha256": self.task.factors_sha256,
            "factors_bytes": self.task.factors_bytes,
            "mapped_weights": sum(weight.numel() for weight in self.task.base),
        }
