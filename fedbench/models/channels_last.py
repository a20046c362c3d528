"""Memory layout of images on their way through a convolutional trunk."""

from torch import Tensor, nn


class ChannelsLast(nn.Module):
    """Lays images out with the channels innermost, which the layers that follow keep.

    Convolutions and max-pools vectorise over channels then; GroupNorm does the opposite, so this is for trunks
    without it. Written as a permutation because ``vmap`` takes no ``memory_format``.
    """

    def forward(self, images: Tensor) -> Tensor:
        """The same images [N, C, H, W] in another order of memory."""
        return images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
