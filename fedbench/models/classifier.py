"""What every backbone builds: a trunk, a linear head, and the names that methods need to find their way."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

# Per-channel input statistics where no pretrained weights prescribe any: natural images have a mean near
# one half and a standard deviation near one quarter, so this gives roughly unit inputs for every data set.
MEAN, STD = 0.5, 0.25


@dataclass(frozen=True)
class Site:
    """A frozen linear layer that low-rank adapters can be attached to."""

    name: str
    """Module name in the classifier, for example ``trunk.blocks.0.attn.proj``."""
    block: int
    """Depth, counted from the input."""
    kind: Literal["attention", "ffn"]
    in_features: int
    out_features: int


class Classifier(nn.Module):
    """An image classifier: ``logits = head(trunk(images))``.

    Parameters
    ----------
    trunk : nn.Module
        Maps normalised float images [N, C, H, W] to features [N, D].
    features : int
        D.
    classes : int
        Outputs of the head.
    mean, std : tuple of float
        Input statistics per channel, for images scaled to 0..1.
    input_size : (int, int) or None
        Height and width that the trunk wants; None takes images as stored.
    sites : tuple of Site
        Linear layers for adapters, by depth, attention before ffn.
    mapped : tuple of str
        Parameters that generated-weight methods may produce: the trunk's convolution weights.
    """

    def __init__(
        self,
        trunk: nn.Module,
        features: int,
        classes: int,
        *,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        input_size: tuple[int, int] | None = None,
        sites: tuple[Site, ...] = (),
        mapped: tuple[str, ...] = (),
    ):
        super().__init__()
        self.trunk = trunk
        self.head = nn.Linear(features, classes)
        self.head_is_frozen = False
        self.mean = tuple(mean)
        self.std = tuple(std)
        self.input_size = input_size
        self.sites = sites
        self.mapped = mapped
        self.norm_affine = norm_affine(trunk)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [N, classes] of normalised images [N, C, H, W]."""
        return self.head(self.trunk(images))


@contextmanager
def keyed_initialisation(rng: np.random.Generator) -> Iterator[None]:
    """Make torch's initialisers a function of `rng` alone, and leave torch's own generator as it was.

    Only the CPU generator is touched: models are built on the CPU and moved afterwards.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(rng.integers(2**32)))
        yield


def norm_affine(trunk: nn.Module) -> tuple[str, ...]:
    """Names (in the classifier) of the scales and shifts of the trunk's group and layer norms."""
    return tuple(
        f"trunk.{module_name}.{name}"
        for module_name, module in trunk.named_modules()
        if isinstance(module, nn.GroupNorm | nn.LayerNorm)
        for name, _ in module.named_parameters(recurse=False)
    )


def convolution_weights(trunk: nn.Module) -> tuple[str, ...]:
    """Names (in the classifier) of all convolution weights of the trunk, biases excluded."""
    return tuple(
        f"trunk.{name}.weight" for name, module in trunk.named_modules() if isinstance(module, nn.modules.conv._ConvNd)
    )


def transformer_sites(trunk: nn.Module) -> tuple[Site, ...]:
    """Adapter sites of a timm vision transformer: each block's attention output and second ffn layer."""
    sites = []
    for block, module in enumerate(trunk.blocks):
        attention, ffn, prefix = module.attn.proj, module.mlp.fc2, f"trunk.blocks.{block}"
        sites.append(Site(f"{prefix}.attn.proj", block, "attention", attention.in_features, attention.out_features))
        sites.append(Site(f"{prefix}.mlp.fc2", block, "ffn", ffn.in_features, ffn.out_features))
    return tuple(sites)
