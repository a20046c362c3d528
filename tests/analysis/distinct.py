"""A world in which every number differs: tasks that share two of three axes, seeds that not every method has.

What its tables and figures must say is computed here from the run folders' files alone, by other means than theirs.
"""

import csv
from dataclasses import replace
from functools import cache
from math import nan, sqrt
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from fake_runs import DIRICHLET, Recipe, World, make_world
from scipy import stats

from fedbench.config.entries import Experiment, Grid
from fedbench.config.reading import parse_entry
from fedbench.config.spec import Cell, Paths
from fedbench.files.io import read_json

SEEDS = (4, 1, 3, 2)
A, B, C, D = TASKS = (
    ("digits", "skewed", "vit"),
    ("digits", "even", "vit"),
    ("digits", "skewed", "deep"),
    ("numerals", "skewed", "vit"),
)
PARTITIONS = {
    "skewed": {**DIRICHLET, "label": "Skewed", "training": {"held_out": 0.2, "held_out_epochs": 3}},
    "even": {
        "scheme": "iid",
        "clients": 6,
        "label": "Even",
        "training": {"participation": 0.5, "held_out": 0.3, "held_out_epochs": 5},
    },
}
MODELS = {"vit": {"backbone": "small-vit", "label": "ViT"}, "deep": {"backbone": "small-vit", "label": "Deep ViT"}}


def _recipe(method: str, label: str, newcomers: float, domains: tuple[float, float], **keys) -> Recipe:
    """`keys` that a method does not know are its recipe's."""
    known = set(Recipe.__dataclass_fields__)
    entry = {"method": method, "label": label} | {key: value for key, value in keys.items() if key not in known}
    names = dict(zip(("art", "photo"), domains, strict=True))
    return Recipe(entry, (), newcomers=newcomers, domains=names, **{k: v for k, v in keys.items() if k in known})


RECIPES = {
    "base": _recipe("base", "Base", -0.013, (-0.07, 0.041)),
    "alone": _recipe("local-only", "Alone", -0.21, (-0.02, 0.017), hump=0.03, uneven=0.11),
    "ref": _recipe(
        "fa-lora", "Reference", -0.062, (-0.05, 0.033), up=20_000, down=31_000, growth=170, hump=0.05, uneven=0.14
    ),
    "gated": _recipe(
        *("fedsdg", "Gated", -0.117, (0.021, -0.039)),
        up=24_000, down=33_000, growth=230, hump=0.16, uneven=-0.12, gate=0.3, speed=3.0,
    ),
    "whole": _recipe(
        *("fedavg", "Whole", -0.034, (0.008, 0.012)),
        up=3_100_000, down=3_500_000, growth=1_900, hump=0.04, uneven=0.19, diverged=frozenset({3}),
    ),
    "lost": _recipe("fedprox", "Lost", 0.003, (0.001, 0.002), up=5_000, down=7_000, growth=90, uneven=0.05),
    "pooled": _recipe("centralised", "Pooled", -0.011, (-0.012, 0.014), hump=0.02, uneven=0.07),
}  # fmt: skip

# In the order of SEEDS: 4, 1, 3, 2.
ACCURACY = {
    A: {
        "alone": (0.611, 0.634, 0.597, 0.622),
        "ref": (0.702, 0.731, 0.688, 0.743),
        "gated": (0.748, 0.772, 0.765, 0.751),
        "whole": (0.713, 0.699, 0.726, 0.741),
        "lost": (0.091, 0.231, 0.087, 0.219),
        "pooled": (0.812, 0.823, 0.797, 0.834),
    },
    B: {
        "alone": (0.561, 0.574, 0.583, 0.547),
        "ref": (0.679, 0.651, 0.668, 0.643),
        "gated": (0.671, 0.664, 0.694, 0.655),
        "whole": (0.701, 0.717, 0.692, 0.728),
        "lost": (0.31, 0.094, 0.283, 0.271),
        "pooled": (0.781, 0.774, 0.793, 0.802),
    },
    C: {
        "alone": (0.655, 0.641, 0.672, 0.629),
        "ref": (0.753, 0.739, 0.761, 0.722),
        "gated": (0.789, 0.801, 0.776, 0.813),
        "whole": (0.733, 0.746, 0.758, 0.719),
        "lost": (0.32, 0.337, 0.293, 0.344),
        "pooled": (0.852, 0.841, 0.863, 0.838),
    },
    D: {
        "alone": (0.525, 0.538, 0.514, 0.543),
        "ref": (0.602, 0.615, 0.591, 0.624),
        "gated": (0.607, 0.589, 0.631, 0.618),
        "whole": (0.633, 0.619, 0.642, 0.627),
        "lost": (0.22, 0.207, 0.233, 0.198),
        "pooled": (0.702, 0.713, 0.691, 0.718),
    },
}
BASES = {
    A: (0.501, 0.513, 0.492, 0.507),
    B: (0.451, 0.462, 0.447, 0.455),
    C: (0.531, 0.543, 0.527, 0.538),
    D: (0.411, 0.402, 0.417, 0.406),
}
ABSENT = frozenset({Cell(*A, "gated", 4), Cell(*A, "pooled", 1), Cell(*C, "base", 3), Cell(*D, "ref", 1)})


