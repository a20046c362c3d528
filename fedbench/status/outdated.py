"""What in a results folder is not what its name says any more, for the workflow, which makes it again.

Snakemake knows what it made from which parameters. It does not know what was made by hand, and it takes outputs with
equal checksums for unchanged, whatever they were made from. Absent files are not outdated: Snakemake sees those itself.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbench.config.identity import REASONS, Present, mismatch
from fedbench.config.plan import Plan
from fedbench.config.spec import Cell, RunSpec, digest
from fedbench.data.raw import changed
from fedbench.errors import FedbenchError
from fedbench.files.io import read_sealed

RAW_CHANGED = "raw data changed since"
WEIGHTS_CHANGED = "its file of weights changed since"
OTHER_SPEC = REASONS["digest"]


class Outdated:
    """Why files of a plan have to be made again: each method returns a reason in words, or None.

    Parameters
    ----------
    plan : what is wanted
    data_root : where raw data and weights lie, if they are here at all
    """

    def __init__(self, plan: Plan, data_root: Path):
        self.plan = plan
        self.data_root = data_root
        self.present = Present(plan.paths)

    def data(self, dataset: str) -> str | None:
        """A prepared data set."""
        facts = self.present.data(dataset)
        made = self.plan.paths.data(dataset) / "dataset.json"
        if _differs(facts, self.plan.data_digest(dataset)):
            return OTHER_SPEC
        return RAW_CHANGED if raw_changed(self.plan.example(dataset), facts, made, self.data_root) else None

    def partition(self, dataset: str, partition: str, seed: int) -> str | None:
        """A partition."""
        facts = self.present.partition(dataset, partition, seed)
        return OTHER_SPEC if _differs(facts, self.plan.partition_digest(dataset, partition, seed)) else None

    def base(self, dataset: str, model: str) -> str | None:
        """A base model."""
        facts = self.present.base(dataset, model)
        made = self.plan.paths.base(dataset, model) / "base.json"
        if _differs(facts, self.plan.base_digest(dataset, model)):
            return OTHER_SPEC
        spec = self.plan.example(dataset, model=model)
        return WEIGHTS_CHANGED if weights_changed(spec, facts, made, self.data_root) else None

    def run(self, cell: Cell) -> str | None:
        """A finished run; one whose summary is damaged is made again, too."""
        path = self.plan.paths.run(cell) / "summary.json"
        if not path.exists():
            return None
        try:
            summary = read_sealed(path)
        except FedbenchError:
            return "its summary is damaged"
        return mismatch(summary, self.present.identity(cell, self.plan.run_digest(cell)))


def _differs(facts: Mapping[str, Any], wanted: str) -> bool:
    return "spec" in facts and digest(facts["spec"]) != wanted


def raw_changed(spec: RunSpec, facts: Mapping[str, Any], made: Path, data_root: Path) -> bool:
    """Whether the raw data are here and are not those that were prepared.

    Parameters
    ----------
    facts : contents of dataset.json
    made : that file
    """
    from fedbench.data.store import inputs

    return "raw" in facts and changed(facts["raw"], inputs(spec.dataset, data_root), made)


def weights_changed(spec: RunSpec, facts: Mapping[str, Any], made: Path, data_root: Path) -> bool:
    """Whether a base's file of weights is here and is not the one that was taken; parameters as above."""
    return "raw" in facts and changed(facts["raw"], [Path(data_root) / spec.base.path], made)
