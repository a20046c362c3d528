"""FFA-LoRA: the down-projection A stays as everyone drew it, only the up-projection B trains and travels.

Sun et al., "Improving LoRA in Privacy-preserving Federated Learning" (ICLR 2024): with A frozen the mean of the
clients' residuals x A B_k is exactly the residual of the mean B, which it is not where both factors are
averaged. A follows from the run's seed, so it costs no bytes. The head trains and travels with B.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbench.methods._lora_only import AdapterOptions, AdaptersAndHead, adapter_objection
from fedbench.methods.method import Group, Phase
from fedbench.registry import METHODS
from fedbench.tree import expand, to_device

if TYPE_CHECKING:
    import numpy as np

    from fedbench.config.spec import RunSpec
    from fedbench.tree import Tree


@METHODS.register("ffa-lora", AdapterOptions)
class FFALora(AdaptersAndHead):
    """LoRA with A frozen at its common draw; B and the head train and travel."""

    @staticmethod
    def objection(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        return adapter_objection(provides, spec)

    def init_shared(self, rng: np.random.Generator) -> Tree:
        return {name: leaf for name, leaf in self.task.init(rng).items() if not name.endswith(".A")}

    def frozen(self) -> Tree:
        """Every A, as the run's seed draws it."""
        return {name: leaf for name, leaf in self.start.items() if name.endswith(".A")}

    def phases(self) -> tuple[Phase, ...]:
        return (Phase((Group(("",)),), view=self.with_frozen),)

    def with_frozen(self, stacked: Tree) -> Tree:
        """The task's trainables of K clients."""
        first = next(iter(stacked.values()))
        return {**expand(to_device(self.frozen(), first.device), len(first)), **stacked}

    def global_weights(self, shared: Tree) -> Tree:
        return {**self.frozen(), **shared}

    def personal(self, shared: Tree, private: Tree) -> Tree:
        return self.with_frozen(shared)
