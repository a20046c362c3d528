"""FedDPA: shared and private LoRA mixed, at inference with a weight for each sample.

Yang et al., "Dual-Personalizing Adapter for Federated Foundation Models" (NeurIPS 2024), as FedSDG's paper uses it
on images; the mixture is in :mod:`fedbench.models.mixed_lora`. Both branches and the head train together on the
cross-entropy at a fixed w; shared LoRA and head travel. A client is evaluated with each sample's own w_x, for which
it compares the sample with a few of its training samples; with `inference: fixed` w stays as in
training, which is what the code published with FedSDG does. The shared model is evaluated at w = 0. The private LoRA
has no weight decay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fedbench.methods._lora_only import AdapterOptions, adapter_objection
from fedbench.methods.method import Group, Method, Phase
from fedbench.options import PositiveInt, Share, options
from fedbench.registry import METHODS

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedbench.config.spec import RunSpec
    from fedbench.models.classifier import Classifier
    from fedbench.models.mixed_lora import MixedLoraTask
    from fedbench.tree import Tree


@options
class FedDPAOptions(AdapterOptions):
    """The mixture; both branches have the same rank and scale."""

    weight: Share = 0.5
    """Part of the private branch in training, and at most its part at inference; more is more personal (w)."""
    inference: Literal["instance", "fixed"] = "instance"
    """Whether the private branch's part follows each sample's similarity to the client's anchors, or stays at
    `weight`."""
    anchors: PositiveInt = 5
    """Own training samples that a client compares with, drawn once per run; more make the comparison steadier."""


@METHODS.register("feddpa", FedDPAOptions)
class FedDPA(Method):
    """Shared LoRA travels, a private LoRA stays; their mixture follows each sample at inference."""

    options: FedDPAOptions
    task: MixedLoraTask

    @staticmethod
    def objection(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        return adapter_objection(provides, spec)

    @property
    def context_images(self) -> int:  # type: ignore[override]  # a constant elsewhere, an option here
        return self.options.anchors if self.options.inference == "instance" else 0

    def build_task(self, classifier: Classifier) -> MixedLoraTask:
        from fedbench.models.mixed_lora import MixedLoraTask

        return MixedLoraTask(classifier, self.options.rank, self.options.lora_alpha, self.options.weight)

    def init_private(self, rng: np.random.Generator, shared: Tree) -> Tree:
        return self.task.init_private(rng)

    def phases(self) -> tuple[Phase, ...]:
        return (Phase((Group(("lora.", "head.")), Group(("private.",), weight_decay=0.0))),)

    def context(self, weights: Tree, images: Tensor, mask: Tensor) -> Tree:
        from fedbench.models.mixed_lora import ANCHOR

        return {ANCHOR: self.task.anchor(weights, images, mask)}
