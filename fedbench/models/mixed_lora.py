"""Two LoRA branches in a convex mixture, whose weight may differ from sample to sample.

FedDPA, Yang et al., "Dual-Personalizing Adapter for Federated Foundation Models" (NeurIPS 2024), with both
branches at the same sites. For one sample's activations x at a site:

    out = W x + bias + s [(1 - w) x A B + w x A_p B_p]

Training has one w for all samples. At inference the weight is the sample's own,

    w_x = w max(0, mean_j cos(f(x), f(anchor_j))),

with f the features before the head under the shared branch alone, and the anchors training samples of the client.
The mean of cosines is the product of the normalised f(x) with the mean of the normalised f(anchor_j), so that mean
is all that a client keeps of its anchors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.lazy import functional, torch
from fedbench.models.lora import LoraTask, normal, per_client
from fedbench.tree import select

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedbench.models.classifier import Classifier, Site
    from fedbench.tree import Tree

ANCHOR = "context.anchor"
WEIGHT = "context.weight"


class MixedLoraTask(LoraTask):
    """Shared LoRA and head, and per client a private LoRA of the same rank.

    Parameters
    ----------
    classifier, rank, alpha
        As for :class:`~fedbench.models.lora.LoraTask`, for both branches.
    weight : float
        w in training, and its upper bound where the weight is the sample's own.
    """

    def __init__(self, classifier: Classifier, rank: int, alpha: float, weight: float):
        super().__init__(classifier, rank, alpha)
        self.weight = weight

    def init_private(self, rng: np.random.Generator) -> Tree:
        """One client's private leaves: A_p ~ N(0, 1/r) and B_p ~ N(0, 0.01^2) per site."""
        tree: Tree = {}
        for site in self.classifier.sites:
            tree[f"private.{site.name}.A"] = normal(rng, (site.in_features, self.rank), self.rank**-0.5)
            tree[f"private.{site.name}.B"] = normal(rng, (self.rank, site.out_features), 0.01)
        return tree

    def anchor(self, stacked: Tree, images: Tensor, mask: Tensor) -> Tensor:
        """Mean of the normalised features of K clients' anchors under the shared branch, [K, D].

        Parameters
        ----------
        images : Tensor [K, anchors, C, H, W]
        mask : Tensor [K, anchors], bool
        """
        directions = self._directions(stacked, images) * mask.unsqueeze(2)
        return directions.sum(1) / mask.sum(1, keepdim=True)

    def instance_weights(self, stacked: Tree, images: Tensor) -> Tensor:
        """w_x of K clients' images, [K, B]."""
        similarity = self._directions(stacked, images) @ stacked[ANCHOR].unsqueeze(2)
        return self.weight * similarity.squeeze(2).clamp_min(0)

    def _directions(self, stacked: Tree, images: Tensor) -> Tensor:
        return functional.normalize(self.features(select(stacked, "lora."), images).float(), dim=2)

    def logits(self, stacked: Tree, images: Tensor) -> Tensor:
        if ANCHOR in stacked:
            stacked = {**stacked, WEIGHT: self.instance_weights(stacked, images)}
        return super().logits(stacked, images)

    def adapt(self, site: Site, x: Tensor, base: Tensor, active: Tree) -> Tensor:
        private_down = active.get(f"private.{site.name}.A")
        if private_down is None:  # the shared model: w = 0
            return super().adapt(site, x, base, active)
        down, up = active[f"lora.{site.name}.A"], active[f"lora.{site.name}.B"]
        hidden = per_client(x, down.shape[0]) @ torch.cat([down, private_down], dim=2)  # [K, B*T, 2 r]
        shared, private = hidden.split(self.rank, dim=2)
        weight = active.get(WEIGHT, self.weight)
        if isinstance(weight, torch.Tensor):  # one per sample, repeated for its tokens
            weight = weight.repeat_interleave(base.shape[1], dim=1).unsqueeze(2).to(hidden.dtype)
        mixed = torch.cat([(1 - weight) * shared, weight * private], dim=2)
        residual = mixed @ torch.cat([up, active[f"private.{site.name}.B"]], dim=1)
        return base + self.scale * residual.view_as(base)
