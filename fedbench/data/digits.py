"""Handwritten digits from scikit-learn: 1,797 images of 8x8 pixels, embedded, so nothing is downloaded.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998
(its test part, which is what scikit-learn ships).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from fedbench.data.store import Allocate, RawData
from fedbench.errors import FedbenchError
from fedbench.options import Float, options
from fedbench.randomness import stream
from fedbench.registry import DATA_SOURCES


@options
class DigitsOptions:
    """Options of `digits`."""

    rotations: list[Float] = Field(default_factory=list)
    """Angles in degrees, counter-clockwise; each is a domain, and each image belongs to one domain only."""
    upscale: Annotated[int, Field(ge=8, le=512)] | None = None
    """Height and width to enlarge the images to (bicubic), before they are rotated; none leaves them at 8 pixels."""


@DATA_SOURCES.register("digits", DigitsOptions)
class Digits:
    """Embedded 8x8 handwritten digits (scikit-learn), with rotations as domains."""

    @staticmethod
    def domains(options: DigitsOptions) -> int:
        """How many domains the data have, where that is known beforehand."""
        return max(1, len(options.rotations))

    def load(self, options: DigitsOptions, data_root: Path, allocate: Allocate) -> RawData:
        """Read the digits; `data_root` is not used."""
        from sklearn.datasets import load_digits

        angles = options.rotations or [0.0]
        names = tuple(f"rotation-{angle:g}" for angle in angles)
        if len(set(names)) < len(names):
            raise FedbenchError(f"digits.rotations: {angles} names an angle twice; give each angle once")
        bunch = load_digits()
        labels = bunch.target.astype(np.int64)
        domains = deal(labels, len(angles))
        size = options.upscale or 8
        images = allocate((len(labels), 1, size, size))
        pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)  # they are stored as 0 to 16
        for index, domain in enumerate(domains):
            images[index, 0] = transform(pixels[index], size, angles[domain])
        return RawData(images, labels, tuple("0123456789"), domains, names)


def deal(labels: np.ndarray, domains: int) -> np.ndarray:
    """Deal the samples of each class over the domains, in equal numbers, so that no image is in two domains.

    The same writer's digit under two angles on two sides of a split would be a leak.
    """
    result = np.zeros(len(labels), dtype=np.int64)
    offset = 0
    for label in np.unique(labels):
        members = stream(0, "digits-domains", int(label)).permutation(np.flatnonzero(labels == label))
        # Going on where the last class stopped keeps the domains' sizes within one sample.
        result[members] = (np.arange(len(members)) + offset) % domains
        offset += len(members)
    return result


def transform(pixels: np.ndarray, size: int, angle: float) -> np.ndarray:
    """Enlarge and rotate one image, uint8 [8, 8] -> uint8 [size, size]; corners are filled with background."""
    from PIL import Image

    image = Image.fromarray(pixels)
    if size != 8:
        image = image.resize((size, size), Image.Resampling.BICUBIC)
    if angle % 360:
        image = image.rotate(angle, Image.Resampling.BILINEAR)
    return np.asarray(image)
