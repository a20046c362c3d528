"""Ways to hold the tall factor U of FLITE's map: in memory, or not at all.

All map coordinates x [K, r] to changes of one weight tensor, U x [K, P], and differ in what they keep:

stored          U in float32
stored-bf16     U rounded to bfloat16 (columns then are orthonormal to 2^-9 only); products are float32
seeded          nothing but R^-1 [r, r]: chunks of G are drawn again, forwards and backwards, and U x = G (R^-1 x)
rademacher      nothing: signs come from a hash (see :mod:`fedbench.models.affine_factors`)
dense           the original mapping network, D = U V^T [P, d] in one matrix; maps z itself
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedbench.errors import FedbenchError
from fedbench.lazy import torch
from fedbench.models import affine_factors
from fedbench.models.affine_factors import MAXIMUM_SIGNS, chunk_rows, gaussian_chunks, hash_words, signs

if TYPE_CHECKING:
    import hashlib

    from torch import Tensor

MOST_THREADS = 4  # each draws a chunk of 2 MiB ahead, and all of them may take 16 MB
DENSE_BYTES = 2**30  # a dense map of ResNet-18 at d = 64 would take 2.9 GB


class Projection:
    """U of one mapped tensor.

    Parameters
    ----------
    seed, layer : key of the factor
    size, rank : P and r
    directions : V [d, r], float32
    device : where products are wanted
    identity : SHA-256 of the map so far; the factor's values are added in row order
    """

    maps_coordinates = True
    """Whether it maps V^T z; else z."""

    def __init__(
        self,
        seed: int,
        layer: int,
        size: int,
        rank: int,
        directions: np.ndarray,
        device: torch.device,
        identity: hashlib._Hash,
    ):
        self.seed, self.layer, self.size, self.rank, self.device = seed, layer, size, rank, device
        self.prepare(directions, identity)

    def prepare(self, directions: np.ndarray, identity: hashlib._Hash) -> None:
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        """[K, r] (or [K, d]) -> [K, P]."""
        raise NotImplementedError

    def held(self) -> tuple[Tensor, ...]:
        """The tensors that it keeps."""
        raise NotImplementedError


class Stored(Projection):
    """U in float32."""

    def prepare(self, directions: np.ndarray, identity: hashlib._Hash) -> None:
        factor = affine_factors.orthonormal(self.seed, self.layer, self.size, self.rank)
        identity.update(factor)
        self.factor = torch.from_numpy(factor).to(self.device)

    def __call__(self, x: Tensor) -> Tensor:
        return x @ self.factor.T

    def held(self) -> tuple[Tensor, ...]:
        return (self.factor,)


class Dense(Stored):
    """D = U V^T in one matrix."""

    maps_coordinates = False

    def prepare(self, directions: np.ndarray, identity: hashlib._Hash) -> None:
        super().prepare(directions, identity)
        self.factor = self.factor @ torch.from_numpy(directions).to(self.device).T


class Chunked(Projection):
    """U chunk by chunk, again in the backward pass."""

    def chunks(self) -> Iterator[Tensor]:
        """Rows of a matrix in order, float32 [rows, r], on the device."""
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        from fedbench.models._chunked_product import ChunkedProduct

        return ChunkedProduct.apply(x, self.chunks, self.size)


class StoredHalf(Chunked):
    """U in bfloat16, widened a chunk at a time."""

    def prepare(self, directions: np.ndarray, identity: hashlib._Hash) -> None:
        factor = affine_factors.orthonormal(self.seed, self.layer, self.size, self.rank)
        half = torch.from_numpy(factor).to(torch.bfloat16)
        identity.update(half.view(torch.int16).numpy())
        self.factor = half.to(self.device)

    def chunks(self) -> Iterator[Tensor]:
        for part in self.factor.split(chunk_rows(self.rank)):
            yield part.float()

    def held(self) -> tuple[Tensor, ...]:
        return (self.factor,)


class Seeded(Chunked):
    """Only R^-1; G is drawn again whenever it is needed."""

    def prepare(self, directions: np.ndarray, identity: hashlib._Hash) -> None:
        key = (self.seed, self.layer, self.size, self.rank)
        inverse = np.linalg.inv(affine_factors.cholesky_factor(gaussian_chunks(*key), self.rank))
        for chunk in gaussian_chunks(*key):
            identity.update((chunk @ inverse).astype(np.float32))
        self.inverse = torch.from_numpy(inverse.astype(np.float32)).to(self.device)

    def chunks(self) -> Iterator[Tensor]:
        threads = min(torch.get_num_threads(), MOST_THREADS)
        for chunk in gaussian_chunks(self.seed, self.layer, self.size, self.rank, threads):
            yield torch.from_numpy(chunk).to(self.device)

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x @ self.inverse.T)

    def held(self) -> tuple[Tensor, ...]:
        return (self.inverse,)


class Rademacher(Chunked):
    """Signs from a hash."""

    def prepare(self, directions: np.ndarray, identity: hashlib._Hash) -> None:
        for words in self._words(torch.device("cpu")):
            identity.update(words.to(torch.int32).numpy())

    def _words(self, device: torch.device) -> Iterator[Tensor]:
        rows = chunk_rows(MAXIMUM_SIGNS)
        for start in range(0, self.size, rows):
            yield hash_words(self.seed, self.layer, start, min(start + rows, self.size), device)

    def chunks(self) -> Iterator[Tensor]:
        for words in self._words(self.device):
            yield signs(words, self.rank)

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x * self.size**-0.5)

    def held(self) -> tuple[Tensor, ...]:
        return ()


KINDS: dict[str, type[Projection]] = {
    "stored": Stored,
    "stored-bf16": StoredHalf,
    "seeded": Seeded,
    "rademacher": Rademacher,
    "dense": Dense,
}


def check_dense(sizes: list[int], dimension: int) -> None:
    """Refuse dense maps that no small model has.

    Raises
    ------
    FedbenchError
        Naming the bytes that the map would take and the limit.
    """
    wanted = 4 * sum(sizes) * dimension
    if wanted > DENSE_BYTES:
        raise FedbenchError(
            f"flite: a dense map of {sum(sizes):,} weights at dimension {dimension} takes {wanted / 1e9:.1f} GB, more "
            f"than the {DENSE_BYTES / 1e9:.1f} GB that it is allowed; use factors: stored or seeded"
        )
