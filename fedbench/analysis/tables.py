"""summary.csv and the experiments' tables: one row per method and task, mean over seeds."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedbench.analysis import paper_comparison as published
from fedbench.analysis.budget import BUDGET, pools, within_budget
from fedbench.analysis.collect import Collection, ExperimentData, Setting, collect
from fedbench.analysis.layout import Layout, lay_out, to_latex, to_markdown
from fedbench.analysis.statistics import (
    cost_to_target,
    estimate,
    holm,
    hypervolume,
    hypervolume_shares,
    paired_difference,
    pareto_frontier,
)
from fedbench.analysis.summary_row import COLUMNS
from fedbench.analysis.trajectory import mean_trajectory
from fedbench.config.identity import unrecorded
from fedbench.config.reading import Config
from fedbench.config.spec import Paths
from fedbench.files.io import write_csv, write_text
from fedbench.files.products import check_files

# "To target" asks for the reference's accuracy but for this much: noise must not decide who ever gets there.
TARGET_MARGIN = 0.01
KINDS = ("csv", "md", "tex")

# Columns of runs that a table averages over seeds.
AVERAGED = {
    "bytes_uplink": "bytes_uplink",
    "bytes_downlink": "bytes_downlink",
    "bytes_total": "bytes_total",
    "bytes_uplink_per_client": "bytes_uplink_per_client",
    "bytes_downlink_per_client": "bytes_downlink_per_client",
    "bytes_per_client": "bytes_per_client",
    "bytes_one_time": "bytes_one_time",
    "bytes_uplink_per_client_round": "bytes_uplink_per_client_round",
    "bytes_downlink_per_client_round": "bytes_downlink_per_client_round",
    "parameters_shared": "parameters_shared",
    "parameters_private": "parameters_private",
    "seconds_wall": "seconds_wall",
}


def aggregate(
    config: Config, paths: Paths, require_all: bool = True, log: Callable[[str], None] = lambda line: None
) -> list[Path]:
    """Write summary.csv (one row per run) and every experiment's tables below the results folder.

    Parameters
    ----------
    require_all : raise if a run is missing; otherwise tables are made from what is there and say so, and those of
        experiments without any run are removed, because what they hold are another spec's numbers
    log : told which runs are left out, which tables removed, and of how many runs the base is not known

    Returns
    -------
    The written files.

    Raises
    ------
    FedbenchError
        If a run is missing and all are required, or a file that would be replaced or removed was not made by fedbench.
    """
    written = [paths.root / "summary.csv"]
    stems = [stem for name in config.experiments for stem in _stems(paths, name)]
    check_files([*written, *(file for stem in stems for file in _files(stem))])
    collection = collect(config, paths)
    if require_all:
        collection.require_all()
    write_csv(written[0], COLUMNS, collection.runs.to_dict("records"))
    if collection.missing:
        log(f"left out: {collection.left_out}")
    unknown = unrecorded(collection.records)
    if unknown:
        log(unknown)
    for name in config.experiments:
        if collection.has(name):
            written += write_tables(collection, name, paths)
        else:
            _remove(paths, name, log)
    return written


def _remove(paths: Paths, experiment: str, log: Callable[[str], None]) -> None:
    for stem in _stems(paths, experiment):
        for file in filter(Path.exists, _files(stem)):
            file.unlink()
            log(f"removed {file}: experiment {experiment!r} has no run of its present spec")


def _stems(paths: Paths, experiment: str) -> tuple[Path, Path]:
    """Where the tables of an experiment lie: its own, and that of its paper's numbers."""
    folder = paths.root / "tables"
    return folder / experiment, folder / "published" / experiment


def _files(stem: Path) -> list[Path]:
    return [stem.with_name(f"{stem.name}.{kind}") for kind in KINDS]


def write_tables(collection: Collection, experiment: str, paths: Paths) -> list[Path]:
    """Write one experiment's table, and that of its paper's numbers, as CSV, Markdown and LaTeX."""
    data = collection.experiment(experiment)
    rows = build(data)
    own, papers = _stems(paths, experiment)
    written = _write(own, rows, lay_out(data, rows), experiment)
    if data.experiment.paper is not None:
        rows = published.compare(data)
        shown = published.lay_out(data, rows)
        written += _write(papers, rows, shown, f"published-{experiment}")
    return written


def _write(stem: Path, rows: pd.DataFrame, shown: Layout, name: str) -> list[Path]:
    files = _files(stem)
    write_csv(files[0], rows.columns, rows.to_dict("records"))
    write_text(files[1], to_markdown(shown))
    write_text(files[2], to_latex(shown, name))
    return files


def build(data: ExperimentData, target: float | None = None) -> pd.DataFrame:
    """One row per (task, method) with everything that is said about it.

    `target` is the accuracy whose cost is looked up; without one it is the reference's, within `TARGET_MARGIN`.

    Runs that diverged (a loss that is not a number) are counted in `diverged` and left out of every mean, so
    `n` counts the others; a method with a diverged run is not on the frontier. Bytes are means over seeds of
    whole runs, both directions, without one-time bytes. Holm's family is the whole experiment.
    """
    rows = [row for task in data.tasks for row in _task_rows(data, task, target)]
    table = pd.DataFrame(rows)
    table["difference_p_holm"] = holm(table["difference_p"])
    return table