def make_distinct(figures=(), **experiment) -> World:
    """The world, whose experiment ``main`` has the tasks A to D."""
    world = make_world(
        RECIPES, partitions=PARTITIONS, models=MODELS, seeds=SEEDS, reference="ref", figures=figures, **experiment
    )
    config = world.config
    config.training.update(rounds=12, evaluate_every=2)
    config.datasets["numerals"] = parse_entry("datasets", "numerals", {"source": "digits", "label": "Numerals"})
    old = config.experiments["main"]
    keys = {name: getattr(old, name) for name in type(old).__dataclass_fields__} | {"cells": [
        Grid(dataset=dataset, partition=partition, model=model, method=list(RECIPES))
        for dataset, partition, model in TASKS
    ]}  # fmt: skip
    config.experiments["main"] = Experiment(**keys)
    return replace(world, accuracy=ACCURACY, bases=BASES, absent=ABSENT)


def tell(value: str) -> float | str | None:
    """A field of a CSV file."""
    try:
        return float(value) if value else None
    except ValueError:
        return value


class Run:
    """What one run's folder says."""

    def __init__(self, folder: Path, seed: int):
        self.seed, self.summary = seed, read_json(folder / "summary.json")
        self.rounds, self.clients, self.domains, self.gates = (
            [{key: tell(value) for key, value in row.items()} for row in csv.DictReader(path.open())]
            if (path := folder / f"{name}.csv").exists() else []
            for name in ("rounds", "clients", "domains", "gates")
        )  # fmt: skip

    def headline(self, metric: str, selection: str) -> float:
        found = self.summary["selections"][selection]
        return found["personal"]["mean"] if metric == "personal" else found["global"]

    def evaluated(self, column: str) -> dict[int, tuple[float, float]]:
        """Round -> (accuracy, bytes so far)."""
        return {
            int(row["round"]): (row[column], row["cumulative_bytes"]) for row in self.rounds if row[column] is not None
        }


@cache
def runs(paths: Paths, task, method: str, sound: bool = False) -> list[Run]:
    """The runs that are there, of seeds 1 to 4; with `sound` those that did not diverge."""
    cells = [Cell(*task, method, seed) for seed in sorted(SEEDS)]
    found = [Run(paths.run(cell), cell.seed) for cell in cells if paths.run(cell).exists()]
    return [run for run in found if not (sound and run.summary["diverged"])]


def about(values) -> dict[str, float]:
    """n, mean, sample std and 95 % interval."""
    values = list(values)
    half = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / sqrt(len(values)) if len(values) > 1 else nan
    middle = mean(values)
    spread = stdev(values) if len(values) > 1 else nan
    return {"n": len(values), "mean": middle, "std": spread, "low": middle - half, "high": middle + half}


def trajectory(some: list[Run], column: str) -> dict[int, tuple[list[float], float]]:
    """Round -> (accuracies of the seeds, mean bytes so far), for rounds that all have evaluated."""
    courses = [run.evaluated(column) for run in some]
    common = sorted(set.intersection(*map(set, courses)))
    return {
        number: ([course[number][0] for course in courses], mean(course[number][1] for course in courses))
        for number in common
    }


def to_target(some: list[Run], column: str, target: float) -> tuple[float, float]:
    """First round whose mean accuracy reaches the target, and the bytes by then."""
    course = trajectory(some, column)
    for number, (accuracies, sent) in course.items():
        if mean(accuracies) >= target and (number or len(course) == 1):
            return number, sent
    return nan, nan


def within(some: list[Run], column: str, budget: float) -> tuple[list[float], list[float]]:
    """(accuracy, bytes) of each seed at its last evaluation within a budget; round 0 where there is no other."""
    found = []
    for run in some:
        course = run.evaluated(column)
        trained = {number: pair for number, pair in course.items() if number or len(run.rounds) == 1}
        affordable = [trained[number] for number in sorted(trained) if trained[number][1] <= budget]
        found += affordable[-1:]
    return [accuracy for accuracy, _ in found], [sent for _, sent in found]


def adjusted(p_values: list[float]) -> list[float]:
    """Holm's adjustment, from its definition."""
    tested = sorted(p for p in p_values if p == p)
    return [
        max(min(1.0, (len(tested) - i) * q) for i, q in enumerate(tested) if q <= p) if p == p else nan
        for p in p_values
    ]


def beaten(point: tuple[float, float], others: list[tuple[float, float]]) -> bool:
    """Whether another (cost, value) costs at most as much, reaches at least as much, and is not the same."""
    return any(cost <= point[0] and value >= point[1] and (cost, value) != point for cost, value in others)


def quantiles(values) -> list[float]:
    """Worst, P10, P50 and P90."""
    return [min(values), *(float(np.percentile(list(values), q)) for q in (10, 50, 90))]
