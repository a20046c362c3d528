"""Run folders in the real format, written by a process whose answers are known.

A method's accuracy on seed s rises from the base to ``Recipe.accuracy[s]``, exactly reached in the last round;
clients lie evenly around the mean, `SPREAD` apart from the first to the last. Bytes per client and round are given.
"""

from dataclasses import dataclass, field
from io import BytesIO
from math import exp
from pathlib import Path

import numpy as np

from fedbench.config import Config, parse_entry
from fedbench.entries import Experiment, Grid
from fedbench.io import read_sealed, write_bytes, write_csv, write_json, write_sealed
from fedbench.randomness import stream
from fedbench.spec import Paths, cells, resolve

BASE = 0.5
SPREAD = 0.2
CLIENTS = 10
ROUNDS = 20
BLOCKS = 6

ROUND_COLUMNS = [
    *("round", "cohort", "train_loss", "lr", "uplink_bytes", "downlink_bytes"),
    *(
        "cumulative_bytes",
        "uplink_bytes_per_client",
        "downlink_bytes_per_client",
        "val_accuracy",
        "test_accuracy_mean",
        "test_accuracy_std",
    ),
    *(
        "test_accuracy_p10",
        "test_accuracy_p50",
        "test_accuracy_p90",
        "test_accuracy_worst",
        "global_accuracy",
        "global_loss",
    ),
    *("gate_mean", "gate_attention_mean", "gate_ffn_mean", "gate_drift", "gate_gradient_variance"),
    *("update_norm", "identity_error", "diverged"),
    *("seconds_train", "seconds_eval"),
]
CLIENT_COLUMNS = [
    *("client", "domain", "n_train", "n_val", "n_test", "participations", "held_out"),
    *("accuracy_personal", "accuracy_global", "accuracy_base", "accuracy_personal_best", "accuracy_personal_tail"),
]


DOMAIN_COLUMNS = [
    *("domain", "clients", "n_test"),
    *("accuracy_personal", "accuracy_global", "accuracy_base", "accuracy_personal_best", "accuracy_personal_tail"),
]
NEWCOMERS = 2  # held-out clients of a run that has any, besides its CLIENTS
DIRICHLET = {"scheme": "dirichlet", "clients": CLIENTS, "alpha": 0.1}
CHANNELS = {
    "dense": {"codec": "dense"},
    "fp16": {"codec": "dense", "dtype": "fp16"},
    "int8": {"codec": "affine", "bits": 8},
    "int4": {"codec": "affine", "bits": 4},
    "int4-weights": {"codec": "affine", "bits": 4, "of": "weights"},
    "int4-channel": {"codec": "affine", "bits": 4, "range": "channel"},
}


@dataclass(frozen=True)
class Recipe:
    """One method: its config entry and what its runs report."""

    entry: dict
    accuracy: tuple[float, ...]
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


@dataclass(frozen=True)
class World:
    """A config with its recipes; `shift` moves the accuracies of single tasks."""

    config: Config
    recipes: dict[str, Recipe]
    shift: dict[tuple[str, str, str], float] = field(default_factory=dict)


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


def write_runs(world: World, paths: Paths, noise: float = 0.0) -> None:
    """Write the folder of every run of the world's config."""
    for cell in cells(world.config):
        write_run(world, cell, paths, noise)
    for dataset, partition, seed in sorted({(cell.dataset, cell.partition, cell.seed) for cell in cells(world.config)}):
        write_partition(paths.partition(dataset, partition, seed), seed)


def write_partition(folder: Path, seed: int) -> None:
    """Write partition.json and a small picture."""
    from PIL import Image

    counts = stream(seed, "fake partition").dirichlet(np.full(10, 0.3), CLIENTS) * 100
    statistics = {
        "jensen_shannon_mean": 0.51,
        "effective_classes_mean": 3.2,
        "gini": 0.1,
        "smallest": 90,
        "largest": 110,
    }
    facts = {"clients": CLIENTS, "statistics": statistics, "counts": counts.round(), "sha256": "1" * 64}
    write_json(folder / "partition.json", facts)
    buffer = BytesIO()
    Image.new("RGB", (64, 48), "white").save(buffer, "png")
    write_bytes(folder / "partition.png", buffer.getvalue())


