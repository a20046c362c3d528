"""Which samples train, test, or are public: drawn once per data set, before any partition."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from fedbench.data.apportion import apportion
from fedbench.errors import FedbenchError, nearest
from fedbench.randomness import stream

if TYPE_CHECKING:
    from fedbench.config.entries import PublicShare

TRAIN, TEST, PUBLIC, PUBLIC_TEST = range(4)

# Splits are part of the data set, so they hang on no run's seed.
SPLIT_SEED = 0


def strata(labels: np.ndarray, domains: np.ndarray) -> np.ndarray:
    """Number the (domain, class) pairs that occur; returns the number of each sample, int64 [N]."""
    pairs = domains.astype(np.int64) * (int(labels.max()) + 1) + labels
    return np.unique(pairs, return_inverse=True)[1]


def stratified(numbers: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Choose `share` of the samples, the same share of every stratum, never a whole stratum.

    Parameters
    ----------
    numbers : int [N], stratum of each sample
    share : between 0 and 1; round(share * N) samples are chosen, fewer where strata of one sample keep theirs

    Returns
    -------
    int64, sorted positions of the chosen samples
    """
    sizes = np.bincount(numbers)
    room = np.maximum(sizes - 1, 0)
    chosen = apportion(sizes, min(round(share * len(numbers)), int(room.sum())), rng, most=room)
    picks = [
        rng.choice(np.flatnonzero(numbers == stratum), chosen[stratum], replace=False)
        for stratum in np.flatnonzero(chosen)
    ]
    return np.sort(np.concatenate(picks)).astype(np.int64) if picks else np.zeros(0, dtype=np.int64)


def test_split(
    labels: np.ndarray, domains: np.ndarray, groups: np.ndarray | None, share: float, where: str
) -> np.ndarray:
    """Set a share of every (domain, class) aside for testing; returns splits, uint8 [N].

    Where samples have natural clients, it is a share of every client instead, so that each can be evaluated.
    """
    splits = np.full(len(labels), TRAIN, dtype=np.uint8)
    numbers = strata(labels, domains) if groups is None else np.unique(groups, return_inverse=True)[1]
    picks = stratified(numbers, share, stream(SPLIT_SEED, "test-split"))
    if not len(picks):
        raise FedbenchError(
            f"{where}.test_fraction: {share} of {len(labels)} samples leaves no test sample; "
            "every (domain, class) or client keeps at least one for training; raise it or add images"
        )
    splits[picks] = TEST
    return splits


test_split.__test__ = False  # type: ignore[attr-defined]  # a name that pytest would otherwise collect


def check_labels(labels: np.ndarray, splits: np.ndarray, class_names: tuple[str, ...], where: str) -> None:
    """Every class needs training samples, and both splits need samples at all."""
    if not (splits == TEST).any():
        raise FedbenchError(f"{where}: the test split is empty; check the folder names and the layout")
    trained = np.bincount(labels[splits == TRAIN], minlength=len(class_names))
    missing = np.flatnonzero(trained == 0)
    if len(missing):
        names = ", ".join(repr(class_names[label]) for label in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise FedbenchError(
            f"{where}: no training images of class {names}{more}; a model cannot learn a class that it never sees: "
            "add images to the training split or remove the class"
        )


def public_share(
    labels: np.ndarray,
    domains: np.ndarray,
    splits: np.ndarray,
    share: PublicShare,
    class_names: tuple[str, ...],
    domain_names: tuple[str, ...],
    where: str,
) -> np.ndarray:
    """Take samples away from the federation for the base model; returns new splits, uint8 [N].

    A fraction takes training samples of every (domain, class). Classes or domains take their test samples as well.
    """
    splits = splits.copy()
    if share.fraction is not None:
        train = np.flatnonzero(splits == TRAIN)
        numbers = strata(labels[train], domains[train])
        picks = train[stratified(numbers, share.fraction, stream(SPLIT_SEED, "public-share"))]
        splits[picks] = PUBLIC
    else:
        public = _of_classes(labels, share.classes, class_names, f"{where}.public.classes")
        public |= _of_domains(domains, share.domains, domain_names, f"{where}.public.domains")
        splits[public & (splits == TRAIN)] = PUBLIC
        splits[public & (splits == TEST)] = PUBLIC_TEST
    if not (splits == PUBLIC).any():
        raise FedbenchError(f"{where}.public: no training sample is public; choose a larger share")
    for split, name in ((TRAIN, "training"), (TEST, "test")):
        if not (splits == split).any():
            raise FedbenchError(f"{where}.public: no {name} sample is left for the clients; choose a smaller share")
    return splits


def _of_classes(labels: np.ndarray, chosen: list[int] | None, class_names: tuple[str, ...], path: str) -> np.ndarray:
    for label in chosen or ():
        if not 0 <= label < len(class_names):
            raise FedbenchError(f"{path}: no class {label}; classes are numbered 0 to {len(class_names) - 1}")
    return np.isin(labels, chosen or [])


def _of_domains(domains: np.ndarray, chosen: list[str] | None, domain_names: tuple[str, ...], path: str) -> np.ndarray:
    for name in chosen or ():
        if name not in domain_names:
            raise FedbenchError(f"{path}: no domain {name!r}; {nearest(name, domain_names)}")
    return np.isin(domains, [domain_names.index(name) for name in chosen or ()])


def duplicates(images: np.ndarray, splits: np.ndarray) -> int:
    """Count the test images whose pixels equal those of some training image (public samples included)."""
    train: set[bytes] = set()
    for index in np.flatnonzero((splits == TRAIN) | (splits == PUBLIC)):
        train.add(_fingerprint(images[index]))
    tested = np.flatnonzero((splits == TEST) | (splits == PUBLIC_TEST))
    return sum(_fingerprint(images[index]) in train for index in tested)


def _fingerprint(image: np.ndarray) -> bytes:
    return hashlib.blake2b(image, digest_size=16).digest()
