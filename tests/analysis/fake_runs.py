"""Worlds whose answers are known: configs, and what their runs report.

A method's accuracy rises from the base to its accuracy on a seed, exactly reached in the last round, over a hump where
it has one; validation is highest in an earlier round, so that the last, the best and the mean of the last rounds
differ. Clients lie around the mean, closer from round to round. :mod:`fake_engine` has the engine write the folders.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from math import exp, pi, sin
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from fake_engine import write_folder

from fedbench.config.entries import Experiment, Grid
from fedbench.config.reading import Config, parse_entry
from fedbench.config.spec import Cell, Paths, cells, resolve
from fedbench.engine.evaluate import Evaluation
from fedbench.files.io import read_sealed, write_bytes, write_json, write_sealed
from fedbench.randomness import stream

BASE = 0.5
SPREAD = 0.2
CLIENTS = 10
ROUNDS = 20
BLOCKS = 6
LESS = 0.05  # by how much shared weights are less accurate than a client's own
BEST = 0.7  # where validation is highest, as a share of all rounds

DIRICHLET = {"scheme": "dirichlet", "clients": CLIENTS, "alpha": 0.1}
CHANNELS = {
    "dense": {"codec": "dense"},
    "fp16": {"codec": "dense", "dtype": "fp16"},
    "int8": {"codec": "affine", "bits": 8},
    "int4": {"codec": "affine", "bits": 4},
    "int4-weights": {"codec": "affine", "bits": 4, "of": "weights"},
    "int4-channel": {"codec": "affine", "bits": 4, "range": "channel"},
}
Setting = tuple[str, str, str]


@dataclass(frozen=True)
class Recipe:
    """One method: its config entry and what its runs report."""

    entry: dict
    accuracy: tuple[float, ...]
    """In the last round, of each of the config's seeds."""
    up: int = 0
    down: int = 0
    gate: float | None = None
    diverged: frozenset[int] = frozenset()
    speed: float = 4.0
    newcomers: float | None = None
    """Held-out clients' accuracy less that of the others; none if nobody is held out."""
    domains: dict[str, float] = field(default_factory=dict)
    """Accuracy on each domain less the mean."""
    values: int | None = None
    """Numbers that travel, where they are not float32."""
    hump: float = 0.0
    """How far the middle of the run lies above a steady rise."""
    uneven: float = 0.0
    """How far the distribution over clients leans, more so from seed to seed."""
    growth: int = 0
    """Bytes by which a client's message grows from round to round, more so from seed to seed."""


