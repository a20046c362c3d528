"""What a config asks for, looked up by the names that appear in target paths.

The workflow's rules and the command line both ask a :class:`Plan` which spec stands behind a name, so
that a target means the same in both. Nothing here imports torch: planning must stay cheap.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from fedbench.config import papers
from fedbench.config.entries import Experiment
from fedbench.config.figures import check_figures
from fedbench.config.given import typed
from fedbench.config.layers import merge, override, read
from fedbench.config.reading import Config, validate
from fedbench.config.spec import Cell, Paths, RunSpec, cells, digest, find_cell, resolve, seeded
from fedbench.errors import FedbenchError, nearest
from fedbench.files import products
from fedbench.files.io import write_text
from fedbench.registry import import_plugins

RUN_FILES = ("rounds.csv", "clients.csv", "summary.json")


class Plan:
    """The cells of a config, their specs and their places.

    Parameters
    ----------
    config : a validated config
    root : results folder; the config's own where not given
    assignments : the overrides that `config` was loaded with, for :meth:`unheeded`
    """

    def __init__(self, config: Config, root: Path | None = None, assignments: Iterable[str] = ()):
        self.config = config
        self.assignments = tuple(assignments)
        self.paths = Paths(Path(root) if root else config.results)
        self.spec = cache(self._resolve)
        check_figures(config)

    def _resolve(self, cell: Cell) -> RunSpec:
        return resolve(self.config, cell)

    def unheeded(self, spec: RunSpec) -> list[str]:
        """What was assigned to ``training`` and does not reach this run, because one of its entries says otherwise."""
        lines = []
        parts = {"datasets": spec.dataset, "partitions": spec.partition, "models": spec.model, "methods": spec.method}
        for assignment in self.assignments:
            for key in override({}, [assignment]).get("training") or ():
                for section, plugin in reversed(parts.items()):
                    own = getattr(plugin.common, "training", {})
                    if key in own:
                        where = f"{section}.{plugin.name}.training.{key}"
                        lines.append(f"--set {assignment}: {spec.cell.path} has {where}={own[key]}, which comes later")
                        break
        return lines

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Every run, each once, in the order of first mention."""
        return tuple(cells(self.config))

    @cached_property
    def _examples(self) -> dict[tuple[str, str | None, str | None], Cell]:
        first: dict[tuple[str, str | None, str | None], Cell] = {}
        for cell in self.cells:
            for key in (
                (cell.dataset, None, None),
                (cell.dataset, cell.partition, None),
                (cell.dataset, None, cell.model),
            ):
                first.setdefault(key, cell)
        return first

    def example(
        self, dataset: str, partition: str | None = None, model: str | None = None, seed: int | None = None
    ) -> RunSpec:
        """The spec of some run on this data set (and partition, or model): its inputs are the same for all of them.

        Raises
        ------
        FedbenchError
            If a name does not exist, or no experiment combines them.
        """
        self.config.find("datasets", dataset)
        names = [f"dataset {dataset!r}"]
        for section, name in (("partitions", partition), ("models", model)):
            if name is not None:
                self.config.find(section, name)
                names.append(f"{section.removesuffix('s')} {name!r}")
        cell = self._examples.get((dataset, partition, model))
        if cell is None:
            raise FedbenchError(
                f"no experiment of config {self.config.name!r} uses {' with '.join(names)}; add a cell to an "
                "experiment, or use fedbench train, which makes its own inputs"
            )
        return self.spec(cell if seed is None else replace(cell, seed=seed))

    def data_digest(self, dataset: str) -> str:
        """Identity of what a prepared data set depends on."""
        return digest(self.example(dataset).data_spec)

    def partition_digest(self, dataset: str, partition: str, seed: int) -> str:
        """Identity of what a partition depends on."""
        return digest(self.example(dataset, partition, seed=seed).partition_spec)

    def base_digest(self, dataset: str, model: str) -> str:
        """Identity of what a base model depends on."""
        return digest(self.example(dataset, model=model).base_spec)

    def run_digest(self, cell: Cell) -> str:
        """Identity of what a run depends on; a cell that no experiment asks for is an error."""
        known = cell if cell in self._known else find_cell(self.config, cell)
        return seeded(self._seedless(replace(known, seed=0)), cell.seed)

    @cache  # noqa: B019 (a plan lives as long as its process)
    def _seedless(self, cell: Cell) -> str:
        return self.spec(cell).seedless_digest  # resolved and coded once for all seeds: thousands of runs are planned

    @cached_property
    def _known(self) -> frozenset[Cell]:
        return frozenset(self.cells)

    def experiment_digest(self, experiment: str) -> str:
        """Identity of how an experiment is shown: its own keys and every label."""
        return digest([asdict(self.config.find("experiments", experiment)), self.labels])

    def table_digest(self, experiment: str) -> str:
        """Identity of what an experiment's tables show besides its runs."""
        paper = self.experiments[experiment].paper
        return digest([self.experiment_digest(experiment), None if paper is None else papers.digest(paper)])

    def figure_digest(self, experiment: str, figure: str) -> str:
        """Identity of how one of an experiment's figures is shown; a figure that it does not list is an error."""
        shown = self.experiment_digest(experiment)
        listed = self.config.figures(experiment)
        if figure not in listed:
            raise FedbenchError(f"experiment {experiment!r} has no figure {figure!r}; {nearest(figure, listed)}")
        source = listed[figure].source_sha256
        return shown if source is None else digest([shown, source])

    @cached_property
    def labels(self) -> dict[str, str | None]:
        """Labels of all entries, by section and name."""
        sections = ("datasets", "partitions", "models", "channels", "methods")
        return {
            f"{section}.{name}": plugin.common.label
            for section in sections
            for name, plugin in getattr(self.config, section).items()
        }

    @property
    def experiments(self) -> Mapping[str, Experiment]:
        return self.config.experiments

    def experiment_cells(self, experiment: str) -> list[Cell]:
        """The runs of one experiment."""
        return cells(self.config, experiment)

    def target(self, cell: Cell) -> str:
        """The file name that makes Snakemake produce a run."""
        return f"{self._runs}/{cell.path}/summary.json"  # not joined as paths: asked for thousands of times

    @cached_property
    def _runs(self) -> str:
        return str(self.paths.root / "runs")

    def match(self, pattern: str | None, experiment: str | None = None) -> list[Cell]:
        """The runs whose name (or target) matches a glob.

        No match is an error: Snakemake takes an empty list of targets for all of them.
        """
        chosen = list(self.cells) if experiment is None else self.experiment_cells(experiment)
        if pattern is None:
            return chosen
        found = [cell for cell in chosen if fnmatchcase(cell.path, pattern) or fnmatchcase(self.target(cell), pattern)]
        if not found:
            names = {name for cell in chosen for name in self.target(cell).split("/")}
            wrong = [part for part in pattern.split("/") if not any(fnmatchcase(name, part) for name in names)]
            hint = nearest("".join(wrong[:1]).replace("*", ""), names, otherwise="`fedbench cells` lists the runs")
            raise FedbenchError(f"no run matches {pattern!r} in config {self.config.name!r}; {hint}")
        return found

    def check(self, chosen: Iterable[Cell]) -> None:
        """Raise what makes one of these runs impossible."""
        for cell in chosen:
            self.spec(replace(cell, seed=0))  # seeds have no part in it

    def no_such_target(self, target: str, fixed: Iterable[str]) -> None:
        """Raise the error for a target that nothing makes, naming the nearest one that exists.

        Parameters
        ----------
        target : what the user typed
        fixed : files that do not follow from the cells
        """
        lists = "`fedbench cells` lists the runs, `snakemake --list` the rules"  # thousands of names help nobody
        hint = nearest(target, {*self.files(), *fixed}, otherwise=lists)
        raise FedbenchError(f"no target named {target!r} in config {self.config.name!r}; {hint}")

    def check_made(self, fixed: Iterable[str]) -> None:
        """Raise if files that a workflow would replace are there and were not made by fedbench.

        Snakemake deletes the outputs of a job before it starts, so the job itself would look too late.

        Parameters
        ----------
        fixed : files that do not follow from the cells
        """
        products.check_files(fixed)
        made: dict[Path, products.Product] = {}
        for cell in self.cells:
            made[self.paths.data(cell.dataset)] = products.DATA
            made[self.paths.partition(cell.dataset, cell.partition, cell.seed)] = products.PARTITION
            made[self.paths.base(cell.dataset, cell.model)] = products.BASE
            made[self.paths.run(cell)] = products.RUN
        for folder, product in made.items():
            product.check_files(folder)

    def files(self) -> Iterable[str]:
        """Every file that the runs and their inputs consist of."""
        for cell in self.cells:
            yield from (str(self.paths.run(cell) / name) for name in RUN_FILES)
            yield from (str(self.paths.data(cell.dataset) / name) for name in products.DATA.files)
            partition = self.paths.partition(cell.dataset, cell.partition, cell.seed)
            yield from (str(partition / name) for name in products.PARTITION.files)
            yield from (str(self.paths.base(cell.dataset, cell.model) / name) for name in products.BASE.files)


