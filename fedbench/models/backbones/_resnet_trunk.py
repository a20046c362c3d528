"""The residual trunk: torchvision's basic blocks, group norms, and the stem for small images."""

from math import gcd

from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, conv1x1, conv3x3


class ResNetTrunk(nn.Module):
    """Residual network up to its pooled features.

    Parameters
    ----------
    in_channels : int
    widths : tuple of int
        Channels of each stage; every stage after the first halves height and width.
    blocks : tuple of int
        Basic blocks per stage.
    groups : int
        Group norm's groups, see :func:`group_norm`.
    """

    def __init__(self, in_channels: int, widths: tuple[int, ...], blocks: tuple[int, ...], groups: int):
        super().__init__()
        self.conv1 = conv3x3(in_channels, widths[0])
        self.bn1 = group_norm(groups, widths[0])
        self.relu = nn.ReLU(inplace=True)
        stages = []
        channels = widths[0]
        for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            layers = []
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(_block(channels, width, stride, groups))
                channels = width
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Features [N, widths[-1]] of images [N, C, H, W]."""
        maps = self.stages(self.relu(self.bn1(self.conv1(images))))
        return maps.mean(dim=(2, 3))


def _block(channels: int, width: int, stride: int, groups: int) -> BasicBlock:
    shortcut = None
    if stride != 1 or channels != width:
        shortcut = nn.Sequential(conv1x1(channels, width, stride), group_norm(groups, width))
    return BasicBlock(channels, width, stride, shortcut, norm_layer=lambda count: group_norm(groups, count))


def group_norm(groups: int, channels: int) -> nn.GroupNorm:
    """Group norm with as many of `groups` groups as divide `channels`, at least two channels in each.

    A group of one channel would normalise away each feature map's mean, and all of a 1x1 map.
    """
    count = gcd(groups, channels)
    if count == channels and channels > 1:
        count = next(divisor for divisor in range(channels // 2, 0, -1) if channels % divisor == 0)
    return nn.GroupNorm(count, channels)
