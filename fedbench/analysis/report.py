"""results/report.html: one page that opens from disk, with every figure inside."""

from __future__ import annotations

import base64
import importlib.resources
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from fedbench.analysis import paper_comparison as published
from fedbench.analysis.collect import Collection, ExperimentData, Missing, collect, labels, read_partition
from fedbench.analysis.layout import Layout, lay_out
from fedbench.analysis.plot import figure_path, require_figure
from fedbench.analysis.tables import build
from fedbench.analysis.text import human_bytes, percent, signed
from fedbench.config.reading import Config
from fedbench.config.spec import Paths
from fedbench.errors import FedbenchError
from fedbench.files.io import write_text
from fedbench.files.products import check_files
from fedbench.partition.partition import repair_text
from fedbench.registry import FIGURES

PAGE_SCALE = 0.6  # CSS pixels per pixel of a figure: 8 points of the figure's text become 11 pixels or so


@dataclass(frozen=True)
class Picture:
    """An image inside the page."""

    source: str
    width: int
    alt: str
    caption: str
    link: str | None = None


@dataclass(frozen=True)
class Section:
    """One experiment."""

    name: str
    title: str
    question: str
    findings: list[str]
    table: Layout
    published: Layout | None
    figures: list[Picture]
    runs: list[Mapping[str, Any]]
    missing: tuple[Missing, ...]


