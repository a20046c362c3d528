"""Tensors as bytes and back, little-endian, in the template's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.errors import FedbenchError
from fedbench.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tree import Tree


def to_bytes(tensor: Tensor) -> bytes:
    """The tensor's values, row-major."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def from_bytes(payload: bytes, template: Tree, dtype) -> Tree:
    """Cut a payload of `dtype` values into the template's leaves."""
    flat = torch.frombuffer(bytearray(payload), dtype=dtype) if payload else torch.empty(0, dtype=dtype)
    return split(flat, template)


def flatten(message: Tree, template: Tree) -> Tensor:
    """All values of a message in one vector, in the template's order."""
    return torch.cat([message[name].flatten() for name in template]) if template else torch.empty(0)


def split(flat: Tensor, template: Tree) -> Tree:
    """Undo :func:`flatten`."""
    pieces = flat.split([leaf.numel() for leaf in template.values()]) if template else ()
    return {name: piece.view(leaf.shape) for piece, (name, leaf) in zip(pieces, template.items(), strict=True)}


def require_finite(message: Tree, codec: str) -> None:
    """Refuse NaN and infinity, which a lossy code would silently turn into numbers.

    Raises
    ------
    FedbenchError
        Naming the codec and the leaf.
    """
    for name, leaf in message.items():
        if not torch.isfinite(leaf).all():
            raise FedbenchError(
                f"channel {codec}: message leaf {name!r} holds NaN or infinity; lower the learning rate"
            )
