"""Run folders into tidy frames: one row per run, per round, per client, per domain, per gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedbench.analysis.summary_row import COLUMNS, add_gain_over_local, flatten
from fedbench.config.entries import Experiment
from fedbench.config.identity import Present, mismatch, require_agreement
from fedbench.config.reading import Config
from fedbench.config.spec import Cell, Paths, cells, resolve
from fedbench.errors import FedbenchError
from fedbench.files.io import damage, read_json, read_sealed

CELL = ("dataset", "partition", "model", "method", "seed")
TASK = ("dataset", "partition", "model")
SECTIONS = {"dataset": "datasets", "partition": "partitions", "model": "models", "method": "methods"}

# What must be in a file for the analysis to mean anything; further columns are kept as they are.
REQUIRED = {
    "rounds": ("round", "cumulative_bytes", "val_accuracy", "test_accuracy_mean", "global_accuracy"),
    "clients": ("client", "accuracy_personal", "accuracy_global"),
    "domains": ("domain", "n_test", "accuracy_personal", "accuracy_global", "accuracy_base"),
    "gates": ("client", "block", "site", "value"),
}

# Columns of these files that hold names.
NAMES = ("domain", "site", "name")

AGAIN = "delete the run's folder and run it again"


@dataclass(frozen=True)
class Missing:
    """A run that the config asks for and that cannot be used, and why."""

    cell: Cell
    reason: str


@dataclass(frozen=True)
class Setting:
    """What methods are compared on: one data set, one partition, one model."""

    dataset: str
    partition: str
    model: str

    def of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of this task."""
        keep = (frame.dataset == self.dataset) & (frame.partition == self.partition) & (frame.model == self.model)
        return frame[keep]


@dataclass(frozen=True)
class ExperimentData:
    """One experiment's runs, with the names under which they are shown.

    Attributes
    ----------
    runs : one row per run, columns of ``summary.COLUMNS``
    rounds, clients, domains, gates : the runs' CSV files under each other, led by the columns of the cell;
        `domains` is empty if no data set of the experiment has several, `gates` if no method has any
    missing : cells of the experiment that are not in the frames
    """

    name: str
    config: Config
    paths: Paths
    runs: pd.DataFrame
    rounds: pd.DataFrame
    clients: pd.DataFrame
    domains: pd.DataFrame
    gates: pd.DataFrame
    missing: tuple[Missing, ...]

    @property
    def experiment(self) -> Experiment:
        return self.config.experiments[self.name]

    @property
    def headline(self) -> str:
        """Column of `runs` with the experiment's headline accuracy."""
        return f"{self.experiment.selection}_{'personal_mean' if self.experiment.metric == 'personal' else 'global'}"

    @property
    def client_accuracy(self) -> str:
        """Column of `clients` and `domains` that belongs to the headline."""
        if self.experiment.metric == "global":
            return "accuracy_global"
        return "accuracy_personal" + {"last": "", "best": "_best", "tail": "_tail"}[self.experiment.selection]

    @property
    def accuracy_by_round(self) -> str:
        """Column of `rounds` that belongs to the headline."""
        return "test_accuracy_mean" if self.experiment.metric == "personal" else "global_accuracy"

    @property
    def base_accuracy(self) -> str:
        """Column of `runs` with the untouched base's accuracy in the same metric."""
        return f"base_{self.experiment.metric}"

    @property
    def headline_text(self) -> str:
        """The headline in words, for captions and axes."""
        metric = {"personal": "personalised test accuracy (mean over clients)", "global": "global test accuracy"}
        selection = {
            "last": "last round",
            "best": "best round by validation",
            "tail": "mean of the last 10 evaluated rounds",
        }
        return f"{metric[self.experiment.metric]}, {selection[self.experiment.selection]}"

    @property
    def headline_short(self) -> str:
        """The headline where there is little room."""
        metric = {"personal": "personalised", "global": "global"}[self.experiment.metric]
        selection = {"last": "last round", "best": "best validation", "tail": "last 10 evaluations"}
        return f"{metric}, {selection[self.experiment.selection]}"

    @cached_property
    def tasks(self) -> list[Setting]:
        """The tasks that have runs, in the order of the config."""
        unique = self.runs[list(TASK)].drop_duplicates()
        return [Setting(*row) for row in unique.itertuples(index=False)]

    @cached_property
    def methods(self) -> dict[str, str]:
        """Methods that have runs, in the order of the experiment, with unambiguous labels."""
        return labels(self.config, "methods", dict.fromkeys(self.runs.method))

    def title(self, task: Setting, axes: Sequence[str] = TASK) -> str:
        """Labels of what distinguishes `task` along `axes` from the other tasks (of everything if nothing does)."""
        names = {axis: dict.fromkeys(getattr(other, axis) for other in self.tasks) for axis in axes}
        shown = [axis for axis in axes if len(names[axis]) > 1] or axes
        return " · ".join(labels(self.config, SECTIONS[axis], names[axis])[getattr(task, axis)] for axis in shown)


