"""One run's summary.json as one flat row of summary.csv."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.analysis.budget import pools
from fedbench.config.reading import Config
from fedbench.config.spec import Cell
from fedbench.errors import FedbenchError

SELECTIONS = ("last", "best", "tail")
PERSONAL = ("mean", "std", "p10", "p50", "p90", "worst")
HELD_OUT = ("mean", "worst")
ACCURACIES = {"personal": "personal_mean", "global": "global"}
# The plug-in whose runs answer "what would clients reach alone?".
ALONE = "local-only"

COLUMNS = [
    *("dataset", "partition", "model", "method", "seed"),
    *("dataset_label", "partition_label", "model_label", "method_label", "digest", "clients", "classes", "rounds"),
    *(f"{s}_{name}" for s in SELECTIONS for name in (*(f"personal_{p}" for p in PERSONAL), "global", "val")),
    "best_round",
    "held_out_clients",
    *(f"{s}_held_out_{name}" for s in SELECTIONS for name in HELD_OUT),
    *("base_personal", "base_global"),
    *(f"gain_over_base_{s}_{metric}" for s in SELECTIONS for metric in ACCURACIES),
    *(f"gain_over_local_{s}_personal" for s in SELECTIONS),
    *("bytes_one_time", "bytes_uplink", "bytes_downlink", "bytes_total"),
    *("bytes_uplink_per_client", "bytes_downlink_per_client", "bytes_per_client"),
    *("bytes_uplink_per_client_round", "bytes_downlink_per_client_round"),
    *("parameters_shared", "parameters_private", "parameters_total"),
    *("diverged", "diverged_round", "chance_level"),
    *("seconds_wall", "seconds_cpu", "seconds_train", "seconds_evaluate", "peak_rss_bytes", "peak_gpu_bytes"),
    *("device", "threads", "git_commit", "git_dirty"),
]


def flatten(summary: Mapping[str, Any], cell: Cell, config: Config, path: Path) -> dict[str, Any]:
    """Flatten a run's summary.

    ``bytes_total`` sums both directions over all rounds and clients; the columns per client are such sums divided by
    the number of clients, whether or not they were sampled. One-time bytes (the base model) are in neither. A method
    that :func:`pools` data has no bytes.

    Raises
    ------
    FedbenchError
        Naming the file and the key that it lacks.
    """
    try:
        return _flatten(summary, cell, config)
    except (KeyError, TypeError) as error:
        raise FedbenchError(
            f"{path}: damaged (key {error.args[0]!r} is missing or misshapen); delete the run's folder and run it again"
        ) from None


def _flatten(summary: Mapping[str, Any], cell: Cell, config: Config) -> dict[str, Any]:
    row: dict[str, Any] = asdict(cell)
    for kind in ("dataset", "partition", "model", "method"):
        entry = getattr(config, f"{kind}s")[getattr(cell, kind)].common
        row[f"{kind}_label"] = entry.label or getattr(cell, kind)
    row |= {key: summary[key] for key in ("digest", "clients", "held_out_clients", "classes", "device", "threads")}
    row["rounds"] = summary["rounds_done"]
    row |= {
        "base_personal": _number(summary["base"]["personal_mean"]),
        "base_global": _number(summary["base"]["global"]),
    }
    for selection in SELECTIONS:
        # Without validation samples there is no best round.
        found = summary["selections"].get(selection) or {"personal": {}, "held_out": None, "global": None, "val": None}
        personal = found["personal"]
        row |= {f"{selection}_personal_{name}": _number(personal.get(name)) for name in PERSONAL}
        apart = found["held_out"] or {}
        row |= {f"{selection}_held_out_{name}": _number(apart.get(name)) for name in HELD_OUT}
        row |= {f"{selection}_{name}": _number(found[name]) for name in ("global", "val")}
        for metric, column in ACCURACIES.items():
            row[f"gain_over_base_{selection}_{metric}"] = row[f"{selection}_{column}"] - row[f"base_{metric}"]
    row["best_round"] = summary["selections"].get("best", {}).get("rounds", [None])[0]
    sizes = _bytes(summary)
    row |= dict.fromkeys(sizes, nan) if pools(config, cell.method) else sizes
    row |= {f"parameters_{name}": summary["parameters"][name] for name in ("shared", "private", "total")}
    row |= {key: summary[key] for key in ("diverged", "diverged_round", "chance_level")}
    row |= {f"seconds_{name}": summary["seconds"][name] for name in ("wall", "cpu", "train", "evaluate")}
    row |= {key: summary[key] for key in ("peak_rss_bytes", "peak_gpu_bytes")}
    row |= {"git_commit": summary["git"]["commit"], "git_dirty": summary["git"]["dirty"]}
    return row


def _bytes(summary: Mapping[str, Any]) -> dict[str, float]:
    sizes = summary["bytes"]
    return {
        "bytes_one_time": sizes["one_time"],
        "bytes_uplink": sizes["uplink_total"],
        "bytes_downlink": sizes["downlink_total"],
        "bytes_total": sizes["cumulative_total"],
        "bytes_uplink_per_client": sizes["uplink_total"] / summary["clients"],
        "bytes_downlink_per_client": sizes["downlink_total"] / summary["clients"],
        "bytes_per_client": sizes["cumulative_total"] / summary["clients"],
        "bytes_uplink_per_client_round": sizes["uplink_per_client_round"],
        "bytes_downlink_per_client_round": sizes["downlink_per_client_round"],
    }


def add_gain_over_local(runs: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Fill ``gain_over_local_*``: the personalised accuracy less that of local training on the same task and seed.

    Where a config has several local-only entries, the first is meant; runs without such a partner keep NaN.
    """
    alone = next((name for name, plugin in config.methods.items() if plugin.common.method == ALONE), None)
    keys = ["dataset", "partition", "model", "seed"]
    partners = runs[runs.method == alone].set_index(keys)
    at = pd.MultiIndex.from_frame(runs[keys])
    for selection in SELECTIONS:
        column = f"{selection}_personal_mean"
        local = partners[column].astype(float).reindex(at).to_numpy()
        runs[f"gain_over_local_{selection}_personal"] = runs[column].astype(float).to_numpy() - local
    return runs


def _number(value: Any) -> float:
    return nan if value is None else float(value)
