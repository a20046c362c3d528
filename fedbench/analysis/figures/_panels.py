"""What stands in one panel of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from fedbench.analysis.collect import ExperimentData


@dataclass(frozen=True)
class Panel:
    """Some of an experiment's runs, and what they have in common that others have not."""

    title: str
    runs: pd.DataFrame


def panels(data: ExperimentData, together: Sequence[str]) -> list[Panel]:
    """An experiment's runs by data set, partition and model, but for those of these three that stand `together`."""
    from fedbench.analysis.collect import TASK, Setting

    apart = [axis for axis in TASK if axis not in together]
    if not apart:
        return [Panel(data.experiment.title, data.runs)]
    groups = [runs for _, runs in data.runs.groupby(apart, sort=False)]
    return [Panel(data.title(Setting(*runs[list(TASK)].iloc[0]), apart), runs) for runs in groups]
