# What every rule shares: the validated config, its plan, and how the command line is called.
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from fedbench.errors import FedbenchError
from fedbench.plan import Plan, from_workflow
from fedbench.spec import Cell


def told(function, *arguments):
    """Call a function and end the workflow with its one-line message if the user has to mend something."""
    try:
        return function(*arguments)
    except FedbenchError as error:
        raise WorkflowError(str(error)) from None


# A `configfile:` statement would be merged under --configfile, so the default is read only when none was given.
config_files = workflow.config_settings.configfiles or [
    Path(workflow.basedir) / "config.yaml"
]
settings, assignments = told(
    from_workflow, config_files, workflow.config_settings.config
)
plan = Plan(settings)
RESULTS = str(plan.paths.root)

# These stand in shell commands as names: Snakemake compares the commands as they are written here, so another
# Python, another config file with the same content, or a moved checkout reruns nothing.
CONFIG = shlex.join(
    [
        *(part for file in config_files for part in ("--config", str(file))),
        *(part for assignment in assignments for part in ("--set", assignment)),
    ]
)
# Inside a conda environment or container the package comes from this checkout, otherwise from where Snakemake runs.
FEDBENCH = (
    f"env PYTHONPATH={shlex.quote(str(workflow.basedir))} python -m fedbench"
    if workflow.deployment_settings.deployment_method
    else f"{shlex.quote(sys.executable)} -m fedbench"
)
# Copies a command's output to its log. It outlives the signals that tell a run to save and stop, so that the
# run can still say so.
LOGGED = """2>&1 | bash -c 'trap "" INT TERM USR1; exec tee "$0"'"""


wildcard_constraints:
    dataset=r"[A-Za-z0-9][A-Za-z0-9._+-]*",
    partition=r"[A-Za-z0-9][A-Za-z0-9._+-]*",
    model=r"[A-Za-z0-9][A-Za-z0-9._+-]*",
    method=r"[A-Za-z0-9][A-Za-z0-9._+-]*",
    experiment=r"[A-Za-z0-9][A-Za-z0-9._+-]*",
    figure=r"[A-Za-z0-9][A-Za-z0-9._+-]*",
    seed=r"0|[1-9][0-9]*",


def cell_of(wildcards):
    """The run that a target's name stands for."""
    return Cell(
        wildcards.dataset,
        wildcards.partition,
        wildcards.model,
        wildcards.method,
        int(wildcards.seed),
    )


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


def run_spec(wildcards):
    """What a run depends on."""
    return told(plan.run_digest, cell_of(wildcards))
