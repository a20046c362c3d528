"""Accuracy at an equal byte budget, whatever number of rounds it buys a method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fedbench.analysis.budget import BUDGET, Spent, pools, within_budget
from fedbench.analysis.figures._rows import row_panels, row_remark, row_text
from fedbench.analysis.figures._style import MUTED, legend, method_rows, method_styles, percent_axis, styled
from fedbench.analysis.text import human_bytes, percent
from fedbench.options import PositiveFloat, options
from fedbench.registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData, Setting


@options
class ByteBudgetOptions:
    """The budget."""

    budget: PositiveFloat = BUDGET
    """Bytes that may be spent, up and down, without one-time bytes; more lets runs go on for longer."""
    of: Literal["total", "per-client"] = "total"
    """Whose bytes: of all clients together, or of the average client."""


@FIGURES.register("byte-budget", ByteBudgetOptions)
@styled
def draw(data: ExperimentData, options: ByteBudgetOptions = ByteBudgetOptions()) -> Figure:  # noqa: B008 (frozen)
    """Accuracy at the last evaluation within a budget of bytes; hollow points are whole runs that sent less."""
    found = [_spent(data, task, options) for task in data.tasks]
    figure, everywhere = row_panels([data.title(task) for task in data.tasks], [len(spent) for spent in found])
    who = "all clients" if options.of == "total" else "average client"
    for axes, task, spent in zip(everywhere, data.tasks, found, strict=True):
        _panel(axes, data, task, spent, _sharers(data, task, options))
        axes.set_xlabel(f"Accuracy at {human_bytes(options.budget)} ({who}), %")
    legend(figure, _key(), loc="outside lower center", ncols=2 if len(found) == 1 else 4)
    return figure


def _spent(data: ExperimentData, task: Setting, options: ByteBudgetOptions) -> dict[str, Spent | None]:
    """What each method had reached, over the seeds that did not diverge; None if all did."""
    runs, rounds = task.of(data.runs), task.of(data.rounds)
    budget = options.budget * _sharers(data, task, options)
    found = {}
    for method, every in runs.groupby("method", sort=False):
        sound = every[~every.diverged.astype(bool)]
        courses = rounds[(rounds.method == method) & rounds.seed.isin(sound.seed)]
        found[method] = within_budget(courses, data.accuracy_by_round, budget) if len(sound) else None
    return found


def _sharers(data: ExperimentData, task: Setting, options: ByteBudgetOptions) -> int:
    """By how many clients bytes are divided."""
    return int(task.of(data.runs).clients.iloc[0]) if options.of == "per-client" else 1


def _panel(axes: Axes, data: ExperimentData, task: Setting, found: dict[str, Spent | None], sharers: int) -> None:
    styles = method_styles(data.config)
    for place, (method, spent) in enumerate(found.items()):
        if spent is None:
            row_remark(axes, place, "diverged")
            continue
        accuracy = spent.accuracy
        if pools(data.config, method):
            row_remark(axes, place, f"no bytes counted: all data in one place (ends at {percent(accuracy.mean)} %)")
            continue
        if not accuracy.n:
            row_remark(axes, place, "none before the budget is spent")
            continue
        style = styles[method]
        axes.errorbar(
            accuracy.mean,
            place,
            xerr=None if accuracy.n < 2 else accuracy.std,
            marker=style.marker,
            color=style.colour,
            markerfacecolor=style.colour if spent.stopped else "white",
            elinewidth=0.9,
            capsize=2.0,
            linestyle="none",
            zorder=3,
            label=data.methods[method],
        )
        row_text(axes, place, percent(accuracy.mean), human_bytes(spent.bytes / sharers))
    base = task.of(data.runs)[data.base_accuracy].astype(float).mean()
    if base == base:
        axes.axvline(base, color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1, label="_base")
    axes.margins(x=0.08)
    method_rows(axes, [data.methods[method] for method in found])
    row_text(axes, -1, "%", "sent")
    percent_axis(axes.xaxis)


def _key() -> list:
    from matplotlib.lines import Line2D

    dot = {"linestyle": "none", "marker": "o", "color": MUTED}
    return [
        Line2D([], [], label="stopped by the budget", **dot),
        Line2D([], [], label="whole run sent less", markerfacecolor="white", **dot),
        Line2D([], [], color=MUTED, marker="|", linewidth=0.9, label="±1 sample std over seeds"),
        Line2D([], [], color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)), label="base"),
    ]
