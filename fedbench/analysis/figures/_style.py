"""The look that all figures share: fonts, sizes, axes, and one colour and marker per method.

Colours are Okabe and Ito's, then darker ones of Tol's, chosen to stay apart under the common colour
deficiencies; markers and line styles repeat the distinction without colour.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedbench.files.picture import drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData
    from fedbench.config.reading import Config

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#332288", "#8A8A2B", "#5C5C5C")
MARKERS = ("o", "s", "^", "D", "v", "P", "h", "<", ">", "p")
LINES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))
ATTENTION, FFN = COLOURS[0], COLOURS[1]

INK, MUTED, FAINT = "#222222", "#6B6B6B", "#E3E3E3"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SECTIONS = ("datasets", "partitions", "models", "channels", "methods")
WIDTH = 7.0  # inches: the text width of a two-column paper
FONT = 8.0

RC = {
    "font.size": FONT,
    "axes.titlesize": FONT,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 6.0,
    "axes.labelsize": FONT,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": FONT - 0.5,
    "ytick.labelsize": FONT - 0.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "xtick.minor.size": 0.0,
    "legend.frameon": False,
    "legend.fontsize": FONT - 0.5,
    "legend.handlelength": 2.2,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.0,
    "figure.dpi": 100,
    "savefig.dpi": 220,
    "pdf.fonttype": 42,  # TrueType, so that text stays text
}


@dataclass(frozen=True)
class MethodStyle:
    """How one method looks in every figure of a config."""

    colour: str
    marker: str
    line: object


def styled(draw: Callable) -> Callable:
    """Run a figure's drawing function under the shared look, without touching matplotlib's global settings."""

    @functools.wraps(draw)
    def wrapped(data, *arguments, **options):
        with drawing(RC, shown_names(data)):
            return draw(data, *arguments, **options)

    return wrapped


def shown_names(data: ExperimentData) -> list[str]:
    """Texts in an experiment's figures that may have letters of any script."""
    config = data.config
    entries = [entry for section in SECTIONS for entry in getattr(config, section).values()]
    figures = [value for figure in config.figures(data.name).values() for value in vars(figure.options).values()]
    named = [entry.common.label for entry in entries] + [data.experiment.title, *data.domains.domain, *figures]
    return list(dict.fromkeys(text for text in named if isinstance(text, str)))


def legend(figure: Figure, handles: Sequence, **options):
    """A figure's legend that shows every label; matplotlib by itself leaves out those that begin with ``_``."""
    box = figure.legend(handles, ["label"] * len(handles), **options)
    for text, handle in zip(box.get_texts(), handles, strict=True):
        text.set_text(handle.get_label())
    return box


def new_figure(width: float = WIDTH, height: float = 3.0) -> Figure:
    """A figure without pyplot's global state, drawn by Agg."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    # room for the half of a tick label or marker that hangs over the frame
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.06)
    FigureCanvasAgg(figure)
    return figure


def method_styles(config: Config) -> dict[str, MethodStyle]:
    """One colour, marker and line per method, the same in all figures of a config.

    There are more methods than colours that people can tell apart, so methods that never meet in an
    experiment may share one: each method, in the order of the config, takes the colour that the methods it
    meets use least, and of those the one used least overall.
    """
    from fedbench.config.reading import listed

    meets: dict[str, set[str]] = {name: set() for name in config.methods}
    for experiment in config.experiments.values():
        together = {method for grid in experiment.cells for method in listed(grid.method)}
        for method in together:
            meets[method] |= together - {method}
    chosen: dict[str, int] = {}
    for method in config.methods:
        near = [chosen[other] for other in meets[method] if other in chosen]
        everywhere = list(chosen.values())
        chosen[method] = min(range(len(COLOURS)), key=lambda i: (near.count(i), everywhere.count(i), i))
    seen: dict[int, int] = {}
    styles = {}
    for method, index in chosen.items():
        again = seen[index] = seen.get(index, -1) + 1
        # Methods that share a colour differ in marker and line.
        marker = MARKERS[(index + 3 * again) % len(MARKERS)]
        styles[method] = MethodStyle(COLOURS[index], marker, LINES[again % len(LINES)])
    return styles


def tint(colour: str, share: float) -> tuple[float, float, float]:
    """`colour` mixed with white; unlike transparency, it hides the grid behind it."""
    from matplotlib.colors import to_rgb

    red, green, blue = (1 - share * (1 - part) for part in to_rgb(colour))
    return red, green, blue


def percent_axis(axis) -> None:
    """Label an axis of accuracies in [0, 1] in percent, without repeating the sign at every tick."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}".replace("-", "−")))


def panel_title(text: str, width: int = 46) -> str:
    """A title over several lines where one would run into the next panel."""
    first, *parts = text.split(" · ")
    lines = [first]
    for part in parts:
        if len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return "\n".join(lines)


def method_rows(axes, labels: Sequence[str]) -> None:
    """One row for each method, from the top, without lines between them."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def side_by_side(heights: Sequence[float], limit: float = 9.0) -> tuple[int, float]:
    """How many tasks (of these heights, inches) stand beside each other so that a figure does not get too long, and how
    much wider than one they are together."""
    return (2, 1.7) if len(heights) > 1 and sum(heights) > limit else (1, 1.0)


def powers_of_ten(axis) -> None:
    """Write the ticks of a logarithmic axis over many decades as 10⁻³, without mathematics, which labels never are."""
    from matplotlib.ticker import LogFormatterSciNotation

    class Powers(LogFormatterSciNotation):
        def __call__(self, value, position=None):
            text = re.sub(r"^\$\\mathdefault\{(.*)\}\$$", r"\1", super().__call__(value, position))
            text = text.replace(r"\times", "×")
            return re.sub(r"\^\{(.*)\}", lambda power: power[1].translate(SUPERSCRIPTS), text)

    axis.set_major_formatter(Powers())
    axis.set_minor_formatter(Powers(labelOnlyBase=False))


def plain_log_scale(axes) -> None:
    """A logarithmic y axis over few decades, with ticks as ordinary numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def base_line(axes, accuracy: float) -> None:
    """A level that says what the untouched base reaches; nothing if that is not known."""
    if accuracy != accuracy:
        return
    axes.axhline(accuracy, color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1, label="_base")
    axes.annotate(
        "base",
        (1, accuracy),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 2),
        textcoords="offset points",
        ha="right",
        fontsize=FONT - 1.5,
        color=MUTED,
    )


def remark(axes, text: str) -> None:
    """Say in an empty panel why it is empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=MUTED, style="italic")
    axes.set_xticks([])
    axes.set_yticks([])


def facets(figure: Figure, count: int, columns: int = 3, **options):
    """A grid of `count` axes, row by row; returns them as a flat list, without the grid's unused places."""
    columns = min(count, columns)
    rows = -(-count // columns)
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    flat = list(grid.flat)
    for unused in flat[count:]:
        unused.remove()
    return flat[:count]


def facet_size(count: int, columns: int = 3, height: float = 2.6) -> tuple[float, float]:
    """Width and height of a figure of `count` facets; one alone is not stretched over the whole width."""
    rows = -(-count // min(count, columns))
    return (5.2 if count == 1 else WIDTH), rows * height + 0.4