@dataclass(frozen=True)
class Collection:
    """All runs of a config that are there, and those that are not."""

    config: Config
    paths: Paths
    runs: pd.DataFrame
    frames: Mapping[str, pd.DataFrame]
    missing: tuple[Missing, ...]
    records: tuple[Mapping[str, Any], ...]
    """The summary.json of each row of `runs`."""

    def experiment(self, name: str) -> ExperimentData:
        """The part of one experiment, in the order of its cells, a method's seeds together."""
        wanted = cells(self.config, name)
        # Methods in the experiment's order, whichever of their seeds are there: so a method's seeds stand together.
        variants = {key: place for place, key in enumerate(dict.fromkeys(_key(cell)[:-1] for cell in wanted))}
        order = {key: n for n, key in enumerate(sorted(map(_key, wanted), key=lambda key: variants[key[:-1]]))}

        def of(frame: pd.DataFrame) -> pd.DataFrame:
            positions = pd.MultiIndex.from_frame(frame[list(CELL)]).map(order)
            kept = frame.assign(_position=positions).dropna(subset="_position")
            return kept.sort_values("_position", kind="stable").drop(columns="_position").reset_index(drop=True)

        missing = tuple(item for item in self.missing if item.cell in set(wanted))
        runs = of(self.runs)
        if runs.empty:
            raise FedbenchError(f"experiment {name!r}: none of its {len(wanted)} runs is finished; run them first")
        frames = {key: of(frame) for key, frame in self.frames.items()}
        data = ExperimentData(name, self.config, self.paths, runs, **frames, missing=missing)
        if runs[data.headline].isna().all():
            raise FedbenchError(
                f"experiment {name!r}: its runs have no {data.headline} (selection 'best' needs validation samples); "
                f"change experiments.{name}.selection"
            )
        return data

    def has(self, name: str) -> bool:
        """Whether any run of an experiment is there."""
        wanted = {_key(cell) for cell in cells(self.config, name)}
        return any(key in wanted for key in self.runs[list(CELL)].itertuples(index=False, name=None))

    @property
    def left_out(self) -> str:
        """How many runs cannot be used, and why."""
        reasons = Counter(item.reason for item in self.missing)
        counted = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        return f"{len(self.missing)} of {len(self.missing) + len(self.runs)} runs ({counted})"

    def require_all(self) -> None:
        """Raise if any run is missing."""
        if self.missing:
            first = self.missing[0]
            total = len(self.missing) + len(self.runs)
            raise FedbenchError(
                f"{len(self.missing)} of {total} runs of config {self.config.name!r} are missing; "
                f"the first is {first.cell.path} ({first.reason}): run it, or take what is there with --partial"
            )


