"""Draw the figures that experiments ask for."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from fedbench.analysis.collect import ExperimentData, collect
from fedbench.analysis.figures._style import RC, shown_names
from fedbench.config.reading import Config, Entry
from fedbench.config.spec import Paths
from fedbench.errors import FedbenchError, nearest
from fedbench.files.io import write_bytes
from fedbench.files.picture import drawing, missing_letters
from fedbench.files.products import check_files
from fedbench.registry import FIGURES

# Who drew it, so that only such files are replaced; without dates, so that the same runs give the same files.
METADATA = {"png": {"Software": "fedbench"}, "pdf": {"Creator": "fedbench", "CreationDate": None}}


def plot(
    config: Config,
    paths: Paths,
    experiment: str | None = None,
    figure: str | None = None,
    require_all: bool = True,
    log: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Write the figures of one experiment, or of all, as PNG and PDF; `figure` restricts them to one.

    Only the runs of the experiments that are drawn are read.

    Parameters
    ----------
    require_all : raise if a run is missing; otherwise draw what is there
    log : told which runs are left out, and which letters no font has

    Returns
    -------
    The written files.

    Raises
    ------
    FedbenchError
        If a run is missing, none of an experiment's runs is finished, a figure lacks what it shows, or a file in its
        place was not made by fedbench.
    """
    if experiment is not None:
        config.find("experiments", experiment)
    names = list(config.experiments) if experiment is None else [experiment]
    written: list[Path] = []
    shown: dict[str, None] = {}
    for name in names:
        wanted = {one: plugin for one, plugin in config.figures(name).items() if figure in (None, one)}
        check_files(figure_path(paths, name, one, kind) for one in wanted for kind in METADATA)
        if wanted:
            alone = experiment is not None or require_all
            collection = collect(config, paths, name, require_one=alone)
            if require_all:
                collection.require_all()
            if collection.missing:
                log(f"{name}: left out: {collection.left_out}")
            if not collection.has(name):
                continue
            data = collection.experiment(name)
            shown |= dict.fromkeys(shown_names(data))
            written += [path for one, plugin in wanted.items() for path in draw(data, one, plugin, paths)]
    if written and (unknown := missing_letters(shown)):
        log(unknown)
    if figure is not None and not written:
        listed = dict.fromkeys(one for name in names for one in config.figures(name))
        where = f"experiment {experiment!r}" if experiment else f"config {config.name!r}"
        raise FedbenchError(f"{where} has no figure {figure!r}; {nearest(figure, listed)}")
    return written


def draw(data: ExperimentData, name: str, figure: Entry, paths: Paths) -> list[Path]:
    """Draw one figure of an experiment and write it as PNG and PDF."""
    contents = {}
    with drawing(RC, shown_names(data)):
        drawn = FIGURES[figure.common.figure].target(data, figure.options)
        for kind, metadata in METADATA.items():
            buffer = io.BytesIO()
            drawn.savefig(buffer, format=kind, metadata=metadata)
            contents[figure_path(paths, data.name, name, kind)] = buffer.getvalue()
    for path, content in contents.items():
        write_bytes(path, content)
    return list(contents)


def figure_path(paths: Paths, experiment: str, figure: str, kind: str = "png") -> Path:
    """Where a figure lies."""
    return paths.root / "figures" / experiment / f"{figure}.{kind}"


def require_figure(paths: Paths, experiment: str, figure: str) -> Path:
    """The PNG of a figure that has been drawn."""
    path = figure_path(paths, experiment, figure)
    if not path.is_file():
        raise FedbenchError(f"{path}: this figure is missing; run `fedbench plot --experiment {experiment}` first")
    return path