def _task_rows(data: ExperimentData, task: Setting, target: float | None) -> list[dict[str, Any]]:
    runs = task.of(data.runs)
    rounds = task.of(data.rounds)
    reference = _sound(runs, data.experiment.reference)
    if target is None:
        target = estimate(reference[data.headline]).mean - TARGET_MARGIN
    rows = []
    for method in dict.fromkeys(runs.method):
        every, sound = runs[runs.method == method], _sound(runs, method)
        row = {
            "dataset": task.dataset,
            "partition": task.partition,
            "model": task.model,
            "method": method,
            "label": data.methods[method],
            "n": int(sound[data.headline].notna().sum()),
            "diverged": int(every.diverged.sum()),
            "at_chance": int(sound.chance_level.sum()),
        }
        row |= _spread("accuracy", sound[data.headline])
        for name in ("p10", "p50", "p90", "worst"):
            row[name] = estimate(sound[f"{data.experiment.selection}_personal_{name}"]).mean
        row |= _spread("held_out", sound[f"{data.experiment.selection}_held_out_mean"])
        row |= _spread("gain_over_base", sound[data.headline] - sound[data.base_accuracy])
        row |= _spread("gain_over_local", sound[f"gain_over_local_{data.experiment.selection}_personal"])
        row |= _compare(sound, reference, data.headline, itself=method == data.experiment.reference)
        # Bytes are counted for diverged runs, too: they were sent.
        row |= {name: float(every[column].astype(float).mean()) for name, column in AVERAGED.items()}
        followed = rounds[(rounds.method == method) & rounds.seed.isin(sound.seed)]
        row |= _target(followed, data.accuracy_by_round, target)
        row |= _budget(followed, data.accuracy_by_round)
        if pools(data.config, method):
            row |= {name: nan for name in row if name.startswith(("bytes_to_target", "accuracy_at_budget_"))}
        rows.append(row)
    _mark_frontier(rows, float(runs[data.base_accuracy].astype(float).mean()))
    return rows


def _sound(runs: pd.DataFrame, method: str | None) -> pd.DataFrame:
    return runs[(runs.method == method) & ~runs.diverged.astype(bool)]


def _spread(prefix: str, values: pd.Series) -> dict[str, float]:
    found = estimate(values.astype(float))
    return {f"{prefix}_{name}": getattr(found, name) for name in ("mean", "std", "low", "high")}


def _compare(runs: pd.DataFrame, reference: pd.DataFrame, column: str, itself: bool) -> dict[str, float]:
    """Paired difference to the reference on the seeds that both have."""
    empty = {f"difference_{name}": nan for name in ("mean", "low", "high", "p")}
    if itself or reference.empty:
        return {"difference_n": 0, **empty}
    both = runs.set_index("seed")[[column]].join(reference.set_index("seed")[column].rename("reference"), how="inner")
    found = paired_difference(both[column].astype(float), both["reference"].astype(float))
    return {"difference_n": found.n, **{name: getattr(found, name.removeprefix("difference_")) for name in empty}}


def _target(rounds: pd.DataFrame, column: str, target: float) -> dict[str, float]:
    """Rounds and bytes until the seeds' mean test accuracy first reaches the target.

    Round 0, before any training round, counts for methods that have no other round.
    """
    course = mean_trajectory(rounds, column)
    if course["round"].max() > 0:
        course = course[course["round"] > 0]
    reached = cost_to_target(course["round"].array, course["bytes"].array, course["mean"].array, target)
    return {"target_accuracy": target, "rounds_to_target": reached[0], "bytes_to_target": reached[1]}


def _budget(rounds: pd.DataFrame, column: str) -> dict[str, float]:
    """What was reached at equal cost."""
    spent = within_budget(rounds, column, BUDGET)
    at_budget = {name: getattr(spent.accuracy, name) for name in ("n", "mean", "std", "low", "high")}
    return {"budget_bytes": BUDGET, **{f"accuracy_at_budget_{name}": value for name, value in at_budget.items()}}


def _mark_frontier(rows: list[dict[str, Any]], base: float) -> None:
    """Mark the rows that no other row of the task beats in accuracy and total bytes, and their hypervolume."""
    sound = [row["diverged"] == 0 for row in rows]
    cost = np.array([row["bytes_total"] if ok else nan for row, ok in zip(rows, sound, strict=True)])
    value = np.array([row["accuracy_mean"] if ok else nan for row, ok in zip(rows, sound, strict=True)])
    positive = cost[np.isfinite(cost) & (cost > 0)]
    shares = np.full(len(rows), nan)
    total = nan
    if len(positive):
        # The box: from the cheapest message to the dearest, above what the base gives for nothing.
        box = {"floor": base, "cheapest": float(positive.min()), "dearest": float(positive.max())}
        if isfinite(base):
            shares, total = hypervolume_shares(cost, value, **box), hypervolume(cost, value, **box)
    for row, member, share in zip(rows, pareto_frontier(cost, value), shares, strict=True):
        row |= {"frontier": bool(member), "hypervolume_share": float(share), "hypervolume_task": total}
