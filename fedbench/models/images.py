"""The image pipeline on the device: stored uint8 images in, augmented and normalised floats out.

Images stay uint8 until their batch is due, so a data set takes a quarter of its float size and no data loader
forks workers. Augmentation takes its draws as arguments: they come from keyed streams, never from the device.
"""

from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional


class ImageReader:
    """Batches of stored images on a device.

    Parameters
    ----------
    images : uint8 array [N, C, H, W]
        May be a memory map. On an accelerator the whole array is copied there if it fits in half of the free
        memory; otherwise (and on the CPU) each batch is gathered from the array.
    device : torch.device
    """

    def __init__(self, images: np.ndarray, device: torch.device):
        self.device = device
        self._stored = images
        self._resident = None
        if device.type == "cuda" and images.nbytes <= torch.cuda.mem_get_info(device)[0] // 2:
            self._resident = torch.from_numpy(np.array(images)).to(device)

    def __call__(self, indices: np.ndarray) -> Tensor:
        """The images at `indices` (int64 [B]) as uint8 [B, C, H, W]."""
        if self._resident is not None:
            return self._resident[torch.from_numpy(indices).to(self.device)]
        return torch.from_numpy(self._stored[indices]).to(self.device)


def normalise(
    images: Tensor, mean: tuple[float, ...], std: tuple[float, ...], input_size: tuple[int, int] | None = None
) -> Tensor:
    """Scale to 0..1, subtract `mean`, divide by `std`, and resize.

    Parameters
    ----------
    images : uint8 tensor [N, C, H, W]
    mean, std : one float per channel
        For images scaled to 0..1.
    input_size : (int, int) or None
        Height and width to resize to (bilinear; antialiased where it shrinks); None keeps the stored size.

    Returns
    -------
    float32 tensor [N, C, *input_size]
    """
    scale, shift = _affine(mean, std, images.device)
    # Normalising is affine and the resizing weights sum to one, so the cheaper order (small images first) is exact.
    result = images.float().mul_(scale).add_(shift)
    if input_size is not None and tuple(input_size) != tuple(images.shape[-2:]):
        result = functional.interpolate(
            result, size=tuple(input_size), mode="bilinear", align_corners=False, antialias=True
        )
    return result


@cache
def _affine(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    scale = torch.tensor([1 / (255 * deviation) for deviation in std], device=device)
    shift = torch.tensor([-centre / deviation for centre, deviation in zip(mean, std, strict=True)], device=device)
    return scale.view(-1, 1, 1), shift.view(-1, 1, 1)


def padding(height: int, width: int) -> int:
    """Pixels that random crops pad each side with: an eighth of the shorter side (4 at 32x32), at least 1."""
    return max(1, min(height, width) // 8)


def draw_crop_flip(rng: np.random.Generator, count: int, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Random crops and flips for `count` images.

    Returns
    -------
    offsets : int64 array [count, 2]
        Row and column of the crop in the padded image, 0 to 2 * pad; `pad` is the image as stored.
    flips : bool array [count]
        Whether the crop is mirrored left to right.
    """
    return rng.integers(0, 2 * pad + 1, size=(count, 2)), rng.random(count) < 0.5


def crop_flip(images: Tensor, offsets: Tensor, flips: Tensor, pad: int) -> Tensor:
    """Pad with black, cut each image's own window of the original size, and mirror where asked.

    Parameters
    ----------
    images : tensor [N, C, H, W]
        Any dtype; uint8 is cheapest.
    offsets : int64 tensor [N, 2]
        As from :func:`draw_crop_flip`.
    flips : bool tensor [N]
    pad : int
        Pixels of padding on each side.

    Returns
    -------
    tensor [N, C, H, W], same dtype and device
    """
    count, channels, height, width = images.shape
    device = images.device
    offsets, flips = offsets.to(device), flips.to(device)
    padded = functional.pad(images, (pad, pad, pad, pad))
    across = torch.arange(width, device=device)
    rows = offsets[:, :1] + torch.arange(height, device=device)
    columns = offsets[:, 1:] + torch.where(flips[:, None], across.flip(0), across)
    image = torch.arange(count, device=device).view(-1, 1, 1, 1)
    channel = torch.arange(channels, device=device).view(1, -1, 1, 1)
    return padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]