def write_run(world: World, cell, paths: Paths, noise: float = 0.0) -> None:
    """Write one run's folder."""
    recipe = world.recipes[cell.method]
    place = world.config.seeds.index(cell.seed)
    shift = world.shift.get((cell.dataset, cell.partition, cell.model), 0.0)
    final = recipe.accuracy[place] + (shift if recipe.entry["method"] != "base" else 0.0)
    diverged = cell.seed in recipe.diverged
    count = world.config.partitions[cell.partition].entry.clients
    rounds = _rounds(recipe, final, diverged, noise, cell, count)
    clients = _clients(final, count, recipe.newcomers)
    folder = paths.run(cell)
    tables = {"rounds.csv": (ROUND_COLUMNS, rounds), "clients.csv": (CLIENT_COLUMNS, clients)}
    if recipe.gate is not None:
        tables["gates.csv"] = (("client", "block", "site", "value"), _gates(recipe.gate, cell))
    if recipe.domains:
        tables["domains.csv"] = (DOMAIN_COLUMNS, _domains(final, recipe.domains))
    files = {name: write_csv(folder / name, columns, rows) for name, (columns, rows) in tables.items()}
    summary = _summary(world, cell, recipe, rounds, clients, diverged)
    write_sealed(folder / "summary.json", summary | {"files": files})


def never_wrote(table) -> None:
    """Make a run one that never wrote this table."""
    summary = table.parent / "summary.json"
    values = read_sealed(summary)
    del values["files"][table.name]
    write_sealed(summary, values)
    table.unlink()


