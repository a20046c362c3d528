"""FLITE's affine map: a short latent moves every convolution through frozen low-rank factors.

FLITE, "Federated Lightweight Fine-Tuning" (arXiv 2607.18343). For each mapped weight tensor l:

    theta_l = theta_l_pre + U_l V_l^T z_l,    U_l [P_l, r], V_l [d, r] with orthonormal columns

U and V are frozen and follow from a seed; only z_l [d], zero at the start, trains and travels. The map
is affine, so averaging latents is averaging weights.

U = G R^-1 with G Gaussian and R the Cholesky factor of G^T G (CholeskyQR: G is so well conditioned
that U is orthonormal to rounding). G is drawn in row chunks of a fixed layout, each from its own
counter-based stream keyed by (seed, layer, chunk); Gram matrices and R are float64 on one thread.
The factors are therefore the same on every device, and a chunk can be drawn again by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedbench.errors import FedbenchError
from fedbench.lazy import torch
from fedbench.models.task import WeightTask
from fedbench.randomness import stream

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.models.classifier import Classifier
    from fedbench.tree import Tree

CHUNK_VALUES = 2**21  # 8 MiB of float32; part of the factors' definition, not a tuning knob


def gaussian_chunks(seed: int, layer: int, size: int, rank: int) -> Iterator[np.ndarray]:
    """Rows of G [size, rank] in order, float32 [rows, rank] at a time."""
    rows = max(1, CHUNK_VALUES // rank)
    for chunk, start in enumerate(range(0, size, rows)):
        rng = stream(seed, "affine-map", layer, chunk)
        yield rng.standard_normal((min(rows, size - start), rank), dtype=np.float32)


def cholesky_factor(seed: int, layer: int, size: int, rank: int) -> np.ndarray:
    """R [rank, rank], upper triangular with a positive diagonal, float64, such that G R^-1 is orthonormal."""
    gram = np.zeros((rank, rank))
    for chunk in gaussian_chunks(seed, layer, size, rank):
        wide = chunk.astype(np.float64)
        gram += wide.T @ wide
    return np.linalg.cholesky(gram).T


def orthonormal(seed: int, layer: int, size: int, rank: int) -> np.ndarray:
    """U [size, rank] with orthonormal columns, float32."""
    inverse = np.linalg.inv(cholesky_factor(seed, layer, size, rank))
    return np.concatenate([(chunk @ inverse).astype(np.float32) for chunk in gaussian_chunks(seed, layer, size, rank)])


class AffineMapTask(WeightTask):
    """Latents [layers, d] through stored factors; everything else of the classifier is frozen.

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
    """

    def __init__(self, classifier: Classifier, dimension: int, rank: int, seed: int, train_head: bool = False):
        from threadpoolctl import threadpool_limits

        super().__init__(classifier, list(classifier.mapped))
        self.dimension, self.rank, self.train_head = dimension, rank, train_head
        parameters = dict(classifier.named_parameters())
        self.base = [parameters[name] for name in self.names]
        smallest = min(weight.numel() for weight in self.base)
        if rank > smallest:
            raise FedbenchError(
                f"flite: rank {rank} exceeds the smallest mapped tensor ({smallest} values); lower rank"
            )
        identity = hashlib.sha256()
        self.left: list[Tensor] = []
        right = []
        with threadpool_limits(1):
            for layer, weight in enumerate(self.base):
                factor = orthonormal(seed, layer, weight.numel(), rank)
                identity.update(factor)
                self.left.append(torch.from_numpy(factor).to(weight.device))
                latent_factor = latent_directions(seed, layer, dimension, rank)
                identity.update(latent_factor)
                right.append(torch.from_numpy(latent_factor))
        self.right = torch.stack(right).to(self.base[0].device)  # V, [layers, d, r]
        self.factors_sha256 = identity.hexdigest()

    def init(self, rng: np.random.Generator) -> Tree:
        tree = {"latent": torch.zeros(len(self.names), self.dimension)}
        return {**tree, **self.head()} if self.train_head else tree

    def weights(self, stacked: Tree) -> Tree:
        low_rank = torch.einsum("kld,ldr->lkr", stacked["latent"], self.right)  # V^T z, per layer
        weights = {
            name: weight + (low_rank[layer] @ self.left[layer].T).view(-1, *weight.shape)
            for layer, (name, weight) in enumerate(zip(self.names, self.base, strict=True))
        }
        return {**weights, **{name: leaf for name, leaf in stacked.items() if name != "latent"}}

    def identity_error(self, latents: Tensor, weights: Tensor) -> float:
        """Largest absolute difference between the mean of the clients' weights and the weights of the mean latent.

        Parameters
        ----------
        latents : Tensor [K, layers, d]
        weights : Tensor [K], summing to one
        """
        weights = weights.to(latents)
        mean = torch.tensordot(weights, latents, dims=1)
        low_rank = torch.einsum("kld,ldr->lkr", torch.cat([latents, mean.unsqueeze(0)]), self.right)
        worst = 0.0
        for layer, weight in enumerate(self.base):
            # one tensor at a time: all clients' generated weights together may not fit in memory
            theta = weight.flatten() + low_rank[layer] @ self.left[layer].T
            difference = torch.tensordot(weights, theta[:-1], dims=1) - theta[-1]
            worst = max(worst, float(difference.abs().max()))
        return worst


def latent_directions(seed: int, layer: int, dimension: int, rank: int) -> np.ndarray:
    """V [d, r] with orthonormal columns, float32, from a stream of its own."""
    gaussian = stream(seed, "affine-map-latent", layer).standard_normal((dimension, rank))
    factor, triangle = np.linalg.qr(gaussian)
    return np.ascontiguousarray(factor * np.sign(np.diag(triangle)), dtype=np.float32)
