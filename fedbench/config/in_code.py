"""A run's spec from Python, for data that no config names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedbench.config.entries import DatasetEntry, PartitionEntry, Training
from fedbench.config.reading import Entry, parse_entry
from fedbench.config.spec import Cell, RunSpec, check_fit
from fedbench.options import options, parse


@options
class InMemory:
    """Data and clients that are given as arrays have no options."""


def run_spec(
    method: Mapping[str, Any],
    model: Mapping[str, Any],
    clients: int,
    channel: Mapping[str, Any] | None = None,
    seed: int = 0,
    **training: Any,
) -> RunSpec:
    """The spec of a method on a model, as a config's entries say them.

    Parameters
    ----------
    method, model : entries, for example ``{"method": "fedprox", "mu": 0.1}`` and ``{"backbone": "cnn"}``
    clients : how many there are
    channel : entry of what messages travel through; dense fp32 where not given
    training : keys of `training`; ``rounds`` has to be among them

    Raises
    ------
    FedbenchError
        If a key is unknown, a value is wrong, or the parts do not fit together.
    """
    given = {
        "method": parse_entry("methods", str(method.get("method")), method),
        "model": parse_entry("models", str(model.get("backbone")), model),
        "channel": parse_entry("channels", "channel", channel or {"codec": "dense"}),
    }
    spec = RunSpec(
        cell=Cell("arrays", "clients", given["model"].name, given["method"].name, seed),
        dataset=Entry("arrays", DatasetEntry(source="arrays"), InMemory()),
        partition=Entry("clients", PartitionEntry(scheme="given", clients=clients), InMemory()),
        base=None,
        training=parse(Training, training, "training"),
        **given,
    )
    check_fit(spec)
    return spec
