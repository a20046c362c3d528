"""Bytes until a target accuracy, whatever number of rounds they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fedbench.analysis.budget import pools
from fedbench.analysis.figures._byte_axis import byte_axis
from fedbench.analysis.figures._rows import row_panels, row_remark, row_text
from fedbench.analysis.figures._style import method_rows, method_styles, remark, styled, tint
from fedbench.analysis.text import human_bytes, percent
from fedbench.errors import FedbenchError
from fedbench.options import PositiveShare, options
from fedbench.registry import FIGURES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData
    from fedbench.config.figures import Asked


@options
class BytesToTargetOptions:
    """The target."""

    target: PositiveShare | Literal["reference"] = "reference"
    """Accuracy to reach: a number, or one point less than the headline accuracy of the experiment's reference."""


@FIGURES.register("bytes-to-target", BytesToTargetOptions)
@styled
def draw(data: ExperimentData, options: BytesToTargetOptions = BytesToTargetOptions()) -> Figure:  # noqa: B008 (frozen)
    """Bytes of all clients, up and down (log axis), until the seeds' mean test accuracy first reaches a target."""
    from fedbench.analysis.tables import build

    reference = data.experiment.reference
    if options.target == "reference" and reference is None:
        raise FedbenchError(
            f"experiment {data.name!r}, figure bytes-to-target: the experiment has no reference; "
            f"set experiments.{data.name}.reference or give the figure a target"
        )
    table = build(data, None if options.target == "reference" else options.target)
    parts = [task.of(table) for task in data.tasks]
    titles = [_title(data.title(task), task.of(table).target_accuracy.iloc[0]) for task in data.tasks]
    figure, everywhere = row_panels(titles, [len(part) for part in parts])
    for axes, part in zip(everywhere, parts, strict=True):
        if part.target_accuracy.isna().all():
            remark(axes, f"no target: {data.methods.get(reference, reference)} has no finished, sound run here")
        elif part.bytes_to_target.max() > 0:
            _panel(axes, data, part)
        else:
            remark(axes, "no method that sends bytes reaches the target")
    return figure


def _objection(options: BytesToTargetOptions, asked: Asked) -> str | None:
    if options.target == "reference" and asked.experiment.reference is None:
        return f"the experiment has no reference; set experiments.{asked.name}.reference or give the figure a target"
    return None


draw.objection = _objection


def _title(task: str, target: float) -> str:
    return f"{task} · to {percent(target)} %" if target == target else task


def _panel(axes: Axes, data: ExperimentData, table: pd.DataFrame) -> None:
    styles = method_styles(data.config)
    axis = byte_axis(axes, table.bytes_to_target, room=0.08, most=4)
    for place, row in enumerate(table.itertuples()):
        if row.n == 0:
            row_remark(axes, place, "diverged")
        elif pools(data.config, row.method):
            row_remark(axes, place, f"no bytes counted: all data in one place (ends at {percent(row.accuracy_mean)} %)")
        elif row.bytes_to_target != row.bytes_to_target:
            row_remark(axes, place, f"never (ends at {percent(row.accuracy_mean)} %)")
        else:
            style, at = styles[row.method], row.bytes_to_target or axis.zero
            axes.plot([axes.get_xlim()[0], at], [place] * 2, color=tint(style.colour, 0.4), zorder=2, label="_stem")
            look = {"marker": style.marker, "color": style.colour, "linestyle": "none"}
            axes.plot([at], [place], zorder=3, label=row.label, **look)
            row_text(axes, place, human_bytes(row.bytes_to_target), f"{row.rounds_to_target:.0f}")
    method_rows(axes, table.label)
    row_text(axes, -1, "bytes", "round")
    axes.set_xlabel("Bytes up and down, all clients")
