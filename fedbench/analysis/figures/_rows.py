"""Panels with one row for each method: tasks beside and below each other, heights by their number of methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedbench.analysis.figures._style import FONT, INK, MUTED, WIDTH, facets, new_figure, panel_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROW = 0.22  # inches


def row_panels(titles: Sequence[str], counts: Sequence[int]) -> tuple[Figure, list[Axes]]:
    """A figure and a panel for each task, under its title.

    Parameters
    ----------
    titles : of the tasks
    counts : how many methods each of them has
    """
    columns = 1 if len(titles) == 1 else 2
    heights = [max(counts[first : first + columns]) for first in range(0, len(titles), columns)]
    figure = new_figure(5.6 if columns == 1 else 1.25 * WIDTH, ROW * sum(heights) + 0.95 * len(heights) + 0.4)
    axes = facets(figure, len(titles), columns, height_ratios=[height + 2.5 for height in heights])
    for one, title in zip(axes, titles, strict=True):
        one.set_title(panel_title(title), pad=14)  # room for the heads of the columns of numbers
    return figure, axes


def row_text(axes: Axes, place: int, *columns: str) -> None:
    """Numbers right of a panel, in the line of a row; from their second column on, in a lighter grey."""
    for column, text in enumerate(columns):
        axes.annotate(
            text,
            (1, place),
            xycoords=axes.get_yaxis_transform(),
            xytext=(38 + 38 * column, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=FONT - 1,
            color=MUTED if column else INK,
        )


def fewer_seeds(counts: Sequence[int]) -> list[str]:
    """What to write behind the rows of a task that rest on fewer seeds than others; nothing behind those others.

    Parameters
    ----------
    counts : seeds behind each row
    """
    most = max(counts, default=0)
    return ["" if count == most else f", n = {count} of {most}" for count in counts]


def row_remark(axes: Axes, place: int, text: str) -> None:
    """Say in a row why it has no point."""
    axes.annotate(
        text,
        (0.02, place),
        xycoords=axes.get_yaxis_transform(),
        va="center",
        fontsize=FONT - 1,
        color=MUTED,
        style="italic",
        bbox={"color": "white", "pad": 0.5},
    )
