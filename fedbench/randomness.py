"""Keyed random streams: every draw is a function of what it is for, never of what was drawn before.

A stream is keyed by (seed, purpose, *keys), hashed to the 128-bit key of a counter-based Philox
generator. Evaluating more often, another chunk size, a resume or another order of clients can
therefore not change which samples a client sees. Draws come from NumPy, not from torch: torch's CPU
generator keeps only 32 bits of its seed, and device generators differ between devices.
"""

import hashlib

import numpy as np


def key_of(seed: int, purpose: str, *keys: int | str) -> int:
    """Hash (seed, purpose, keys) to 128 bits."""
    text = "\x1f".join(map(str, (seed, purpose, *keys)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def stream(seed: int, purpose: str, *keys: int | str) -> np.random.Generator:
    """An independent generator for one purpose, for example ``stream(seed, "batches", round, client)``."""
    return np.random.Generator(np.random.Philox(key=key_of(seed, purpose, *keys)))
