"""What a federation's maths carries from round to round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedbench.tree import Tree


@dataclass(frozen=True)
class FederationState:
    """Everything that the next round depends on. A round makes a new one and changes none.

    Attributes
    ----------
    round_number : rounds completed
    shared, server, channel : trees of the server, on the device
    private, memory : trees of the clients that have taken part, on the CPU
    update_bytes : what a client of the last cohort must be sent to be up to date again
    seen : client -> the last round it took part in
    participations : client -> number of rounds
    """

    round_number: int
    shared: Tree
    server: Tree
    channel: Tree
    private: dict[int, Tree] = field(default_factory=dict)
    memory: dict[int, Tree] = field(default_factory=dict)
    update_bytes: int = 0
    seen: dict[int, int] = field(default_factory=dict)
    participations: dict[int, int] = field(default_factory=dict)
