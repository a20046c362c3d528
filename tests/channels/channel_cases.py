"""Every channel with every choice of its options, found in the registry, and messages to send through it."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from fedbench.channels.channel import Channel
from fedbench.channels.make_channel import make_channel as built_channel
from fedbench.config.reading import parse_entry
from fedbench.errors import FedbenchError
from fedbench.options import adapter
from fedbench.randomness import stream
from fedbench.registry import CHANNELS
from fedbench.tree import Tree

CLOSED = {"boolean": [False, True]}
NUMBERS = {"number": [1e-9, 0.3, 1.0], "integer": [1, 2, 8]}


def variants(codec: str) -> list[dict[str, Any]]:
    """Options of a codec: every combination of closed choices, and each number in turn at a few accepted values."""
    fields = adapter(CHANNELS[codec].options).json_schema().get("properties", {})
    choices = {name: field.get("enum") or CLOSED.get(field.get("type")) for name, field in fields.items()}
    closed = {name: values for name, values in choices.items() if values}
    found = [dict(zip(closed, values, strict=True)) for values in product(*closed.values())]
    numbers = [
        {name: value}
        for name, field in fields.items()
        if name not in closed
        for value in NUMBERS.get(field.get("type"), [])
        if _accepted(codec, name, value)
    ]
    return [{**choice, **number} for choice in found for number in numbers or [{}]]


def _accepted(codec: str, name: str, value: Any) -> bool:
    try:
        CHANNELS.parse(codec, {name: value}, "test")
    except FedbenchError:
        return False
    return True


def objection(case: dict[str, Any]) -> str | None:
    """Why a config may not wrap a codec in error feedback."""
    chosen = {name: value for name, value in case.items() if name != "codec"}
    entry = CHANNELS[case["codec"]]
    return entry.target.objection(CHANNELS.parse(case["codec"], chosen, "test"), True)


# (codec and options, for messages in test names)
CASES = [{"codec": codec, **chosen} for codec in CHANNELS for chosen in variants(codec)]
# codecs that send each client's message by itself
SINGLE = [case for case in CASES if CHANNELS[case["codec"]].target.pack is not Channel.pack]
# those of them that a config may wrap in error feedback
FEEDBACK = [case for case in SINGLE if objection(case) is None]


def name_of(case: dict[str, Any]) -> str:
    return ",".join([case["codec"], *(f"{name}={value}" for name, value in case.items() if name != "codec")])


def make_channel(case: dict[str, Any], template: Tree, error_feedback: bool = False) -> Channel:
    return built_channel(parse_entry("channels", "tested", {**case, "error_feedback": error_feedback}), template)


def streams(position: int) -> np.random.Generator:
    """The generators of one round."""
    return stream(0, "channel", 1, position)


SHAPES = [(), (1,), (7,), (2, 3), (3, 1, 3, 2), (33,)]
# within fp16's range; a small set makes equal magnitudes, zeros and denormals common
VALUES = st.one_of(
    st.floats(-6e4, 6e4, width=32),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, -1e-45, 65504.0]),
)


@st.composite
def stacked_messages(draw, min_leaves: int = 1) -> Tree:
    """One to three clients' messages of a few leaves."""
    clients = draw(st.integers(1, 3))
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=min_leaves, max_size=4))
    tree = {}
    for number, shape in enumerate(shapes):
        size = clients * int(np.prod(shape))
        values = draw(st.lists(VALUES, min_size=size, max_size=size))
        # names in falling order: a codec must go by the template's order, not the alphabet's
        tree[f"leaf{9 - number}"] = torch.tensor(values, dtype=torch.float32).reshape(clients, *shape)
    return tree


def template_of(messages: Tree) -> Tree:
    return {name: torch.empty(leaf.shape[1:]) for name, leaf in messages.items()}


def weights_of(messages: Tree) -> torch.Tensor:
    """Unequal weights that sum to one."""
    clients = len(next(iter(messages.values())))
    weights = torch.arange(1, clients + 1, dtype=torch.float64)
    return weights / weights.sum()
