"""FedSA-LoRA: of every adapter the down-projection A travels, the up-projection B stays.

Guo et al., "Selective Aggregation for Low-Rank Adaptation in Federated Learning" (ICLR 2025): A is found to learn
what clients share and B what tells them apart; both train, only A is averaged. The paper's B A is our
x A B: A is the factor next to the input. The head travels with A unless it is private. The shared model has B = 0,
which is the base's trunk under the shared head. The run's weight decay is on A, B and head alike: B is half of one
adapter, not a branch beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fedbench.methods._lora_only import AdapterOptions, AdaptersAndHead, adapter_objection
from fedbench.methods._partly_shared import HEAD, PartlyShared, private_head_objection
from fedbench.options import options
from fedbench.registry import METHODS

if TYPE_CHECKING:
    from fedbench.config.spec import RunSpec


@options
class FedSALoraOptions(AdapterOptions):
    """The adapters' options and where the head is."""

    head: Literal["shared", "private"] = "shared"
    """Whether the head travels like A, or stays with each client like B."""


@METHODS.register("fedsa-lora", FedSALoraOptions)
class FedSALora(AdaptersAndHead, PartlyShared):
    """LoRA's A travels, each client keeps a B of its own."""

    options: FedSALoraOptions  # type: ignore[assignment]  # which leaves are trained is no choice here

    @staticmethod
    def objection(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        reason = private_head_objection(spec) if options.head == "private" else None
        return reason or adapter_objection(provides, spec)

    def stays(self, name: str) -> bool:
        if name.startswith(HEAD):
            return self.options.head == "private"
        return name.endswith(".B")
