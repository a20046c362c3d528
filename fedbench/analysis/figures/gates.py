"""Where in the network clients open their private branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedbench.analysis.figures._style import (
    ATTENTION,
    COLOURS,
    FFN,
    FONT,
    MUTED,
    facet_size,
    facets,
    legend,
    new_figure,
    remark,
    styled,
)
from fedbench.errors import FedbenchError
from fedbench.options import options
from fedbench.registry import FIGURES, METHODS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData, Setting
    from fedbench.config.figures import Asked

LOW, HIGH = 0.1, 0.9  # quantiles of the outer band

# Rings around squares: where both kinds of site agree (a fixed gate, one gate per block), both stay visible.
SITES = {
    "attention": ("attention (output projection)", ATTENTION, {"marker": "o", "markersize": 6.5, "fillstyle": "none"}),
    "ffn": ("FFN (second layer)", FFN, {"marker": "s", "markersize": 3.2}),
}


@options
class GatesOptions:
    """The gates figure has no options."""


@FIGURES.register("gates", GatesOptions)
@styled
def draw(data: ExperimentData, options: GatesOptions = GatesOptions()) -> Figure:  # noqa: B008 (frozen)
    """Gate value by depth, attention and FFN apart, with the spread over clients, one panel per variant."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    if data.gates.empty and data.runs.diverged.any():  # before their first gate was written
        figure = new_figure(*facet_size(1, 1))
        remark(facets(figure, 1, 1)[0], "no gates: runs diverged")
        return figure
    if data.gates.empty:
        raise FedbenchError(
            f"experiment {data.name!r}, figure gates: none of its finished runs has a gates.csv; "
            "add a method with gates (fedsdg) to the experiment, or remove the figure"
        )
    panels = [
        (task, method, part)
        for task in data.tasks
        for method, part in task.of(data.gates).groupby("method", sort=False)
    ]
    # Where it fits, a column holds one variant and a row one task, so that both can be compared along a line.
    variants = len({method for _, method, _ in panels})
    columns = variants if len(data.tasks) > 1 and variants <= 4 else 3
    single = len(panels) == 1
    figure = new_figure(*facet_size(len(panels), columns, height=2.6 if single else 2.0))
    handles: dict[str, Any] = {}
    everywhere = facets(figure, len(panels), columns, sharey=True, sharex=True)
    for place, (axes, (task, method, part)) in enumerate(zip(everywhere, panels, strict=True)):
        handles |= _panel(axes, part)
        axes.set_title(_title(data, task, method))
        axes.tick_params(labelbottom=True)
        axes.set_ylabel("Gate m" if place % columns == 0 else "")
        axes.set_xlabel("Block")
    top = max(float(part.groupby(["site", "block"]).value.quantile(HIGH).max()) for _, _, part in panels)
    top = max(top, 0.08)
    everywhere[0].set_ylim(0, 1.22 * top)  # no band is cut, and none runs under the text in the corner
    everywhere[0].yaxis.set_major_locator(FixedLocator(MaxNLocator(5).tick_values(0, top)))
    note = _bands()
    legend(figure, [*handles.values(), *note], loc="outside lower center", ncols=2 if single else 4)
    return figure


def _objection(options: GatesOptions, asked: Asked) -> str | None:
    if not any("gates.csv" in METHODS[spec.method.common.method].target.tables for spec in asked.specs):
        return "none of its methods has gates; add one (fedsdg)"
    return None


draw.objection = _objection


def _title(data: ExperimentData, task: Setting, method: str) -> str:
    label = data.methods[method]
    return f"{label}\n{data.title(task)}" if len(data.tasks) > 1 else label


def _panel(axes: Axes, gates: pd.DataFrame) -> dict:
    """Median over clients and seeds with the middle half and the middle 80 %, per kind of site."""
    from matplotlib.ticker import MaxNLocator

    handles = {}
    kinds = sorted(gates.site.unique())
    for place, kind in enumerate(kinds):
        label, colour, marker = SITES.get(kind, (kind, COLOURS[2 + place], {"marker": "^", "markersize": 4}))
        by_block = gates[gates.site == kind].groupby("block").value
        low, lower, middle, upper, high = (by_block.quantile(q) for q in (LOW, 0.25, 0.5, 0.75, HIGH))
        blocks = middle.index + 1
        axes.fill_between(blocks, low, high, color=colour, alpha=0.10, linewidth=0, label="_middle80")
        axes.fill_between(blocks, lower, upper, color=colour, alpha=0.20, linewidth=0, label="_middle50")
        (line,) = axes.plot(blocks, middle, color=colour, label=label, **marker)
        handles[label] = line
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.margins(x=0.04)
    axes.annotate(
        _count(gates),
        (1, 1),
        xycoords="axes fraction",
        xytext=(-3, -3),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=FONT - 1.5,
        color=MUTED,
    )
    return handles


def _count(gates: pd.DataFrame) -> str:
    """How many clients there are; other ones may have taken part in each seed."""
    counts = gates.groupby("seed").client.nunique()
    seeds = f"{len(counts)} seed{'s' if len(counts) > 1 else ''}"
    return f"{counts.iloc[0]} clients × {seeds}" if counts.nunique() == 1 else f"{counts.sum()} clients of {seeds}"


def _bands() -> list:
    from matplotlib.patches import Patch

    return [
        Patch(color=MUTED, alpha=0.35, linewidth=0, label="middle half of clients"),
        Patch(color=MUTED, alpha=0.16, linewidth=0, label="P10 to P90"),
    ]