def _rounds(recipe: Recipe, final: float, diverged: bool, noise: float, cell, clients: int) -> list[dict]:
    trains = recipe.entry["method"] != "base"
    last = (ROUNDS // 2 if diverged else ROUNDS) if trains else 0
    draws = stream(cell.seed, "fake rounds", cell.path).normal(0, noise, ROUNDS + 1)
    rows, cumulative = [], 0
    for number in range(last + 1):
        share = (1 - exp(-number / recipe.speed)) / (1 - exp(-ROUNDS / recipe.speed)) if trains else 1.0
        accuracy = BASE + (final - BASE) * share + (draws[number] if 0 < number < ROUNDS else 0)
        sent = clients if number else 0
        cumulative += sent * (recipe.up + recipe.down)
        bad = diverged and number == last
        rows.append(
            {
                "round": number,
                "cohort": clients if number else None,
                "train_loss": None if not number or bad else 2 * exp(-number / 6),
                "lr": 0.001 if number else None,
                "uplink_bytes": sent * recipe.up,
                "downlink_bytes": sent * recipe.down,
                "cumulative_bytes": cumulative,
                "uplink_bytes_per_client": recipe.up if number else 0,
                "downlink_bytes_per_client": recipe.down if number else 0,
                "val_accuracy": None if bad else accuracy,
                "test_accuracy_mean": None if bad else accuracy,
                "global_accuracy": None if bad else accuracy - 0.05,
                "diverged": bad,
                "seconds_train": 1.0,
                **(_gate_dynamics(recipe.gate, number) if recipe.gate is not None and number and not bad else {}),
            }
        )
    return rows


def _gate_dynamics(gate: float, number: int) -> dict[str, float]:
    return {"gate_drift": gate / number, "gate_gradient_variance": 1e-4 * gate / number**2}


def _domains(final: float, offsets: dict[str, float]) -> list[dict]:
    return [
        {
            "domain": name,
            "clients": CLIENTS,
            "n_test": 50,
            "accuracy_personal": final + offset,
            "accuracy_global": final + offset - 0.05,
            "accuracy_base": BASE + offset,
            "accuracy_personal_best": final + offset,
            "accuracy_personal_tail": final + offset,
        }
        for name, offset in offsets.items()
    ]


def _clients(final: float, count: int, newcomers: float | None) -> list[dict]:
    offsets = list((np.arange(count) / (count - 1) - 0.5) * SPREAD)
    offsets += [] if newcomers is None else [newcomers] * NEWCOMERS
    return [
        {
            "client": client,
            "domain": 0,
            "n_train": 100,
            "n_val": 20,
            "n_test": 25,
            "participations": 2 * (client < count),
            "held_out": int(client >= count),
            "accuracy_personal": final + offset,
            "accuracy_global": final + offset - 0.05,
            "accuracy_base": BASE,
            "accuracy_personal_best": final + offset,
            "accuracy_personal_tail": final + offset,
        }
        for client, offset in enumerate(offsets)
    ]


def _gates(level: float, cell) -> list[dict]:
    rows = []
    for client in range(CLIENTS):
        for block in range(BLOCKS):
            for site, factor in (("attention", 0.5), ("ffn", 1.0)):
                spread = stream(cell.seed, "fake gates", client, block, site).normal(0, 0.03)
                value = float(np.clip(level * factor * (0.4 + 1.2 * block / BLOCKS) + spread, 0.001, 0.999))
                rows.append({"client": client, "block": block, "site": site, "value": value})
    return rows


def _summary(world: World, cell, recipe: Recipe, rounds: list[dict], clients: list[dict], diverged: bool) -> dict:
    spec = resolve(world.config, cell)
    values = np.array([row["accuracy_personal"] for row in clients if not row["held_out"]])
    apart = [row["accuracy_personal"] for row in clients if row["held_out"]]
    names = ("p10", "p50", "p90")
    personal = {
        "mean": float(values.mean()),
        "std": float(values.std(ddof=1)),
        **dict(zip(names, map(float, np.percentile(values, (10, 50, 90))), strict=True)),
        "worst": float(values.min()),
    }
    selection = {
        "personal": personal,
        "held_out": {"mean": float(np.mean(apart)), "worst": min(apart)} if apart else None,
        "global": personal["mean"] - 0.05,
        "val": personal["mean"],
    }
    done = rounds[-1]["round"]
    return {
        "spec": spec.full,
        "digest": spec.digest,
        "cell": {key: getattr(cell, key) for key in ("dataset", "partition", "model", "method", "seed")},
        "label": recipe.entry["label"],
        "selections": {
            "last": {"rounds": [done], **selection},
            "best": {"rounds": [done], **selection},
            "tail": {"rounds": list(range(max(0, done - 9), done + 1)), **selection},
        },
        "base": {"personal_mean": BASE, "global": BASE - 0.05},
        "bytes": {
            "one_time": 21_000_000,
            "uplink_total": sum(row["uplink_bytes"] for row in rounds),
            "downlink_total": sum(row["downlink_bytes"] for row in rounds),
            "cumulative_total": rounds[-1]["cumulative_bytes"],
            "uplink_per_client_round": recipe.up,
            "downlink_per_client_round": recipe.down,
        },
        "parameters": {"shared": recipe.values or recipe.up // 4, "private": 0, "total": 5_543_716},
        "diverged": diverged,
        "diverged_round": done if diverged else None,
        "chance_level": False,
        "seconds": {"wall": 12.5, "cpu": 12.0, "train": 10.0, "evaluate": 2.0},
        "peak_rss_bytes": 500_000_000,
        "peak_gpu_bytes": None,
        "device": "cpu",
        "threads": 1,
        "chunk": 10,
        "versions": {"python": "3.11.7", "torch": "2.14.1", "fedbench": "0.1.0"},
        "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
        "data_sha256": "0" * 64,
        "partition_sha256": "1" * 64,
        "base_sha256": "2" * 64,
        "classes": 10,
        "clients": len(clients) - len(apart),
        "held_out_clients": len(apart),
        "rounds_done": done,
    }