@dataclass(frozen=True)
class World:
    """A config with its recipes.

    Attributes
    ----------
    accuracy : of single tasks, by method, instead of the recipes' own
    bases : of single tasks, for each seed, instead of BASE
    absent : cells that nobody has run
    """

    config: Config
    recipes: Mapping[str, Recipe]
    accuracy: Mapping[Setting, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    bases: Mapping[Setting, tuple[float, ...]] = field(default_factory=dict)
    absent: frozenset[Cell] = frozenset()


RECIPES = {
    "base": Recipe({"method": "base", "label": "Base"}, (0.5, 0.5, 0.5)),
    "local-only": Recipe({"method": "local-only", "label": "Local only"}, (0.60, 0.62, 0.61)),
    "head-only": Recipe({"method": "head-only", "label": "Head only"}, (0.58, 0.60, 0.59), 7_720, 7_720),
    "fa-lora": Recipe({"method": "fa-lora", "label": "FA+LoRA"}, (0.70, 0.72, 0.74), 593_296, 593_296),
    "fedsdg": Recipe({"method": "fedsdg", "label": "FedSDG"}, (0.75, 0.79, 0.80), 593_296, 593_296, gate=0.3),
    "fedavg": Recipe({"method": "fedavg", "label": "FedAvg"}, (0.71, 0.70, 0.72), 22_174_864, 22_174_864),
    "fedavg-top-1": Recipe(
        {"method": "fedavg", "channel": "dense", "label": "FedAvg & top_1%"}, (0.66, 0.69, 0.65), 443_498, 22_174_864
    ),
    "fedavg-sgd": Recipe(
        {"method": "fedavg", "label": "FedAvg (SGD)"},
        (0.66, 0.68, 0.67),
        22_174_864,
        22_174_864,
        diverged=frozenset({1}),
    ),
}


def make_world(
    recipes: dict[str, Recipe] | None = None,
    figures: tuple[str, ...] = (),
    partitions: dict[str, str | dict] | None = None,
    models: dict[str, dict] | None = None,
    seeds: tuple[int, ...] = (0, 1, 2),
    root="results",
    **experiment,
) -> World:
    """A config with one experiment, ``main``, over all recipes, partitions and models.

    A partition is its label, or a whole entry where its scheme, clients or alpha matter.
    """
    recipes = RECIPES if recipes is None else recipes
    partitions = partitions or {"dirichlet-0.1": "Dirichlet 0.1"}
    keys = {"title": "Main table", "question": "Which method is best?", "reference": "fa-lora", **experiment}
    models = models or {"vit": {"backbone": "small-vit", "label": "ViT"}}
    grid = Grid(dataset="digits", partition=list(partitions), model=list(models), method=list(recipes))
    config = Config(
        name="fake",
        results=root,
        seeds=seeds,
        training={"rounds": ROUNDS},
        datasets={"digits": parse_entry("datasets", "digits", {"source": "digits", "label": "Digits"})},
        partitions={
            name: parse_entry("partitions", name, DIRICHLET | {"label": entry} if isinstance(entry, str) else entry)
            for name, entry in partitions.items()
        },
        models={name: parse_entry("models", name, entry) for name, entry in models.items()},
        bases={},
        channels={name: parse_entry("channels", name, entry) for name, entry in CHANNELS.items()},
        methods={name: parse_entry("methods", name, recipe.entry) for name, recipe in recipes.items()},
        experiments={"main": Experiment(cells=[grid], figures=list(figures), **keys)},
    )
    return World(config, recipes)


_WRITTEN: dict[str, TemporaryDirectory] = {}


def write_runs(world: World, paths: Paths) -> None:
    """Write the folder of every run of the world's config, and of every partition.

    Many tests want the same runs under other experiments: they are written once and copied.
    """
    runs = replace(world, config=replace(world.config, experiments={}))
    key = repr((runs, cells(world.config)))
    if key not in _WRITTEN:
        _WRITTEN[key] = TemporaryDirectory(prefix="fedbench-fake-runs-")
        _write_runs(world, Paths(Path(_WRITTEN[key].name)))
    shutil.copytree(_WRITTEN[key].name, paths.root, dirs_exist_ok=True)


def _write_runs(world: World, paths: Paths) -> None:
    for cell in cells(world.config):
        if cell not in world.absent:
            write_run(world, cell, paths)
    for dataset, partition, seed in sorted({(cell.dataset, cell.partition, cell.seed) for cell in cells(world.config)}):
        write_partition(paths.partition(dataset, partition, seed), seed)


def write_run(world: World, cell: Cell, paths: Paths) -> None:
    """Write one run's folder."""
    write_folder(paths.run(cell), Course(world, cell))


def write_partition(folder: Path, seed: int) -> None:
    """Write partition.json and a small picture; every seed is another partition."""
    from PIL import Image

    counts = stream(seed, "fake partition").dirichlet(np.full(10, 0.3), CLIENTS) * 100
    statistics = {
        "jensen_shannon_mean": 0.51 + seed / 20,
        "effective_classes_mean": 3.2 + seed,
        "gini": 0.1 + seed / 20,
        "smallest": 1090 + seed,
        "largest": 2110 + seed,
    }
    facts = {"clients": CLIENTS, "statistics": statistics, "counts": counts.round(), "sha256": "1" * 64}
    write_json(folder / "partition.json", facts)
    buffer = BytesIO()
    Image.new("RGB", (64, 48), "white").save(buffer, "png")
    write_bytes(folder / "partition.png", buffer.getvalue())


def never_wrote(table) -> None:
    """Make a run one that never wrote this table."""
    summary = table.parent / "summary.json"
    values = read_sealed(summary)
    del values["files"][table.name]
    write_sealed(summary, values)
    table.unlink()


class Course:
    """What one run of a world reports, for :func:`fake_engine.write_folder`."""

    total = 5_543_716
    one_time_bytes = 21_000_000

    def __init__(self, world: World, cell: Cell):
        self.cell, self.recipe = cell, world.recipes[cell.method]
        self.spec = resolve(world.config, cell)
        self.place = world.config.seeds.index(cell.seed)
        task = (cell.dataset, cell.partition, cell.model)
        trains = self.recipe.entry["method"] != "base"
        self.base = world.bases[task][self.place] if task in world.bases else BASE
        accuracy = world.accuracy.get(task, {}).get(cell.method, self.recipe.accuracy)
        self.final = accuracy[self.place] if trains else self.base
        self.planned = self.spec.training.rounds if trains else 0
        self.diverged = trains and cell.seed in self.recipe.diverged
        self.rounds = self.planned // 2 if self.diverged else self.planned
        self.clients = world.config.partitions[cell.partition].common.clients
        self.held_out = [] if self.recipe.newcomers is None else [1, self.clients - 2]
        self.members = [client for client in range(self.clients) if client not in self.held_out]
        self.domain_names = tuple(self.recipe.domains) or ("all",)
        self.communicates = self.recipe.up > 0
        self.shared = self.recipe.values or self.recipe.up // 4
        self.private = 0 if self.recipe.gate is None else 2 * BLOCKS
        self.seconds = 12.5 + self.place + len(cell.path) / 100

    def mean(self, number: int) -> float:
        """Personalised accuracy, mean over the federation's clients."""
        if not number or not self.planned:
            return self.base
        share = (1 - exp(-number / self.recipe.speed)) / (1 - exp(-self.planned / self.recipe.speed))
        hump = self.recipe.hump * sin(pi * number / self.planned) if number < self.planned else 0.0
        return self.base + (self.final - self.base) * share + hump

    def evaluation(self, number: int) -> Evaluation:
        """After a round; before the first one, everybody has the base."""
        mean, less = self.mean(number), LESS if number else 0.0
        left = (self.planned - number) / max(self.planned, 1)
        line = np.arange(len(self.members)) / (len(self.members) - 1) - 0.5
        leaning = self.recipe.uneven * (1 + self.place / 4) * (line**2 - np.mean(line**2))
        personal = np.empty(self.clients)
        personal[self.members] = mean + (1 + left) * (SPREAD * line + leaning)
        personal[self.held_out] = mean + (self.recipe.newcomers or 0.0) + np.linspace(-0.02, 0.02, len(self.held_out))
        domains = np.array(list(self.recipe.domains.values()) or [0.0])
        by_domain = mean + domains + (0.02 * left * np.arange(len(domains)) if number else 0.0)
        return Evaluation(
            personal,
            personal - 0.03 - 0.005 * abs(number - round(BEST * self.planned)),
            personal - less,
            by_domain,
            by_domain - less,
            mean - LESS,
            1 / (1 + number),
            self.held_out,
        )

    def messages(self, number: int) -> dict[int, tuple[int, int]]:
        """Bytes up and down of the cohort, whose members take turns."""
        size = max(1, round(self.spec.training.participation * len(self.members)))
        cohort = sorted(self.members[(number * size + turn) % len(self.members)] for turn in range(size))
        more = self.recipe.growth * (number - 1) * (1 + self.place)
        return dict.fromkeys(cohort, (self.recipe.up + more, self.recipe.down + 2 * more))

    def diagnostics(self, number: int) -> dict[str, float]:
        """How the gates move, a little faster from seed to seed."""
        if self.recipe.gate is None or (self.diverged and number == self.rounds):
            return {}
        gate = self.recipe.gate * (1 + self.place / 50)
        return {"gate_drift": gate / number, "gate_gradient_variance": 1e-4 * gate / number**2}

    def gates(self) -> list[dict]:
        """Open further with depth, and half as far in attention."""
        if self.recipe.gate is None:
            return []
        rows = []
        for client in self.members:
            for block in range(BLOCKS):
                for site, factor in (("attention", 0.5), ("ffn", 1.0)):
                    spread = stream(self.cell.seed, "fake gates", client, block, site).normal(0, 0.03)
                    level = self.recipe.gate * factor * (0.4 + 1.2 * block / BLOCKS)
                    value = float(np.clip(level + spread, 0.001, 0.999))
                    rows.append({"client": client, "block": block, "site": site, "value": value})
        return rows
