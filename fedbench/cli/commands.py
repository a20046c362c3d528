"""The command line: each command reads its options, calls one function and says what it wrote.

Everything heavy (pydantic, numpy, torch) is imported inside the commands, so that ``fedbench --help`` is
instant and planning hundreds of cluster jobs costs nothing.
"""

import functools
import shutil
import sys

import click

from fedbench import __version__
from fedbench.cli.shared_options import (
    FOLDER,
    LISTED,
    Chunk,
    Minutes,
    config_options,
    configured,
    data_root_option,
    debug,
    device_option,
    named,
    plugin_options,
    read_plan,
    resumable,
    seeded,
    working,
)
from fedbench.cli.signals import Terminated, ending_in_order

EPILOG = """Exit status: 0 done; 1 an error, said in one line on standard error (--debug adds the traceback); 2 wrong
usage; 75 a run was told to stop (also by Ctrl-C) and saved its state, so starting it again continues; 130 Ctrl-C
anywhere else, or a second time; 143 told to stop where there is nothing to save."""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fedbench")
@click.option("--debug", is_flag=True, expose_value=False, callback=debug, help="Show tracebacks of errors.")
def cli():
    """Accuracy per transmitted byte of federated fine-tuning methods, and for whom."""


@cli.command("list")
@click.argument("kind", type=click.Choice(LISTED))
@click.option("--options", "with_options", is_flag=True, help="Show each entry's options.")
@click.option("--markdown", is_flag=True, help="Print Markdown tables.")
@plugin_options
def list_entries(kind, with_options, markdown):
    """Say what can be named in a config, with one line each; `keys` are all keys of configs."""
    from fedbench.cli.keys import shown

    click.echo(shown(kind, with_options, markdown))


@cli.command()
@configured
@click.option("--match", metavar="GLOB", help="Only runs whose name matches, as in '*/fedsdg/seed0'.")
@click.option("--experiment", help="Only runs of this experiment.")
def cells(plan, match, experiment):
    """Print the target name of every run that a config asks for; an impossible one is an error."""
    found = plan.match(match, experiment)
    for cell in found:
        click.echo(plan.target(cell))
    plan.check(found)


@cli.command()
@configured
@click.option("--match", metavar="GLOB", help="Only runs whose name matches, as in '*/fedsdg/seed0'.")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Show only these, as in --state failed.")
@click.option("--json", "as_json", is_flag=True, help="JSON, for scripts.")
@resumable
def status(plan, match, states, as_json, checkpoints):
    """Say how far every run is, what it takes on disk and how long it will still take."""
    from fedbench.cli import status_text
    from fedbench.status.status import STATES, look

    unknown = set(states) - set(STATES)
    if unknown:
        raise click.BadParameter(f"{min(unknown)!r} is none of {', '.join(STATES)}", param_hint="--state")
    found = look(plan, plan.match(match), checkpoints)
    shown = [status for status in found if not states or status.state in states]
    if as_json:
        click.echo(status_text.as_json(found, shown))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    click.echo("\n".join([status_text.table(shown, width), status_text.totals_line(found), *status_text.notes(found)]))


@cli.command()
@configured
def verify(plan):
    """Read every byte of a config's data, partitions, bases and runs; exit status 1 if any is damaged."""
    from collections import Counter

    from fedbench.status.verify import verify as verify_all

    counts, damaged = Counter(), 0
    for found in verify_all(plan):
        counts[found.kind] += 1
        damaged += found.damaged is not None
        if found.damaged:
            click.echo(f"damaged   {found.damaged}")
        elif found.outdated:
            click.echo(f"outdated  {found.folder}: {found.outdated}")
    checked = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items())
    click.echo(f"{checked or 'nothing is there'}: {damaged or 'none'} damaged")
    if damaged:
        sys.exit(1)


@cli.command()
@config_options
@data_root_option
@device_option
@resumable
@click.option(
    "--workflow-profile",
    "site",
    type=FOLDER,
    help="A site's settings for SLURM, laid over the slurm profile; what the cluster lacks then is missing, too.",
)
def doctor(files, assignments, results, data_root, device, checkpoints, site):
    """Say whether this machine can run a config, and what to do if not; exit status 1 if something is missing."""
    from fedbench.doctor import examine

    missing = 0
    read = functools.partial(read_plan, files, assignments, results, data_root=data_root, checkpoints=checkpoints)
    for finding in examine(read, data_root, checkpoints, device, site):
        click.echo(finding)
        missing += finding.level == "missing"
    if missing:
        sys.exit(1)


@cli.command()
@plugin_options
def schema():
    """Print the JSON schema of config files, for editors."""
    import json

    from fedbench.config.schema import schema as config_schema

    click.echo(json.dumps(config_schema(), indent=2))


