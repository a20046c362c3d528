# What all rules share: the validated config, its plan, and how the command line is called.
#
# A `localrule` takes seconds and no GPU: not worth the wait in a cluster's queue. What takes memory or minutes is a job.
# Where Snakemake should not start them all at once, as on a login node, a profile limits their resource `login`.
import os
import re
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

import fedbench
from fedbench.config import places
from fedbench.site.allocation import array_task
from fedbench.errors import FedbenchError
from fedbench.status.outdated import Outdated
from fedbench.config.plan import Plan, from_workflow, write_given
from fedbench.config.spec import Cell
from fedbench.cli.status_text import failures as failures_of

# Before anything else: this may not be the process that should be at work.
if command := array_task(sys.argv):
    os.execvp("sh", ["sh", "-c", command])


def told(function, *arguments):
    """Call a function and end the workflow with its one-line message if the user has to mend something."""
    try:
        return function(*arguments)
    except FedbenchError as error:
        raise WorkflowError(str(error)) from None


# Another workflow may use this one as a module: then its name is __name__, and its config comes from there. The commands
# read it from a file.
is_module = not workflow.modifier.is_main_snakefile()
if is_module:
    own_config = Path(".snakemake/fedbench", f"{__name__}.json")
    config_files, overrides = [told(write_given, config, own_config)], {}
else:
    # A `configfile:` statement would be merged under --configfile, so the default is read only when none was given.
    config_files = workflow.config_settings.configfiles or [
        Path(workflow.basedir) / "config.yaml"
    ]
    overrides = workflow.config_settings.config
settings, assignments = told(from_workflow, config_files, overrides)
plan = Plan(settings)
told(places.check, plan)
RESULTS = str(plan.paths.root)
if is_module and workflow.modifier.modify_path(RESULTS) != RESULTS:
    raise WorkflowError(
        "fedbench's commands know no prefix of a module: say `results:` in its config"
    )
outdated = Outdated(plan, Path(os.environ.get("FEDBENCH_DATA", "data")))

# Inside a conda environment or container the package comes from a checkout, otherwise from where Snakemake runs.
checkout = Path(fedbench.__file__).parents[1]
if workflow.deployment_settings.deployment_method and not (checkout / "envs").is_dir():
    raise WorkflowError(
        "--sdm needs fedbench from a checkout (make install there), not from a wheel"
    )
python = (
    f"env PYTHONPATH={shlex.quote(str(checkout))} python"
    if workflow.deployment_settings.deployment_method
    else shlex.quote(sys.executable)
)
given = shlex.join(
    [
        *(part for file in config_files for part in ("--config", str(file))),
        *(part for assignment in assignments for part in ("--set", assignment)),
    ]
)
# Two shell functions that all commands use. They stand here because Snakemake reruns what it made when a command or its
# params change: another Python, another name of the same config, or a moved checkout must rerun nothing.
# `logged` copies output to a log and outlives the signals that tell a run to save and stop, so that it can still say so.
PRELUDE = f"""set -euo pipefail
fedbench() {{ local command=$1; shift; {python} -m fedbench "$command" {given} "$@"; }}
logged() {{ trap '' INT TERM USR1; tee "$1"; }}
"""


class shell(shell):
    """Snakemake's own, with a prefix for the rules of this workflow alone, also where it is a module of another."""


# Snakemake formats the prefix like a command
shell.prefix(PRELUDE.replace("{", "{{").replace("}", "}}"))

# In each rule instead of once for all, which would bind the rules of a workflow that includes these
NAME = r"[A-Za-z0-9][A-Za-z0-9._+-]*"
SEED = r"0|[1-9][0-9]*"


def renew(reason, file):
    """Have Snakemake make a file again that is not what its name says, if there is a reason; it needs no other input.

    Called from input functions, since these are asked for the jobs of the present targets only.
    """
    if reason and workflow.is_main_process:
        workflow.dag.forcefiles.add(file)
        if reason not in renewed:
            print(
                f"made again: {file} ({reason}), and all that are like it",
                file=sys.stderr,
            )
        renewed.add(reason)
    return []


renewed = set()


def renewed_data(wildcards):
    """No input; see `renew`."""
    reason = told(outdated.data, wildcards.dataset)
    return renew(reason, f"{plan.paths.data(wildcards.dataset)}/dataset.json")


def renewed_partition(wildcards):
    """No input; see `renew`."""
    names = wildcards.dataset, wildcards.partition, int(wildcards.seed)
    return renew(
        told(outdated.partition, *names),
        f"{plan.paths.partition(*names)}/partition.json",
    )


def renewed_base(wildcards):
    """No input; see `renew`."""
    names = wildcards.dataset, wildcards.model
    return renew(told(outdated.base, *names), f"{plan.paths.base(*names)}/base.json")


def renewed_run(wildcards):
    """No input; see `renew`."""
    run = cell(wildcards)
    return renew(told(outdated.run, run), plan.target(run))


def data_spec(wildcards):
    """What a prepared data set depends on; like all specs here, a change of it reruns what it made."""
    return told(plan.data_digest, wildcards.dataset)


def partition_spec(wildcards):
    """What a partition depends on."""
    return told(
        plan.partition_digest,
        wildcards.dataset,
        wildcards.partition,
        int(wildcards.seed),
    )


def base_spec(wildcards):
    """What a base model depends on."""
    return told(plan.base_digest, wildcards.dataset, wildcards.model)


def cell(wildcards):
    """The run that a target names."""
    return Cell(
        wildcards.dataset,
        wildcards.partition,
        wildcards.model,
        wildcards.method,
        int(wildcards.seed),
    )


def run_spec(wildcards):
    """What a run depends on."""
    return told(plan.run_digest, cell(wildcards))


def figure_spec(wildcards):
    """How a figure's experiment is shown."""
    return told(plan.figure_digest, wildcards.experiment, wildcards.figure)


def summaries(wildcards):
    """Summaries of an experiment's runs, or of all runs where no experiment is named."""
    experiment = wildcards.get("experiment")
    return [
        plan.target(run)
        for run in (
            told(plan.experiment_cells, experiment) if experiment else plan.cells
        )
    ]


def failures():
    """The jobs that failed for good, with their last words and their logs."""
    jobs = {}
    for failed in workflow.scheduler.failed:
        for job in failed.jobs if failed.is_group() else [failed]:
            parts = job.wildcards.items()
            where = [f"seed{part}" if name == "seed" else part for name, part in parts]
            jobs[" ".join([job.rule.name, "/".join(where)])] = Path(job.log[0])
    return failures_of(jobs)


def no_such_target(wildcards):
    """End the workflow, saying which target was probably meant."""
    return told(plan.no_such_target, wildcards.anything, FIXED_FILES)


TABLES = [
    f"{RESULTS}/tables/{name}.{kind}"
    for experiment, settings in plan.experiments.items()
    for name in [experiment, *([f"published/{experiment}"] if settings.paper else [])]
    for kind in ("csv", "md", "tex")
]
FIGURES = [
    f"{RESULTS}/figures/{name}/{figure}.{kind}"
    for name in plan.experiments
    for figure in plan.config.figures(name)
    for kind in ("png", "pdf")
]
# Files that are made once; all others follow from the names of the runs.
FIXED_FILES = [f"{RESULTS}/summary.csv", f"{RESULTS}/report.html", *TABLES, *FIGURES]
if workflow.is_main_process:  # once; not by every job again
    told(plan.check_made, FIXED_FILES)
