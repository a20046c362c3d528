"""What a paper has published beside what the runs give, with whether both mean the same setting."""

from __future__ import annotations

from math import isfinite, nan

import pandas as pd

from fedbench.analysis.collect import ExperimentData, Setting, labels
from fedbench.analysis.layout import Layout, TableCell, TableGroup
from fedbench.analysis.statistics import estimate
from fedbench.analysis.text import human_bytes, percent, signed
from fedbench.config import papers
from fedbench.config.papers import Paper, Published
from fedbench.config.spec import Cell as Run
from fedbench.config.spec import cells, resolve

MEASURES = {"personal_mean": "", "global": "", "personal_p10": "P10", "personal_p50": "P50", "personal_p90": "P90"}
SAME = "as stated"
NOTHING = "–"
BETWEEN = "; "  # departures


def compare(data: ExperimentData) -> pd.DataFrame:
    """One row per published number that cells of the experiment answer, in the paper's order.

    `ours` is the mean over seeds that did not diverge, of the measure that the paper reports, under the experiment's
    selection; NaN while no run is finished. `setting` is "as stated", or every departure of the run's spec (and of
    the number of finished seeds) from what the paper says.
    """
    paper = papers.find(data.experiment.paper, f"experiments.{data.name}.paper")
    asked = {(cell.dataset, cell.partition, cell.model, cell.method): cell for cell in cells(data.config, data.name)}
    wanted = [number for number in paper.numbers if _key(number) in asked]
    names = labels(data.config, "methods", dict.fromkeys(number.method for number in wanted))
    return pd.DataFrame(
        [
            {**_row(data, paper, number, asked[_key(number)]), "label": names[number.method]}
            for number in papers.merged(wanted)
        ]
    )


def _key(number: Published) -> tuple[str, str, str, str]:
    return number.dataset, number.partition, number.model, number.method


def _row(data: ExperimentData, paper: Paper, number: Published, cell: Run) -> dict:
    runs = Setting(number.dataset, number.partition, number.model).of(data.runs)
    runs = runs[runs.method == number.method]
    sound = runs[~runs.diverged.astype(bool)]
    ours = estimate(sound[f"{data.experiment.selection}_{number.measure}"].astype(float))
    departures = paper.deviations(number, resolve(data.config, cell).full)
    if ours.n and paper.seeds is not None and ours.n != paper.seeds:
        departures.append(f"seeds {ours.n} (paper: {paper.seeds})")
    return {
        "paper": paper.name,
        "table": number.table,
        **{axis: getattr(number, axis) for axis in ("dataset", "partition", "model", "method", "measure")},
        "published": number.value,
        "published_std": nan if number.std is None else number.std,
        "n": ours.n,
        "diverged": int(runs.diverged.sum()),
        "ours": ours.mean,
        "ours_std": ours.std,
        "difference": ours.mean - number.value,
        "published_bytes": nan if number.bytes is None else number.bytes,
        "bytes": float(runs.bytes_uplink_per_client_round.astype(float).mean()) if len(runs) else nan,
        "setting": BETWEEN.join(departures) or SAME,
    }


def lay_out(data: ExperimentData, rows: pd.DataFrame) -> Layout:
    """The comparison as people read it."""
    paper = papers.read(data.experiment.paper)
    columns = ["Method", "Table", "Paper, %", "Ours, %", "Δ", "n"]
    sized = bool(rows.published_bytes.notna().any())
    columns += ["Paper's bytes", "Our bytes"] if sized else []
    marks = {text: str(place) for place, text in enumerate(dict.fromkeys(rows.setting[rows.setting != SAME]), 1)}
    groups = []
    for (dataset, partition, model), part in rows.groupby(["dataset", "partition", "model"], sort=False):
        title = _title(data, dataset, partition, model)
        groups.append(TableGroup(title, [_line(row, sized, marks) for row in part.itertuples()]))
    caption = (
        f"{data.experiment.title.rstrip('.')}: numbers published in {paper.title} and ours, {data.headline_short}."
    )
    return Layout([*columns, "Setting"], groups, caption, _notes(rows, paper, marks, sized))


def _title(data: ExperimentData, dataset: str, partition: str, model: str) -> str:
    named = (("datasets", dataset), ("partitions", partition), ("models", model))
    return " · ".join(labels(data.config, section, [name])[name] for section, name in named)


def _line(row, sized: bool, marks: dict[str, str]) -> list[TableCell]:
    measure = MEASURES.get(row.measure, row.measure)
    texts = [
        f"{row.label}, {measure}" if measure else row.label,
        row.table,
        _spread(row.published, row.published_std, 2),
        "diverged" if not row.n and row.diverged else _spread(row.ours, row.ours_std, 2) or NOTHING,
        signed(row.difference, 2) or NOTHING,
        f"{row.n} of {row.n + row.diverged}" if row.diverged else str(row.n),
    ]
    if sized:
        texts += [human_bytes(row.published_bytes), human_bytes(row.bytes) or NOTHING]
    return [TableCell(text) for text in [*texts, SAME if row.setting == SAME else f"differs ({marks[row.setting]})"]]


def _spread(mean: float, std: float, digits: int) -> str:
    return percent(mean, digits) + (f" ± {percent(std, digits)}" if isfinite(std) else "")


def _notes(rows: pd.DataFrame, paper: Paper, marks: dict[str, str], sized: bool) -> list[str]:
    found = [
        "± is the sample standard deviation over seeds, as papers give it. – stands for runs that are not finished."
    ]
    if sized:
        found.append("Bytes of one client's message to the server.")
    found.append(
        "Setting compares each run's spec with what the paper says, and where it says nothing with this benchmark's "
        f"config.yaml. It does not say: {'; '.join(paper.unstated)}."
    )
    return found + _departures(marks)


def _departures(marks: dict[str, str]) -> list[str]:
    """What each mark stands for, with what all have in common said once."""
    every = {mark: text.split(BETWEEN) for text, mark in marks.items()}
    common = [text for text in next(iter(every.values()), []) if all(text in texts for texts in every.values())]
    if len(every) < 2 or not common:
        return [f"({mark}) {text}." for text, mark in marks.items()]
    own = {mark: [text for text in texts if text not in common] for mark, texts in every.items()}
    return [
        f"(1) to ({len(every)}) {BETWEEN.join(common)}.",
        *(f"({mark}) also {BETWEEN.join(texts)}." for mark, texts in own.items() if texts),
    ]
