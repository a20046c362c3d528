"""A store and a partition from a user's own arrays, or from a torch data set, without any file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedbench.data.artifact import hashes
from fedbench.data.store import PUBLIC, TEST, TRAIN, Store
from fedbench.errors import FedbenchError
from fedbench.partition.partition import Partition, check, flat
from fedbench.randomness import stream

WHERE = "from_arrays"


def from_arrays(
    images: np.ndarray,
    labels: np.ndarray,
    clients: Sequence[Sequence[int]],
    test: Sequence[Sequence[int]] | None = None,
    test_share: float = 0.2,
    class_names: Sequence[str] | None = None,
) -> tuple[Store, Partition]:
    """Arrays as the engine takes them: images with their labels, and who holds which.

    Parameters
    ----------
    images : [N, H, W] or [N, C, H, W], uint8, or floats in 0..1, which are rounded to 255 steps
    labels : integers [N], from 0
    clients : indices of each client's samples
    test : indices of each client's test samples, disjoint from `clients`; where not given, `test_share` of each
        client's samples, drawn once for all
    class_names : as many as there are classes; numbers where not given

    Raises
    ------
    FedbenchError
        If arrays do not fit together, a sample has two owners, or a client has nothing to train or to test on.
    """
    pixels, labels = _pixels(np.asarray(images)), np.asarray(labels)
    if labels.shape != pixels.shape[:1] or labels.dtype.kind not in "iu" or (labels < 0).any():
        raise FedbenchError(f"{WHERE}: labels must be {len(pixels)} integers from 0, one for each image")
    train = [_indices(part, len(labels), f"clients[{client}]") for client, part in enumerate(clients)]
    if test is None:
        parts = [_split(part, client, test_share) for client, part in enumerate(train)]
        train, tests = [part[0] for part in parts], [part[1] for part in parts]
    else:
        tests = [_indices(part, len(labels), f"test[{client}]") for client, part in enumerate(test)]
    if not train or len(tests) != len(train):
        raise FedbenchError(f"{WHERE}: {len(train)} clients, but test samples of {len(tests)}; give both for each")
    classes = tuple(class_names or map(str, range(int(labels.max()) + 1)))
    if labels.max() >= len(classes):
        raise FedbenchError(f"{WHERE}: label {labels.max()} has no name; give {labels.max() + 1} class_names")
    empty = [np.zeros(0, np.int64) for _ in train]
    partition = Partition(train, empty, tests, np.zeros(len(train), np.int64), {})
    check(partition, WHERE)
    partition.meta["sha256"] = hashes(flat(partition))["all"]
    return _store(pixels, labels.astype(np.int64), partition, classes), partition


def from_dataset(dataset: Any, clients: Sequence[Sequence[int]], **options: Any) -> tuple[Store, Partition]:
    """The same for a map-style data set, for example a ``torch.utils.data.Dataset``.

    Parameters
    ----------
    dataset : ``dataset[i]`` is (image, label); an image is a tensor [C, H, W] or [H, W], or something that NumPy
        reads as [H, W, C] or [H, W], such as a PIL image
    options : as for :func:`from_arrays`

    Raises
    ------
    FedbenchError
        As in :func:`from_arrays`, or if images differ in size.
    """
    items = [dataset[index] for index in range(len(dataset))]
    images = [_channels_first(image) for image, _ in items]
    sizes = {image.shape for image in images}
    if len(sizes) > 1:
        raise FedbenchError(f"from_dataset: images of {len(sizes)} sizes ({min(sizes)}, {max(sizes)}); resize them")
    return from_arrays(np.stack(images), np.array([int(label) for _, label in items]), clients, **options)


def _channels_first(image: Any) -> np.ndarray:
    is_tensor, array = hasattr(image, "detach"), np.asarray(image)
    return array if is_tensor or array.ndim == 2 else np.moveaxis(array, -1, 0)


def _pixels(images: np.ndarray) -> np.ndarray:
    """Images as uint8 [N, C, H, W]."""
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4 or not images.size:
        raise FedbenchError(f"{WHERE}: images have shape {images.shape}; give [N, H, W] or [N, C, H, W]")
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f" or not (images.min() >= 0 and images.max() <= 1):
        raise FedbenchError(f"{WHERE}: images must be uint8, or floats from 0 to 1; scale them first")
    return np.rint(images * 255).astype(np.uint8)


def _indices(samples: Sequence[int], size: int, where: str) -> np.ndarray:
    chosen = np.sort(np.asarray(samples, np.int64))
    if chosen.ndim != 1 or (len(chosen) and not 0 <= chosen[0] <= chosen[-1] < size):
        raise FedbenchError(f"{WHERE}: {where} must be indices from 0 to {size - 1}")
    return chosen


def _split(samples: np.ndarray, client: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """(training samples, test samples) of a client, at least one of each where it has two."""
    size = min(max(1, round(share * len(samples))), max(len(samples) - 1, 0))
    order = stream(0, "in-memory-test", client).permutation(samples)
    return np.sort(order[size:]), np.sort(order[:size])


def _store(images: np.ndarray, labels: np.ndarray, partition: Partition, classes: tuple[str, ...]) -> Store:
    splits = np.full(len(labels), PUBLIC, np.uint8)  # what no client holds
    for kind, parts in ((TRAIN, partition.train), (TEST, partition.test)):
        splits[np.concatenate(parts)] = kind
    domains = np.zeros(len(labels), np.int64)
    meta = {"sha256": hashes({"images": images, "labels": labels, "domains": domains, "splits": splits})}
    return Store(images, labels, domains, splits, classes, ("all",), None, meta)
