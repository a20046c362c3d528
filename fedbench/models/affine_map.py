"""FLITE's affine map: a short latent moves every convolution through frozen low-rank factors.

FLITE, "Federated Lightweight Fine-Tuning" (arXiv 2607.18343). For each mapped weight tensor l:

    theta_l = theta_l_pre + U_l V_l^T z_l,    U_l [P_l, r], V_l [d, r] with orthonormal columns

U and V are frozen and follow from a seed (:mod:`fedbench.models.affine_factors`); only z_l [d], zero at the
start, trains and travels. The map is affine, so averaging latents is averaging weights.

Only y = V^T z reaches the weights. A latent `y` [r] trains and sends just that; it reaches the same weights with
r instead of d numbers.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from fedbench.errors import FedbenchError
from fedbench.lazy import torch
from fedbench.models.affine_factors import latent_directions
from fedbench.models.projections import KINDS, check_dense
from fedbench.models.task import WeightTask

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedbench.models.classifier import Classifier
    from fedbench.tree import Tree


class AffineMapTask(WeightTask):
    """Latents [layers, d] (or [layers, r]) through frozen factors; everything else of the classifier is frozen.

    Parameters
    ----------
    classifier : Classifier with mapped weights
    dimension : int
        d, latent values per mapped tensor.
    rank : int
        r, the map's rank; at most d and at most the smallest mapped tensor's size.
    seed : int
        Seed of the factors, shared by server and clients.
    train_head : bool
        Also train (and send) the model's head, if that is trainable.
    factors : str
        How U is held, one of :data:`fedbench.models.projections.KINDS`.
    latent : "z" or "y"
        What trains and travels: z, or V^T z.
    """

    def __init__(
        self,
        classifier: Classifier,
        dimension: int,
        rank: int,
        seed: int,
        train_head: bool = False,
        factors: str = "stored",
        latent: str = "z",
    ):
        from threadpoolctl import threadpool_limits

        super().__init__(classifier, list(classifier.mapped))
        self.dimension, self.rank, self.train_head, self.latent = dimension, rank, train_head, latent
        parameters = dict(classifier.named_parameters())
        self.base = [parameters[name] for name in self.names]
        sizes = [weight.numel() for weight in self.base]
        if rank > min(sizes):
            raise FedbenchError(
                f"flite: rank {rank} exceeds the smallest mapped tensor ({min(sizes)} values); lower rank"
            )
        if factors == "dense":
            check_dense(sizes, dimension)
        identity = hashlib.sha256()
        self.projections, right = [], []
        with threadpool_limits(1):
            for layer, weight in enumerate(self.base):
                directions = latent_directions(seed, layer, dimension, rank) if latent == "z" else None
                self.projections.append(
                    KINDS[factors](seed, layer, weight.numel(), rank, directions, weight.device, identity)
                )
                if latent == "z":
                    identity.update(directions)
                    right.append(torch.from_numpy(directions))
        # V, [layers, d, r]
        self.right = torch.stack(right).to(self.base[0].device) if latent == "z" else None
        self.factors_sha256 = identity.hexdigest()
        self.factors_bytes = sum(held.nbytes for one in self.projections for held in one.held())

    def init(self, rng: np.random.Generator) -> Tree:
        tree = {"latent": torch.zeros(len(self.names), self.dimension if self.latent == "z" else self.rank)}
        return {**tree, **self.head()} if self.train_head else tree

    def weights(self, stacked: Tree) -> Tree:
        latents = stacked["latent"]
        # the map is exact whatever the precision of the passes through the network
        with torch.autocast(latents.device.type, enabled=False):
            coordinates = self.coordinates(latents)
            weights = {
                name: weight + self.projections[layer](coordinates[:, layer]).view(-1, *weight.shape)
                for layer, (name, weight) in enumerate(zip(self.names, self.base, strict=True))
            }
        return {**weights, **{name: leaf for name, leaf in stacked.items() if name != "latent"}}

    def coordinates(self, latents: Tensor) -> Tensor:
        """What the projections map: y = V^T z of latents [K, layers, d], or the latents themselves."""
        if self.right is None or not self.projections[0].maps_coordinates:
            return latents
        return torch.einsum("kld,ldr->klr", latents, self.right)

    def identity_error(self, latents: Tensor, weights: Tensor) -> float:
        """Largest absolute difference between the mean of the clients' weights and the weights of the mean latent.

        Parameters
        ----------
        latents : Tensor [K, layers, d] (or [K, layers, r])
        weights : Tensor [K], summing to one
        """
        weights = weights.to(latents)
        mean = torch.tensordot(weights, latents, dims=1)
        coordinates = self.coordinates(torch.cat([latents, mean.unsqueeze(0)]))
        worst = 0.0
        for layer, weight in enumerate(self.base):
            # one tensor at a time: all clients' generated weights together may not fit in memory
            theta = weight.flatten() + self.projections[layer](coordinates[:, layer])
            difference = torch.tensordot(weights, theta[:-1], dims=1) - theta[-1]
            worst = max(worst, float(difference.abs().max()))
        return worst
