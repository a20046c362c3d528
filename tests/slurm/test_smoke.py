"""The smoke config through SLURM gives what it gives on one machine.

Up to the tables: figures and the report are drawn from them where Snakemake runs, on a cluster too.
"""

import re
from collections import Counter
from pathlib import Path

import pytest
from cluster import numbers

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "workflow/configs/smoke.yaml"

pytestmark = pytest.mark.xdist_group("slurm")


def test_smoke_config_gives_the_numbers_of_a_local_run(on_cluster, locally):
    submitted, local = on_cluster("smoke", SMOKE), locally("smoke-local", SMOKE)
    for workflow in (submitted, local):
        workflow.run("results/smoke/summary.csv")
    found, expected = (numbers(workflow.folder / "results/smoke") for workflow in (submitted, local))
    assert len(expected) == 7 * 2 + 1 + 2 + 1, "two for each run, the gates of one, two tables, one summary"
    assert found == expected
    jobs = re.findall(r"^Job \d+ has been submitted with SLURM jobid \d+ \(log: .*/rule_(\w+)/", submitted.text(), re.M)
    assert Counter(jobs) == {"prepare": 1, "base": 2, "run": 7}, "light rules are no jobs"
