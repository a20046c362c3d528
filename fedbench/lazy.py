"""Torch, imported on first use.

Planning a workflow, `fedbench list` and `fedbench --help` read every plug-in's options but never
compute anything; importing torch there would cost seconds in each of thousands of cluster jobs.
Plug-in files therefore say ``from fedbench.lazy import torch`` and use it inside functions only.
"""

import importlib
from typing import TYPE_CHECKING


class LazyModule:
    """A stand-in that imports the module when an attribute is first read."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str):
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)  # the next look-up does not come here
        return value


if TYPE_CHECKING:
    import torch
    import torch.nn.functional as functional
else:
    torch = LazyModule("torch")
    functional = LazyModule("torch.nn.functional")
