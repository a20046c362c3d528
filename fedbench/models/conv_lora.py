"""Low-rank adapters (LoRA) of convolution weights.

Hu et al., "LoRA" (ICLR 2022), on a convolution's weight as a matrix [out, in * kh * kw], as
:mod:`fedbench.models.lora` has it on linear layers:

    W + s * (A B)^T reshaped,     A [in * kh * kw, r] ~ N(0, 1/r),  B [r, out] = 0,  s = alpha / r

The weights are generated, client by client, rather than the adapters applied beside the frozen convolution: the result
is the same, and a convolution with A would cost about as much as the one with W.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.lazy import torch
from fedbench.models.lora import check_rank, normal
from fedbench.models.task import WeightTask

if TYPE_CHECKING:
    import numpy as np

    from fedbench.models.classifier import Classifier
    from fedbench.tree import Tree


class ConvLoraTask(WeightTask):
    """Adapters of every mapped weight, and a trainable head.

    Parameters
    ----------
    classifier : Classifier with mapped weights
    rank : int
        r, the adapters' inner dimension.
    alpha : float
        LoRA's scale numerator; the residual is multiplied by alpha / rank.
    """

    def __init__(self, classifier: Classifier, rank: int, alpha: float):
        super().__init__(classifier, list(classifier.mapped))
        self.rank, self.scale = rank, alpha / rank
        parameters = dict(classifier.named_parameters())
        self.base = {name: parameters[name] for name in self.names}
        check_rank("rank", rank, {name: (weight[0].numel(), len(weight)) for name, weight in self.base.items()})

    def init(self, rng: np.random.Generator) -> Tree:
        tree: Tree = {}
        for name, weight in self.base.items():
            tree[f"lora.{name}.A"] = normal(rng, (weight[0].numel(), self.rank), self.rank**-0.5)
            tree[f"lora.{name}.B"] = torch.zeros(self.rank, len(weight))
        return {**tree, **self.head()}

    def weights(self, stacked: Tree) -> Tree:
        weights = {name: leaf for name, leaf in stacked.items() if not name.startswith("lora.")}
        for name, weight in self.base.items():
            residual = (stacked[f"lora.{name}.A"] @ stacked[f"lora.{name}.B"]).mT
            weights[name] = weight + self.scale * residual.reshape(-1, *weight.shape)
        return weights
