"""CIFAR-100: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009."""

from __future__ import annotations

from pathlib import Path

from fedbench.data._cifar import CifarOptions, load_cifar
from fedbench.data.store import Allocate, RawData
from fedbench.registry import DATA_SOURCES


@DATA_SOURCES.register("cifar100", CifarOptions)
class Cifar100:
    """CIFAR-100 from its official files under the data root; downloaded only with `download: true`."""

    @staticmethod
    def domains(options: CifarOptions) -> int:
        """How many domains the data have, where that is known beforehand."""
        return 1

    def load(self, options: CifarOptions, data_root: Path, allocate: Allocate) -> RawData:
        """Read 50,000 training and 10,000 test images of 3x32x32."""
        return load_cifar("CIFAR100", options, data_root, allocate)
