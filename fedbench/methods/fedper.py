"""FedPer: base layers travel, the head stays; both train together.

Arivazhagan et al., "Federated Learning with Personalization Layers" (arXiv 1912.00818), algorithms 1 and 2:
a client's loss is that of the shared base under its own personalisation layers, and SGD runs on both. Here
the personalisation layers are the head, and the base is what `trainable` names. The shared model is
evaluated under the head that everyone starts from. The run's weight decay is on base and head, so that a head that
stays differs from one that travels in nothing else.
"""

from __future__ import annotations

from fedbench.methods._partly_shared import PrivateHead
from fedbench.methods.fa_lora import LoraOptions
from fedbench.registry import METHODS


@METHODS.register("fedper", LoraOptions)
class FedPer(PrivateHead):
    """The body travels, each client keeps a head of its own; both train together."""
