"""The frozen factors of FLITE's map, as functions of a seed.

"Federated Lightweight Fine-Tuning" (arXiv 2607.18343): theta_l = theta_l_pre + U_l V_l^T z_l with U_l [P_l, r] and
V_l [d, r] of orthonormal columns.

U = G R^-1 with G Gaussian and R the Cholesky factor of G^T G (CholeskyQR: G is so well conditioned that U is
orthonormal to rounding). G is drawn in row chunks of a fixed layout, each from its own counter-based stream keyed by
(seed, layer, chunk), so that a chunk can be drawn again by itself; Gram matrices and R are float64 on one thread, for
which the caller sees. G has the same bits everywhere, and U on one kind of machine: another processor's matrix
kernels may round the last bit of R otherwise.

The Rademacher variant needs no arithmetic: bit j of a 32-bit hash of (seed, layer, weight) is the sign of U's entry
(weight, j), whose magnitude is P^-1/2. It has the same bits on any device. Its columns have unit length, but are
orthogonal only on average: inner products are about P^-1/2, 0.02 for 1,728 weights and 0.0007 for 2.4 million.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from fedbench.lazy import torch
from fedbench.randomness import key_of, stream

if TYPE_CHECKING:
    from torch import Tensor

CHUNK_VALUES = 2**19  # 2 MiB of float32; part of the factors' definition, not a tuning knob
MAXIMUM_SIGNS = 32
WORD = 2**32 - 1


def chunk_rows(rank: int) -> int:
    """Rows of a chunk."""
    return max(1, CHUNK_VALUES // rank)


def gaussian_chunks(seed: int, layer: int, size: int, rank: int, threads: int = 1) -> Iterator[np.ndarray]:
    """Rows of G [size, rank] in order, float32 [rows, rank] at a time; with several threads as many chunks ahead."""
    rows = chunk_rows(rank)

    def draw(chunk: int) -> np.ndarray:
        rng = stream(seed, "affine-map", layer, chunk)
        return rng.standard_normal((min(rows, size - chunk * rows), rank), dtype=np.float32)

    chunks = range(-(-size // rows))
    if threads == 1 or len(chunks) == 1:
        yield from map(draw, chunks)
        return
    with ThreadPoolExecutor(threads) as pool:  # NumPy lets go of the interpreter's lock while it draws
        ahead: deque[Future[np.ndarray]] = deque()
        for chunk in chunks:
            ahead.append(pool.submit(draw, chunk))
            if len(ahead) > threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def cholesky_factor(chunks: Iterable[np.ndarray], rank: int) -> np.ndarray:
    """R [rank, rank] of G's chunks, upper triangular with a positive diagonal, float64; G R^-1 is orthonormal."""
    gram = np.zeros((rank, rank))
    for chunk in chunks:
        wide = chunk.astype(np.float64)
        gram += wide.T @ wide
    return np.linalg.cholesky(gram).T


def orthonormal(seed: int, layer: int, size: int, rank: int) -> np.ndarray:
    """U [size, rank] with orthonormal columns, float32."""
    factor, rows = np.empty((size, rank), np.float32), chunk_rows(rank)
    for number, chunk in enumerate(gaussian_chunks(seed, layer, size, rank)):
        factor[number * rows : number * rows + len(chunk)] = chunk
    parts = [factor[start : start + rows] for start in range(0, size, rows)]
    inverse = np.linalg.inv(cholesky_factor(parts, rank))
    for part in parts:
        part[...] = part @ inverse
    return factor


def latent_directions(seed: int, layer: int, dimension: int, rank: int) -> np.ndarray:
    """V [d, r] with orthonormal columns, float32, from a stream of its own."""
    gaussian = stream(seed, "affine-map-latent", layer).standard_normal((dimension, rank))
    factor, triangle = np.linalg.qr(gaussian)
    return np.ascontiguousarray(factor * np.sign(np.diag(triangle)), dtype=np.float32)


def hash_words(seed: int, layer: int, start: int, stop: int, device: torch.device) -> Tensor:
    """A 32-bit hash of each of the weights start..stop of a layer, int64 [stop - start].

    Two passes of a multiply-and-shift mixer with full avalanche ("lowbias32", C. Wellons' search for 32-bit hash
    functions), each after adding half of a 64-bit key. Products wrap in int64 and only their low 32 bits are kept.
    """
    key = key_of(seed, "affine-map-signs", layer)
    words = torch.arange(start, stop, dtype=torch.int64, device=device)
    for half in (key & WORD, key >> 32 & WORD):
        words = (words + half) & WORD
        words ^= words >> 16
        words = (words * 0x7FEB352D) & WORD
        words ^= words >> 15
        words = (words * 0x846CA68B) & WORD
        words ^= words >> 16
    return words


def signs(words: Tensor, rank: int) -> Tensor:
    """The lowest `rank` bits of hashes [n] as +1 and -1, float32 [n, rank]."""
    bits = torch.arange(rank, device=words.device)
    return ((words.unsqueeze(1) >> bits) & 1).to(torch.float32).mul_(2).sub_(1)
