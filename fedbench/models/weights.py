"""Weights to and from safetensors files. Nothing else is ever read: nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedbench.errors import FedbenchError
from fedbench.files import io

if TYPE_CHECKING:
    from fedbench.models.classifier import Classifier

WEIGHTS_BYTES = 16 << 30  # of one file
# Without those of 8 bits and fewer, which torch stores but does not compute with.
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DTYPES = (*FLOATS, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def save_weights(path: Path, weights: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> int:
    """Write named tensors as one safetensors file, atomically; return its size in bytes."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    data = save(plain, None if metadata is None else dict(metadata))
    io.write_bytes(path, data)
    return len(data)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read named tensors from a safetensors file.

    Raises
    ------
    FedbenchError
        If the file is missing, unreadable, damaged, larger than any model here, of another kind (pickled weights are
        not read), or has values that are not finite or of a type that models do not compute with.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(path)
    if not path.is_file():
        raise FedbenchError(f"{path}: no such weights file; check the path")
    size = path.stat().st_size
    if size > WEIGHTS_BYTES:
        raise FedbenchError(
            f"{path}: {size:,} bytes, but at most {WEIGHTS_BYTES:,} of weights are read; use a file made for this model"
        )
    try:
        weights = load_file(path)
    except OSError as error:
        raise FedbenchError(f"{path}: cannot read: {error.strerror or error}; check its permissions") from None
    except SafetensorError as error:
        raise FedbenchError(
            f"{path}: not a whole safetensors file ({error}); only safetensors is read, fetch or convert it again"
        ) from None
    packed = next((name for name, leaf in weights.items() if leaf.dtype not in DTYPES), None)
    if packed:
        raise FedbenchError(f"{path}: {packed} is {weights[packed].dtype}; convert it to 16 or 32 bits")
    broken = next((name for name, leaf in weights.items() if not _finite(leaf)), None)
    if broken:
        raise FedbenchError(
            f"{path}: {broken} has values that are not finite; use weights of a run that did not diverge"
        )
    return weights


def _finite(leaf: Tensor) -> bool:
    """Whether all values are finite, looked at in pieces: the answer takes no memory of the tensor's size."""
    return all(piece.isfinite().all() for piece in leaf.flatten().split(1 << 24))


def read_metadata(path: Path) -> dict[str, str]:
    """The texts stored beside the tensors of a safetensors file that :func:`read_weights` could read."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return file.metadata() or {}


def load_weights(classifier: Classifier, weights: Mapping[str, Tensor], source: Path | str) -> None:
    """Copy `weights` into `classifier`; names and shapes must be the classifier's own, all of them.

    Raises
    ------
    FedbenchError
        Naming the first tensor (in the classifier's order) that is missing or of another shape, or the first that
        the classifier does not have.
    """
    complaint = difference(classifier.state_dict(), weights)
    if complaint:
        raise FedbenchError(f"{source}: weights of another architecture: {complaint}; use a file made for this model")
    with torch.no_grad():
        classifier.load_state_dict(weights)


def difference(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str | None:
    """The first difference between two sets of tensors in words, or None."""
    for name, tensor in expected.items():
        if name not in found:
            return f"{name} {list(tensor.shape)} is missing"
        if found[name].shape != tensor.shape:
            return f"{name} is {list(found[name].shape)} there and {list(tensor.shape)} here"
        if found[name].is_floating_point() != tensor.is_floating_point():
            return f"{name} is {found[name].dtype} there and {tensor.dtype} here"
    extra = next((name for name in found if name not in expected), None)
    return None if extra is None else f"{extra} {list(found[extra].shape)} is not part of this model"
