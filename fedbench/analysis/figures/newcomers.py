"""What a client gets that joins late, beside those that trained all along."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.analysis.figures._rows import fewer_seeds
from fedbench.analysis.figures._style import (
    FONT,
    INK,
    MUTED,
    facet_size,
    facets,
    legend,
    method_styles,
    new_figure,
    percent_axis,
    remark,
    styled,
    tint,
)
from fedbench.analysis.resolved import VARIANT, spec_of
from fedbench.analysis.statistics import Estimate, estimate
from fedbench.analysis.text import signed
from fedbench.errors import FedbenchError
from fedbench.options import options
from fedbench.registry import FIGURES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData, Setting
    from fedbench.config.figures import Asked


@options
class NewcomersOptions:
    """The newcomers figure has no options."""


@FIGURES.register("newcomers", NewcomersOptions)
@styled
def draw(data: ExperimentData, options: NewcomersOptions = NewcomersOptions()) -> Figure:  # noqa: B008 (frozen)
    """Personalised accuracy of clients that take part and of held-out ones after a few own epochs, 95 % intervals."""
    if not data.runs.held_out_clients.any():
        raise FedbenchError(
            f"experiment {data.name!r}, figure newcomers: none of its finished runs holds clients out; "
            "give its partitions training.held_out, or remove the figure"
        )
    rows = max(task.of(data.runs).method.nunique() for task in data.tasks)
    width, height = facet_size(len(data.tasks), columns=2, height=0.2 * rows + 0.75)
    figure = new_figure(width, height + 0.3)
    everywhere = facets(figure, len(data.tasks), columns=2, sharex=True)
    beside: list = []
    for place, (axes, task) in enumerate(zip(everywhere, data.tasks, strict=True)):
        measured = _measured(data, task)
        axes.set_title(data.title(task))
        if not measured:
            remark(axes, "every run diverged")
            continue
        _panel(axes, data, task, measured)
        if place % 2 and list(measured) == beside:  # the left panel names the same rows
            axes.set_yticklabels([])
        beside = list(measured)
    epochs = sorted({own_epochs(data, cell) for cell in data.runs[VARIANT].drop_duplicates().to_dict("records")})
    legend(figure, _key(epochs), loc="outside lower center", ncols=3 if len(data.tasks) > 1 else 1)
    return figure


def _objection(options: NewcomersOptions, asked: Asked) -> str | None:
    if not any(spec.training.held_out for spec in asked.specs):
        return "none of its runs holds clients out; give its partitions training.held_out"
    return None


draw.objection = _objection


def own_epochs(data: ExperimentData, cell: Mapping[str, str]) -> int:
    """Passes over its own samples that a newcomer of a run makes before it is evaluated."""
    training = spec_of(data, cell)["training"]
    return training["fine_tune_epochs"] if training["held_out_epochs"] is None else training["held_out_epochs"]


def _column(data: ExperimentData, group: str) -> str:
    return f"{data.experiment.selection}_{group}_mean"


def _measured(data: ExperimentData, task: Setting) -> dict[str, tuple[Estimate, Estimate]]:
    """(participants, newcomers) of each method that has both, over the seeds that did not diverge."""
    runs = task.of(data.runs)
    sound = runs[~runs.diverged.astype(bool)].dropna(subset=_column(data, "held_out"))
    return {
        method: (
            estimate(part[_column(data, "personal")].astype(float)),
            estimate(part[_column(data, "held_out")].astype(float)),
        )
        for method, part in sound.groupby("method", sort=False)
    }


def _panel(axes: Axes, data: ExperimentData, task: Setting, measured: dict[str, tuple[Estimate, Estimate]]) -> None:
    styles = method_styles(data.config)
    fewer = fewer_seeds([members.n for members, _ in measured.values()])
    for place, (method, (members, newcomers)) in enumerate(measured.items()):
        colour = styles[method].colour
        axes.barh(place - 0.19, members.mean, height=0.36, color=colour, linewidth=0, label="_members")
        axes.barh(place + 0.19, newcomers.mean, height=0.36, color=tint(colour, 0.4), linewidth=0, label="_newcomers")
        ends = []
        for found, y in ((members, place - 0.19), (newcomers, place + 0.19)):
            ends.append(found.mean)
            if found.n > 1:
                low, high = max(found.low, 0), min(found.high, 1)
                axes.plot([low, high], [y, y], color=INK, linewidth=0.8, zorder=3, label="_interval")
                ends.append(high)
        text = signed(newcomers.mean - members.mean) + fewer[place]
        axes.text(max(ends) + 0.025, place, text, va="center", fontsize=FONT - 1, color=INK)
    base = float(task.of(data.runs).base_personal.astype(float).mean())
    axes.axvline(base, color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)), zorder=2, label="_base")
    labels = [data.methods[method] for method in measured]
    axes.set_yticks(range(len(measured)), labels)
    axes.set_ylim(len(measured) - 0.45, -0.55)
    axes.set_xlim(0, 1.12)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("Personalised accuracy, %")
    percent_axis(axes.xaxis)


def _key(epochs: list[int]) -> list:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Patch(color=MUTED, linewidth=0, label="clients that take part"),
        Patch(color=tint(MUTED, 0.4), linewidth=0, label=f"newcomers {_after(epochs)} (right: difference, points)"),
        Line2D([], [], color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)), label="base"),
    ]


def _after(epochs: list[int]) -> str:
    if epochs == [0]:
        return "without own training"
    passes = f"{epochs[0]} own epoch" if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]} own epoch"
    return f"after {passes}{'' if epochs == [1] else 's'}"
