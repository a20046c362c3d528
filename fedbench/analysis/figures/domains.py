"""For which domain: accuracy of every method on each domain of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedbench.analysis.figures._rows import fewer_seeds
from fedbench.analysis.figures._style import FONT, INK, WIDTH, new_figure, remark, styled
from fedbench.analysis.text import percent
from fedbench.errors import FedbenchError
from fedbench.files.picture import printable
from fedbench.options import options
from fedbench.registry import DATA_SOURCES, FIGURES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData, Setting
    from fedbench.config.figures import Asked


@options
class DomainsOptions:
    """The domains figure has no options."""


@FIGURES.register("domains", DomainsOptions)
@styled
def draw(data: ExperimentData, options: DomainsOptions = DomainsOptions()) -> Figure:  # noqa: B008 (frozen)
    """Accuracy on each domain's test samples, mean over seeds; colour is the gain over the base there, in points."""
    if data.domains.empty:
        raise FedbenchError(
            f"experiment {data.name!r}, figure domains: none of its finished runs has a domains.csv; "
            "add data of several domains to the experiment, or remove the figure"
        )
    # Data sets of one domain may be part of the same experiment; they have nothing to show here.
    tasks = [task for task in data.tasks if not task.of(data.domains).empty]
    tables = [by_domain(data, task) for task in tasks]
    counts = [max(1, len(accuracy)) for accuracy, _ in tables]
    figure = new_figure(WIDTH if len(tasks) > 1 else 5.2, 0.19 * sum(counts) + 0.85 * len(tasks) + 0.45)
    grid = figure.subplots(len(tasks), 1, squeeze=False, height_ratios=[count + 1.5 for count in counts])
    gains = np.concatenate([gain.to_numpy().ravel() for _, gain in tables])
    gains = np.abs(gains[np.isfinite(gains)])
    limit = max(0.05, float(gains.max())) if len(gains) else 0.05
    shown = None
    for axes, task, (accuracy, gain) in zip(grid[:, 0], tasks, tables, strict=True):
        axes.set_title(data.title(task))
        if accuracy.empty:
            remark(axes, "every run diverged")
            continue
        shown = _panel(axes, data, accuracy, gain, limit, _sound(data, task).groupby("method").seed.nunique())
    if shown is not None:
        which = "own weights" if data.experiment.metric == "personal" else "shared weights"
        _colour_bar(figure, grid[:, 0].tolist(), shown, f"Gain over the base, points\n({which})")
    return figure


def _objection(options: DomainsOptions, asked: Asked) -> str | None:
    datasets = {spec.dataset.name: spec.dataset for spec in asked.specs}.values()
    sources = [(DATA_SOURCES[dataset.common.source].target, dataset.options) for dataset in datasets]
    if all(hasattr(source, "domains") and source.domains(own) == 1 for source, own in sources):
        return "its data have one domain; add data of several"
    return None


draw.objection = _objection


def by_domain(data: ExperimentData, task: Setting) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(accuracy, gain over the base) of each method (rows) on each domain, mean over seeds that did not diverge."""
    kept = _sound(data, task)
    kept = kept.assign(gain=kept[data.client_accuracy].astype(float) - kept.accuracy_base.astype(float))
    order = dict.fromkeys(kept.method), dict.fromkeys(kept.domain)
    return tuple(
        kept.assign(value=kept[column].astype(float))
        .pivot_table(index="method", columns="domain", values="value", aggfunc="mean", sort=False)
        .reindex(index=list(order[0]), columns=list(order[1]))
        for column in (data.client_accuracy, "gain")
    )


def _sound(data: ExperimentData, task: Setting) -> pd.DataFrame:
    """Rows of domains.csv of the runs that did not diverge."""
    runs = task.of(data.runs)
    return task.of(data.domains).merge(runs[~runs.diverged.astype(bool)][["method", "seed"]], on=["method", "seed"])


def _panel(
    axes: Axes, data: ExperimentData, accuracy: pd.DataFrame, gain: pd.DataFrame, limit: float, seeds: pd.Series
):
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("gain", ["#D55E00", "#F8DCC6", "#FFFFFF", "#CFE3F2", "#0072B2"])
    image = axes.imshow(gain, aspect="auto", cmap=colours, vmin=-limit, vmax=limit)
    best = accuracy.max()
    for row, method in enumerate(accuracy.index):
        for column, domain in enumerate(accuracy.columns):
            value = accuracy.loc[method, domain]
            dark = abs(gain.loc[method, domain]) > 0.75 * limit
            axes.text(
                column,
                row,
                percent(value),
                ha="center",
                va="center",
                fontsize=FONT - 1,
                color="white" if dark else INK,
                weight="bold" if value == best[domain] else "normal",
            )
    axes.set_xticks(range(len(accuracy.columns)), [printable(domain) for domain in accuracy.columns])
    counted = zip(accuracy.index, fewer_seeds(seeds[accuracy.index]), strict=True)
    axes.set_yticks(range(len(accuracy)), [data.methods[method] + fewer for method, fewer in counted])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return image


def _colour_bar(figure: Figure, everywhere: list[Axes], image, label: str) -> None:
    from matplotlib.ticker import FuncFormatter

    bar = figure.colorbar(image, ax=everywhere, shrink=0.8 if len(everywhere) == 1 else 0.4, pad=0.02, aspect=18)
    bar.outline.set_visible(False)
    bar.set_label(label)
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:+g}".replace("-", "−")))
