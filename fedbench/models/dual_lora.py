"""Dual LoRA: a shared branch that travels and a private branch, aligned in scale and gated.

FedSDG, "Identifiable Gated Residual Personalization for Federated PEFT" (ECCV 2026). At each site, for
one sample's activations x [T, d_in]:

    b = W x + bias                     frozen backbone
    g = s x A B                        shared branch
    p = s x A_p B_p                    private branch
    p_align = p / sg(RMS(p)) * sg(anchor)
    out = b + g + m p_align,           m = sigmoid(a), one logit a per site

with RMS(z) = sqrt(mean of z^2 over tokens and channels + eps), one value per sample, and sg the stop
gradient. The anchor is RMS(b) in the paper; its ablations are RMS(g) and no alignment at all.

RMS(p) and RMS(g) are under a stop gradient, so they are computed from the r x r Gram matrices of the
low-rank activations, mean(p^2) = <h^T h, B_p B_p^T> / (T d_out), without materialising the branch;
both branches then share one pair of matmuls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.lazy import torch
from fedbench.models.lora import LoraTask, check_rank, normal, per_client, uniform

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedbench.models.classifier import Classifier, Site
    from fedbench.tree import Tree

EPSILON = 1e-6  # inside the root, as in the paper
FLOOR = 0.1  # `floor` never lets the anchor fall below this share of RMS(b)
ALIGNMENTS = ("base", "global", "geomean", "floor", "none")


def anchor(mode: str, rms_base: Tensor, rms_global: Tensor) -> Tensor:
    """The scale that the private branch is brought to, per sample.

    Parameters
    ----------
    mode : one of ALIGNMENTS except "none"
    rms_base, rms_global : Tensor [K, B]
        RMS of the frozen output and of the shared residual.
    """
    if mode == "base":
        return rms_base
    if mode == "global":
        return rms_global
    if mode == "geomean":
        return (rms_base * rms_global).sqrt()
    return torch.maximum(rms_global, FLOOR * rms_base)


class DualLoraTask(LoraTask):
    """Shared LoRA and head, and per client a private LoRA with its gates.

    Parameters
    ----------
    classifier, rank, alpha
        As for :class:`~fedbench.models.lora.LoraTask`; both branches have the scale alpha / rank.
    private_rank : int
    alignment : one of ALIGNMENTS
    gate_level : "site" or "block"
        One gate logit per site, or one per transformer block shared by its sites.
    gate_value : float or None
        A fixed gate m in place of learned logits.
    gate_init : float
        Initial logit a.
    """

    def __init__(
        self,
        classifier: Classifier,
        rank: int,
        alpha: float,
        private_rank: int,
        alignment: str = "base",
        gate_level: str = "site",
        gate_value: float | None = None,
        gate_init: float = -3.0,
    ):
        super().__init__(classifier, rank, alpha)
        check_rank("private_rank", private_rank, self.layers())
        self.private_rank = private_rank
        self.private_scale = alpha / private_rank
        self.alignment = alignment
        self.gate_level = gate_level
        self.gate_value = gate_value
        self.gate_init = gate_init

    def init_private(self, rng: np.random.Generator) -> Tree:
        """One client's private leaves: A_p, B_p per site, and the gate logits where gates are learned."""
        tree: Tree = {}
        for site in self.classifier.sites:
            tree[f"private.{site.name}.A"] = normal(rng, (site.in_features, self.private_rank), self.private_rank**-0.5)
            shape = (self.private_rank, site.out_features)
            # B_p is not zero: at B_p = 0 neither the aligned branch nor the gate has a usable gradient.
            tree[f"private.{site.name}.B"] = (
                normal(rng, shape, 0.01) if self.alignment == "none" else uniform(rng, shape, site.out_features**-0.5)
            )
            if self.gate_value is None:
                tree[self.gate_name(site)] = torch.tensor(self.gate_init)
        return tree

    def gate_name(self, site: Site) -> str:
        return f"gate.{site.name}" if self.gate_level == "site" else f"gate.block{site.block}"

    def gate(self, site: Site, active: Tree) -> Tensor | float:
        """m of this site, [K], or the fixed value."""
        return torch.sigmoid(active[self.gate_name(site)]) if self.gate_value is None else self.gate_value

    def adapt(self, site: Site, x: Tensor, base: Tensor, active: Tree) -> Tensor:
        private_down = active.get(f"private.{site.name}.A")
        if private_down is None:  # the shared model: m = 0
            return super().adapt(site, x, base, active)
        down, up = active[f"lora.{site.name}.A"], active[f"lora.{site.name}.B"]
        private_up = active[f"private.{site.name}.B"]
        clients = down.shape[0]
        hidden = per_client(x, clients) @ torch.cat([down, private_down], dim=2)  # [K, B*T, r + r_p]
        shared, private = hidden.split([self.rank, self.private_rank], dim=2)
        tokens = base.shape[1]
        coefficient = self.gate(site, active)
        if isinstance(coefficient, torch.Tensor):
            coefficient = coefficient.unsqueeze(1)  # [K, 1]
        if self.alignment != "none":
            # under autocast the Gram matrices would lose the digits that the ratio is about
            with torch.no_grad(), torch.autocast(base.device.type, enabled=False):
                rms_private = _branch_rms(private, private_up, self.private_scale, tokens)
                rms_shared = _branch_rms(shared, up, self.scale, tokens)
                size = tokens * base.shape[2]
                energy = torch.linalg.vector_norm(_precise(base), dim=(1, 2)).square() / size
                rms_base = (energy + EPSILON).sqrt().view(clients, -1)
                ratio = anchor(self.alignment, rms_base, rms_shared) / rms_private  # [K, B]
            coefficient = coefficient * ratio
        factor = self.private_scale * coefficient
        if isinstance(factor, torch.Tensor):  # [K, 1 or B], one factor per sample, repeated for its tokens
            factor = factor.to(private.dtype).unsqueeze(2).unsqueeze(3)
        scaled = (private.view(clients, -1, tokens, self.private_rank) * factor).view_as(private)
        residual = torch.cat([self.scale * shared, scaled], dim=2) @ torch.cat([up, private_up], dim=1)
        return base + residual.view_as(base)


def _branch_rms(hidden: Tensor, up: Tensor, scale: float, tokens: int) -> Tensor:
    """RMS of ``scale * hidden @ up`` per sample, [K, B], through Gram matrices.

    Parameters
    ----------
    hidden : Tensor [K, B*T, r]
    up : Tensor [K, r, d_out]
    """
    clients, rank, width = up.shape
    samples = _precise(hidden).reshape(clients, -1, tokens, rank)
    grams = samples.transpose(2, 3) @ samples  # [K, B, r, r]
    weights = up @ up.transpose(1, 2)  # [K, r, r]
    energy = (grams * weights.unsqueeze(1)).sum((2, 3)).clamp_min(0) / (tokens * width)
    return (scale**2 * energy + EPSILON).sqrt()


def _precise(values: Tensor) -> Tensor:
    """At least fp32: sums of squares of half-precision values would lose their digits."""
    return values.float() if values.dtype.itemsize < 4 else values
