"""Options that several commands share: the config, what to compute with, names of entries.

Like the commands, they import what is heavy only when they are used.
"""

import functools
import math
import os
from pathlib import Path

import click

LISTED = ("methods", "channels", "datasets", "partitions", "models", "figures", "keys")


class Folder(click.Path):
    """A folder's name; an empty one (of an unset shell variable, most likely) would be the current folder."""

    def convert(self, value, param, ctx):
        if not str(value):
            self.fail("an empty name; give a folder, or . for the current one", param, ctx)
        return super().convert(value, param, ctx)


FOLDER = Folder(path_type=Path)


class Minutes(click.FloatRange):
    """A positive time; NaN, which is neither more nor less than any limit, would never be over."""

    name = "minutes"

    def convert(self, value, param, ctx):
        minutes = super().convert(value, param, ctx)
        if math.isnan(minutes):
            self.fail(f"{value!r} is not a number", param, ctx)
        return minutes


class Chunk(click.ParamType):
    """``auto`` is None; anything else has to be a positive number."""

    name = "number"

    def convert(self, value, param, ctx):
        if value == "auto":
            return None
        if value.isdecimal() and int(value) > 0:
            return int(value)
        return self.fail(f"{value!r} is neither 'auto' nor a positive number", param, ctx)


class Threads(click.ParamType):
    """A thread count that takes effect at once: numerical libraries read it when they are first imported."""

    name = "integer"

    def convert(self, value, param, ctx):
        # far more threads than any machine has processors end the process where they are started, without a word
        count = click.IntRange(min=1, max=1024).convert(value, param, ctx)
        for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[variable] = str(count)
        return count


def debug(ctx: click.Context, _param, value: bool) -> None:
    """Remember --debug for :func:`main`, wherever in the line it was given."""
    if value:
        ctx.find_root().obj["debug"] = True


def config_options(command):
    """Add the options that choose a config: `files`, `assignments` and `results`."""
    for option in (
        click.option("--debug", is_flag=True, expose_value=False, callback=debug, help="Show tracebacks."),
        click.option("--results", type=FOLDER, help="Results folder instead of the config's own."),
        click.option(
            "--set",
            "assignments",
            multiple=True,
            metavar="KEY=VALUE",
            help="Override one key of the config by its path, as in methods.fedsdg-gate-0.5.gate_value=0.6.",
        ),
        click.option("--config", "files", multiple=True, help="Config file; later ones win.  [default: config.yaml]"),
    ):
        command = option(command)
    return command


def plugin_options(command):
    """Add the option that names configs whose plug-ins from outside are to be known."""

    @click.option("--config", "files", multiple=True, help="Config file whose `plugins` count, too; none by default.")
    @functools.wraps(command)
    def wrapped(files, **rest):
        from fedbench.config.entries import File
        from fedbench.config.layers import merge, read
        from fedbench.options import parse
        from fedbench.registry import import_plugins

        if files:  # its entries need not be right: this is where to look up how they should be
            import_plugins(parse(File, merge(*(read(Path(file)) for file in files)), "config").plugins, "plugins")
        return command(**rest)

    return wrapped


def read_plan(files, assignments, results, **places):
    """The plan that the options of :func:`config_options` choose.

    `places` are the folders that the command is given besides, as :func:`fedbench.config.places.check` takes them.
    """
    from fedbench.config.places import check
    from fedbench.config.plan import Plan
    from fedbench.config.reading import load

    plan = Plan(load(files or ["config.yaml"], assignments), results, assignments)
    check(plan, **places)
    return plan


def configured(command):
    """Add the options that choose a config, and hand the command its plan."""

    @config_options
    @functools.wraps(command)
    def wrapped(files, assignments, results, **rest):
        places = {name: rest.get(name) for name in ("data_root", "checkpoints", "out")}
        return command(read_plan(files, assignments, results, **places), **rest)

    return wrapped


def from_environment(flag: str, variable: str, default, text: str, kind):
    """An option that an environment variable can set for a whole site or cluster job."""
    return click.option(
        flag, type=kind, envvar=variable, default=default, show_default=True, show_envvar=True, help=text
    )


data_root_option = from_environment(
    "--data-root", "FEDBENCH_DATA", Path("data"), "Folder of raw data sets and weights.", FOLDER
)
device_option = from_environment("--device", "FEDBENCH_DEVICE", "auto", "auto, cpu, cuda or cuda:N.", str)


def working(command):
    """Add the options that say what to compute with, and hand the command its workspace."""

    @configured
    @data_root_option
    @device_option
    @from_environment("--threads", "OMP_NUM_THREADS", os.cpu_count(), "CPU threads.", Threads())
    @functools.wraps(command)
    def wrapped(plan, data_root, device, threads, **rest):
        from fedbench.stages import Workspace

        return command(Workspace(plan, data_root, device, threads, functools.partial(click.echo, err=True)), **rest)

    return wrapped


def named(*kinds: str):
    """Add required options that name entries of the config."""

    def add(command):
        for kind in reversed(kinds):
            command = click.option(f"--{kind}", required=True, help=f"Name in the config's `{kind}s`.")(command)
        return command

    return add


resumable = click.option(
    "--checkpoints", type=FOLDER, default=Path("checkpoints"), show_default=True, help="Folder of all checkpoints."
)
seeded = click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