def collect(config: Config, paths: Paths, experiment: str | None = None, require_one: bool = True) -> Collection:
    """Read the run folders of a config's cells, or of one experiment's.

    `require_one` raises if no run at all is there.

    Raises
    ------
    FedbenchError
        If a file is damaged, if no run at all is there, or if runs cannot be compared: see
        :func:`fedbench.config.identity.require_agreement`.
    """
    wanted = cells(config, experiment)
    rows, records, missing, present = [], {}, [], Present(paths)
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in REQUIRED}
    for cell in wanted:
        folder = paths.run(cell)
        summary = _read_summary(folder)
        if summary is None:
            missing.append(Missing(cell, "not run yet"))
            continue
        # A run of another spec or other data is as good as absent: its numbers answer another question.
        reason = mismatch(summary, present.identity(cell, resolve(config, cell).digest))
        if reason:
            missing.append(Missing(cell, reason))
            continue
        rows.append(flatten(summary, cell, config, folder / "summary.json"))
        records[cell] = summary
        for name in (name for name in REQUIRED if f"{name}.csv" in summary["files"]):
            frame = _read_csv(folder / f"{name}.csv", REQUIRED[name])
            for position, (key, value) in enumerate(asdict(cell).items()):
                frame.insert(position, key, value)
            parts[name].append(frame)
    if not rows and require_one:
        reason = f"; the first is {missing[0].cell.path} ({missing[0].reason})" if missing else ""
        raise FedbenchError(f"{paths.root / 'runs'}: no finished run of config {config.name!r}{reason}: run them first")
    require_agreement(records.items(), paths)
    runs = add_gain_over_local(pd.DataFrame(rows, columns=COLUMNS), config)
    frames = {name: _stack(part, name) for name, part in parts.items()}
    return Collection(config, paths, runs, frames, tuple(missing), tuple(records.values()))


def labels(config: Config, section: str, names: Iterable[str]) -> dict[str, str]:
    """Labels of config entries; entries that share a label get their name behind it."""
    names = list(names)
    found = {name: getattr(config, section)[name].common.label or name for name in names}
    shared = {label for label in found.values() if list(found.values()).count(label) > 1}
    return {name: f"{label} ({name})" if label in shared and label != name else label for name, label in found.items()}


def _key(cell: Cell) -> tuple:
    return tuple(asdict(cell).values())


def _read_summary(folder: Path) -> dict[str, Any] | None:
    path = folder / "summary.json"
    if not path.exists():
        return None
    summary = read_sealed(path)
    found = damage(folder, summary["files"])
    if found:
        raise FedbenchError(f"{found}; {AGAIN}")
    return summary


def _read_csv(path: Path, required: tuple[str, ...]) -> pd.DataFrame:
    numbers = [column for column in pd.read_csv(path, nrows=0).columns if column not in NAMES]
    # Names are text, whatever they look like: a domain may be called NA, null, 1 or 01. Of numbers, only an empty field
    # is missing.
    empty = {column: [""] for column in numbers}
    frame = pd.read_csv(path, dtype=dict.fromkeys(NAMES, str), keep_default_na=False, na_values=empty)
    absent = [column for column in required if column not in frame.columns]
    if absent:
        raise FedbenchError(f"{path}: no column {', '.join(absent)}; another version wrote it: {AGAIN}")
    return frame


def _stack(parts: list[pd.DataFrame], name: str) -> pd.DataFrame:
    if not parts:
        return pd.DataFrame(columns=[*CELL, *REQUIRED[name]])
    # Columns that are empty in one run and numbers in another (never evaluated, no gates) must stay numbers.
    columns = list(dict.fromkeys(column for part in parts for column in part.columns))
    filled = [part.reindex(columns=columns) for part in parts]
    return pd.concat([part.astype({c: float for c in columns if part[c].isna().all()}) for part in filled])


def read_partition(paths: Paths, dataset: str, partition: str, seed: int) -> dict[str, Any]:
    """What partition.json says of the partition behind a run, with its statistics and counts."""
    path = paths.partition(dataset, partition, seed) / "partition.json"
    meta = read_json(path)
    absent = {"statistics", "counts"} - set(meta)
    if absent:
        raise FedbenchError(f"{path}: damaged (no {', '.join(sorted(absent))}); delete its folder and make it again")
    return meta
