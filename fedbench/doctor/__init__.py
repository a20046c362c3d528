"""`fedbench doctor`: can this machine or cluster run the benchmark, and if not, what is to be done?

It has to work where packages are missing, so nothing but click is imported before they have been looked for.
Nothing is changed: folders are tried with temporary files, and other programs are asked with a time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedbench.doctor import cluster, folders, machine, software
from fedbench.doctor.finding import Finding
from fedbench.errors import FedbenchError

if TYPE_CHECKING:
    from fedbench.config.plan import Plan

ROOT = Path(__file__).resolve().parents[2]


def examine(
    read_plan: Callable[[], Plan], data_root: Path, checkpoints: Path, device: str, site: Path | None = None
) -> Iterator[Finding]:
    """Everything there is to say, one finding after the other.

    Parameters
    ----------
    read_plan : returns the config's plan; its FedbenchError is a finding too
    data_root : folder of raw data sets and weights
    checkpoints : folder of all checkpoints
    device : as in ``--device``
    site : folder of a site's own settings for SLURM, as in Snakemake's ``--workflow-profile``
    """
    yield software.python()
    yield from software.packages(ROOT)
    yield machine.cores()
    yield machine.memory()
    yield from machine.devices(device)
    yield from cluster.slurm(ROOT, site)
    try:
        plan = read_plan()
        for cell in dict.fromkeys(replace(cell, seed=0) for cell in plan.cells):
            plan.spec(cell)
    except (FedbenchError, ImportError) as error:  # a package that is missing has had its line already
        yield Finding("missing", "config", str(error))
        yield from folders.usable("checkpoints", checkpoints, "--checkpoints")
        return
    from fedbench.doctor import inputs

    yield Finding("ok", "config", f"{plan.config.name}: {len(plan.cells)} runs")
    yield from inputs.datasets(plan, data_root)
    yield from inputs.bases(plan, data_root)
    yield from inputs.partitions(plan)
    yield from folders.usable("results", plan.paths.root, "--results")
    yield from folders.usable("checkpoints", checkpoints, "--checkpoints")