@cli.command()
@working
@named("dataset")
def prepare(work, dataset):
    """Decode a data set, fix its splits and hash it."""
    work.make_store(work.plan.example(dataset))


@cli.command()
@working
@named("dataset", "partition")
@seeded
def partition(work, dataset, partition, seed):
    """Divide a data set over clients."""
    work.make_partition(work.plan.example(dataset, partition, seed=seed))


@cli.command()
@working
@named("dataset", "model")
@resumable
def pretrain(work, dataset, model, checkpoints):
    """Make the base model that every run of a model starts from."""
    from fedbench.site.gpus import own_gpu

    with own_gpu(work.device, work.say):
        work.make_base(work.plan.example(dataset, model=model), checkpoints)


@cli.command()
@working
@named("dataset", "partition", "model", "method")
@seeded
@click.option("--out", type=FOLDER, help="Run folder.  [default: below the results folder]")
@click.option(
    "--chunk", type=Chunk(), default="auto", show_default=True, help="Clients trained at once: a number, or auto."
)
@resumable
@click.option("--overwrite", is_flag=True, help="Replace a run folder that another spec has made.")
@click.option(
    "--time-limit",
    type=Minutes(min=0, min_open=True),
    help="Minutes until it saves and stops.  [default: shortly before the SLURM job around it ends]",
)
def train(work, dataset, partition, model, method, seed, out, chunk, checkpoints, overwrite, time_limit):
    """Run one cell, or continue it; missing inputs are made first."""
    from fedbench.config.spec import Cell
    from fedbench.site.gpus import own_gpu

    spec = work.plan.spec(Cell(dataset, partition, model, method, seed))
    for line in work.plan.unheeded(spec):
        work.say(f"note: {line}")
    seconds = None if time_limit is None else 60 * time_limit
    with own_gpu(work.device, work.say):
        folder = work.train(spec, out, checkpoints, chunk, overwrite, seconds)
    click.echo(folder / "summary.json")


@cli.command()
@configured
@click.option("--partial", is_flag=True, help="Use the runs that are there; tables without any are removed.")
def aggregate(plan, partial):
    """Write summary.csv and every experiment's tables."""
    from fedbench.analysis.tables import aggregate as write_all

    log = functools.partial(click.echo, err=True)
    show(write_all(plan.config, plan.paths, require_all=not partial, log=log))


@cli.command()
@configured
@click.option("--experiment", help="Only the figures of this experiment.")
@click.option("--figure", help="Only this figure.")
@click.option("--partial", is_flag=True, help="Use the runs that are there.")
def plot(plan, experiment, figure, partial):
    """Draw the figures that experiments ask for, as PNG and PDF."""
    from fedbench.analysis.plot import plot as draw_all

    log = functools.partial(click.echo, err=True)
    show(draw_all(plan.config, plan.paths, experiment, figure, not partial, log))


@cli.command()
@configured
def report(plan):
    """Write report.html: every experiment with its tables and figures on one page."""
    from fedbench.analysis.report import report as write_report

    show([write_report(plan.config, plan.paths)])


def show(files) -> None:
    """Print the names of written files."""
    for file in files:
        click.echo(file)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; what a user can mend ends in one line, what is a bug keeps its traceback."""
    state = {"debug": False, "interrupted": False}
    try:
        with ending_in_order(state):
            cli.main(arguments, prog_name="fedbench", standalone_mode=False, obj=state)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _interrupted()
    except Terminated:
        click.echo("stopped by SIGTERM; nothing half-written is left", err=True)
        sys.exit(143)
    except Exception as error:
        if state["interrupted"]:  # a library took the interruption for a failure of its own
            _interrupted()
        status = status_of(error)
        if state["debug"] or status is None:
            raise
        click.echo(f"error: {in_one_line(error)}" if status == 1 else str(error), err=True)
        sys.exit(status)


def _interrupted() -> None:
    click.echo("interrupted by Ctrl-C; start again to go on", err=True)
    sys.exit(130)


def status_of(error: Exception) -> int | None:
    """Exit status for an error whose message says what to do; None for a bug, which keeps its traceback."""
    from fedbench.engine.interrupt import Interrupted
    from fedbench.errors import FedbenchError

    if isinstance(error, Interrupted):
        return 75
    return 1 if isinstance(error, FedbenchError | OSError) or out_of_memory(error) else None


def out_of_memory(error: Exception) -> bool:
    """Whether this machine has not enough memory for what was asked for."""
    # torch has a class of its own for GPUs, and for the CPU only a message
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )


def in_one_line(error: Exception) -> str:
    """What went wrong and, where the message does not say so itself, what to do."""
    text = " ".join(str(error).split())
    if not out_of_memory(error):
        return text
    return f"out of memory ({text}); use a smaller model, dimension, batch_size or --chunk, or a machine with more"
