"""Low-rank adapters (LoRA) of K clients over one frozen trunk.

At each site (a linear map of the trunk) with input x [tokens, d_in]:

    out = W x + bias + s * x A B,     A [d_in, r] ~ N(0, 1/r),  B [r, d_out] = 0,  s = alpha / r

The K clients' images pass the trunk as one flat batch of K*B, with the trunk's own fast kernels;
forward hooks add the adapters' part with matmuls batched over clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.errors import FedbenchError
from fedbench.lazy import torch
from fedbench.models.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from torch import Tensor

    from fedbench.models.classifier import Classifier, Site
    from fedbench.tree import Tree


IMAGES_ON_CPU, IMAGES_ON_GPU = 256, 4096


class HeadTask(Task):
    """Only the head trains; the frozen trunk needs no gradient."""

    def init(self, rng: np.random.Generator) -> Tree:
        return self.head()

    def chunk(self, batch_size: int, device) -> int:
        # The trunk gains from larger flat batches up to this many images, the adapters from fewer, larger matmuls.
        return max(1, (IMAGES_ON_CPU if device.type == "cpu" else IMAGES_ON_GPU) // batch_size)

    def features(self, stacked: Tree, images: Tensor) -> Tensor:
        """Pre-logits features [K, B, D]."""
        with torch.no_grad():
            return self.classifier.trunk(images.flatten(0, 1)).view(*images.shape[:2], -1)

    def logits(self, stacked: Tree, images: Tensor) -> Tensor:
        features = self.features(stacked, images)
        if "head.weight" not in stacked:
            return self.classifier.head(features)
        weight, bias = stacked["head.weight"], stacked["head.bias"]
        return torch.baddbmm(bias.unsqueeze(1), features, weight.transpose(1, 2))


class LoraTask(HeadTask):
    """Shared LoRA and head.

    Parameters
    ----------
    classifier : Classifier with LoRA sites
    rank : int
        r, the adapters' inner dimension.
    alpha : float
        LoRA's scale numerator; the residual is multiplied by alpha / rank.
    """

    def __init__(self, classifier: Classifier, rank: int, alpha: float):
        super().__init__(classifier)
        check_rank("rank", rank, self.layers())
        self.rank = rank
        self.scale = alpha / rank
        self._active: Tree | None = None
        modules = dict(classifier.named_modules())
        for site in classifier.sites:
            modules[site.name].register_forward_hook(self._hook(site))

    def layers(self) -> dict[str, tuple[int, int]]:
        """Name, d_in and d_out of the adapted layers."""
        return {site.name: (site.in_features, site.out_features) for site in self.classifier.sites}

    def _hook(self, site: Site):
        def add_adapters(module, inputs, output):
            return output if self._active is None else self.adapt(site, inputs[0], output, self._active)

        return add_adapters

    def init(self, rng: np.random.Generator) -> Tree:
        tree: Tree = {}
        for site in self.classifier.sites:
            tree[f"lora.{site.name}.A"] = normal(rng, (site.in_features, self.rank), self.rank**-0.5)
            tree[f"lora.{site.name}.B"] = torch.zeros(self.rank, site.out_features)
        return {**tree, **self.head()}

    def adapt(self, site: Site, x: Tensor, base: Tensor, active: Tree) -> Tensor:
        """Add the adapters' residual to the site's frozen output.

        Parameters
        ----------
        x : Tensor [K*B, T, d_in]
        base : Tensor [K*B, T, d_out]
            The frozen map's output, W x + bias.
        active : the stacked leaves of this forward pass
        """
        down, up = active[f"lora.{site.name}.A"], active[f"lora.{site.name}.B"]
        residual = per_client(x, down.shape[0]) @ down @ up
        return base + self.scale * residual.view_as(base)

    def features(self, stacked: Tree, images: Tensor) -> Tensor:
        self._active = stacked
        try:
            return self.classifier.trunk(images.flatten(0, 1)).view(*images.shape[:2], -1)
        finally:
            self._active = None


def check_rank(option: str, rank: int, layers: Mapping[str, tuple[int, int]]) -> None:
    """Refuse adapters that no change of some layer needs: A B has at most the rank of the layer's smaller side.

    Raises
    ------
    FedbenchError
        Naming the first such layer and its sides [d_in, d_out].
    """
    for name, sides in layers.items():
        if rank > min(sides):
            text = " x ".join(map(str, sides))
            raise FedbenchError(f"LoRA's {option} {rank} exceeds the smaller side of {name}, which is {text}; lower it")


def per_client(x: Tensor, clients: int) -> Tensor:
    """Regroup a flat batch ``[K*B, T, d] -> [K, B*T, d]``."""
    return x.reshape(clients, -1, x.shape[-1])


def normal(rng: np.random.Generator, shape: tuple[int, ...], std: float) -> Tensor:
    """A float32 tensor of independent N(0, std^2) values from a keyed stream."""
    return torch.from_numpy(rng.standard_normal(shape, dtype="float32") * std).float()


def uniform(rng: np.random.Generator, shape: tuple[int, ...], bound: float) -> Tensor:
    """A float32 tensor of independent U(-bound, bound) values from a keyed stream."""
    return torch.from_numpy((rng.random(shape, dtype="float32") * 2 - 1) * bound).float()