def report(config: Config, paths: Paths) -> Path:
    """Write report.html from the run folders and the figures that :func:`fedbench.analysis.plot.plot` has drawn.

    Experiments without any finished run are named as such.

    Returns
    -------
    The written file.

    Raises
    ------
    FedbenchError
        If a figure or a partition's picture is missing, a file is damaged, or report.html is somebody else's.
    """
    out = paths.root / "report.html"
    check_files([out])
    collection = collect(config, paths)
    there = [name for name in config.experiments if collection.has(name)]
    template = importlib.resources.files("fedbench.analysis").joinpath("report.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    runs = collection.runs
    page = environment.from_string(template).render(
        name=config.name,
        sections=[_section(collection.experiment(name), paths) for name in there],
        without_runs=[config.experiments[name].title for name in config.experiments if name not in there],
        counts={"runs": len(runs), "missing": len(collection.missing), "diverged": int(runs.diverged.sum())},
        missing=collection.missing,
        diverged=_diverged(runs),
        hours=float(runs.seconds_wall.astype(float).sum()) / 3600,
        sent=human_bytes(float(runs.bytes_total.astype(float).sum())),
        partitions=_partitions(collection, paths),
        environment=_environment(collection),
        example=runs.iloc[0].to_dict(),
        target=str(paths.run(_cell(collection)) / "summary.json"),
    )
    write_text(out, page)
    return out


def _cell(collection: Collection):
    from fedbench.config.spec import Cell

    first = collection.runs.iloc[0]
    return Cell(first.dataset, first.partition, first.model, first.method, int(first.seed))


def _section(data: ExperimentData, paths: Paths) -> Section:
    experiment = data.experiment
    rows = build(data)
    findings = [text for task in data.tasks for text in _findings(data, task, rows)]
    drawn = data.config.figures(data.name)
    figures = [_figure(data, name, figure.common.figure, paths, findings) for name, figure in drawn.items()]
    return Section(
        data.name,
        experiment.title,
        experiment.question,
        findings,
        lay_out(data, rows),
        None if experiment.paper is None else published.lay_out(data, published.compare(data)),
        figures,
        _runs(data),
        data.missing,
    )


def _findings(data: ExperimentData, task, rows: pd.DataFrame) -> list[str]:
    """The most accurate method and the frontier of a task, in words."""
    part = task.of(rows)
    sound = part[part.accuracy_mean.notna()]
    if sound.empty:
        return [f"{data.title(task)}: every run diverged."]
    best = sound.loc[sound.accuracy_mean.idxmax()]
    spread = "" if pd.isna(best.accuracy_low) else f" ± {percent((best.accuracy_high - best.accuracy_low) / 2)}"
    text = f"{data.title(task)}: most accurate is {best.label} with {percent(best.accuracy_mean)}{spread} %"
    if pd.notna(best.gain_over_base_mean):
        total = human_bytes(best.bytes_total)
        sent = {"": "", "0": ", nothing sent"}.get(total, f", {total} in all")
        text += f" ({signed(best.gain_over_base_mean)} points over the base{sent})"
    frontier = part[part.frontier].sort_values("bytes_total", kind="stable")
    return [f"{text}." + (f" Nothing beats, from cheap to dear: {', '.join(frontier.label)}." if len(frontier) else "")]


def _figure(data: ExperimentData, name: str, kind: str, paths: Paths, findings: list[str]) -> Picture:
    path = require_figure(paths, data.name, name)
    summary = FIGURES[kind].summary
    pdf = figure_path(paths, data.name, name, "pdf")
    link = pdf.relative_to(paths.root).as_posix() if pdf.is_file() else None
    alt = f"Figure {name} of the experiment {data.experiment.title}: {summary} {' '.join(findings)}"
    return Picture(*_embed(path), alt, summary, link)


def _embed(path: Path) -> tuple[str, int]:
    """A PNG as a data URI, and the width at which its text is as large as the page's small print."""
    from PIL import Image

    try:
        content = path.read_bytes()
        with Image.open(io.BytesIO(content)) as image:
            pixels = image.width
    except OSError as error:  # Pillow's "cannot identify image" is one, too
        raise FedbenchError(f"{path}: cannot read ({error}); make it again and repeat the report") from None
    return "data:image/png;base64," + base64.b64encode(content).decode(), round(pixels * PAGE_SCALE)


def _runs(data: ExperimentData) -> list[Mapping[str, Any]]:
    columns = ["dataset", "partition", "model", "method", "seed", "diverged", "seconds_wall", "bytes_total"]
    frame = data.runs[columns].assign(accuracy=data.runs[data.headline].map(percent))
    frame["bytes_total"] = frame.bytes_total.astype(float).map(human_bytes)
    return frame.to_dict("records")


def _diverged(runs: pd.DataFrame) -> list[str]:
    wrong = runs[runs.diverged.astype(bool)]
    return [
        f"{row.dataset}/{row.partition}/{row.model}/{row.method}/seed{row.seed}: round {row.diverged_round:.0f}"
        for row in wrong.itertuples()
    ]


def _partitions(collection: Collection, paths: Paths) -> list[tuple[Picture, list[tuple[str, str]]]]:
    """Picture and skew of each partition that runs use, of its first seed; what repair moved, of all seeds."""
    found = []
    for (dataset, partition), runs in collection.runs.groupby(["dataset", "partition"], sort=False):
        metas = {seed: read_partition(paths, dataset, partition, seed) for seed in sorted(runs.seed.unique())}
        seed, meta = next(iter(metas.items()))
        labelled = {section: labels(collection.config, section, [name])[name] for section, name in
                    (("datasets", dataset), ("partitions", partition))}  # fmt: skip
        title = f"{labelled['datasets']} · {labelled['partitions']}, seed {seed}"
        skew = meta["statistics"]
        facts = [
            ("Clients", f"{meta['clients']}"),
            ("Samples per client", f"{skew['smallest']:,} to {skew['largest']:,}"),
            ("Gini of the sizes", f"{skew['gini']:.2f}"),
            ("Jensen-Shannon distance", f"{skew['jensen_shannon_mean']:.2f}"),
            ("Effective classes", f"{skew['effective_classes_mean']:.1f} of {len(meta['counts'][0])}"),
            *((f"Seed {own}", text) for own, other in metas.items() if (text := repair_text(other))),
        ]
        if meta.get("duplicates"):
            facts.append(("Test images that are training images as well", f"{meta['duplicates']:,}"))
        alt = f"Samples of each class that each client of {title} holds; " + ", ".join(
            ": ".join(fact) for fact in facts
        )
        picture = paths.partition(dataset, partition, seed) / "partition.png"
        found.append((Picture(*_embed(picture), alt, title), facts))
    return found


def _environment(collection: Collection) -> list[tuple[str, list[str]]]:
    """Versions, commits and devices with the number of runs behind each, where they are not all the same."""
    values: dict[str, Counter] = {}
    for record in collection.records:
        git = record["git"]
        commit = (git["commit"] or "not a git checkout")[:12]
        state = {True: ", with uncommitted changes", False: "", None: ""}[git["dirty"]]
        facts = {"Commit": commit + state, "Device": str(record["device"]), "Threads": str(record["threads"])}
        for key, value in (facts | dict(record["versions"])).items():
            values.setdefault(key, Counter())[str(value)] += 1
    return [
        (key, [value if len(found) == 1 else f"{value} ({count} runs)" for value, count in found.items()])
        for key, found in values.items()
    ]