def from_workflow(files: Iterable[Path | str], given: Mapping[str, Any]) -> tuple[Config, list[str]]:
    """Read the config as Snakemake was told to: files, then ``--config key=value``.

    Parameters
    ----------
    files : config files, later ones win
    given : what Snakemake parsed from ``--config``; it leaves nested values as text, see :mod:`fedbench.config.given`

    Returns
    -------
    config, and the same overrides as ``key=value`` assignments for ``fedbench --set``

    Raises
    ------
    FedbenchError
        If a target stands where Snakemake takes it for a second config file, besides what
        :func:`fedbench.config.reading.load` complains about.
    """
    files = list(files)
    for file in files[1:]:
        if Path(file).suffix not in (".yaml", ".yml"):
            raise FedbenchError(f"{file}: read as a config file, since it follows --configfile; put targets first")
    known = merge(*(read(Path(file)) for file in files))
    if isinstance(plugins := known.get("plugins"), list):  # what lies outside says which of its options are text
        import_plugins([name for name in plugins if isinstance(name, str)], "plugins")
    assignments = [f"{key}={_as_json(key, value)}" for key, value in typed(given, known).items()]
    return validate(override(known, assignments)), assignments


def write_given(given: Mapping[str, Any], path: Path) -> Path:
    """Write a config that another workflow hands over to its module, so that commands can read it.

    Parameters
    ----------
    given : the module's ``config:``, as Snakemake has read it, with 1e-3 as text
    path : the file, replaced if it is there

    Returns
    -------
    path

    Raises
    ------
    FedbenchError
        If nothing was handed over.
    """
    if not given:
        raise FedbenchError("this module has no config: give it one, `config: config` or a part of that")
    write_text(path, json.dumps(typed(given, {}), indent=1, default=str) + "\n")
    return path


def _as_json(key: str, value: Any) -> str:
    try:  # letters stay letters: YAML reads JSON, but not its escapes of letters beyond 16 bits
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise FedbenchError(f"--config {key}: {value} is no value that a config can have") from None
