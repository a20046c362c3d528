"""Times the engine beside a plain loop over clients: the same rounds on the same data, in turn, in one process.

    python benchmarks/engine.py [--only mlp] [--repeats 5] [--threads 1]

Prints, per workload, the medians of both sides' seconds per round, their ratio (the median of the pairs' ratios, by
wall clock and by CPU time, which other processes disturb less) and the ratio to reach. Exits with status 1 if the
two sides' weights differ by more than rounding: then they did not do the same work.
"""

import statistics
import sys
import time
from dataclasses import dataclass

import click
import numpy as np

SEED = 0
CLASSES = 10


@dataclass(frozen=True)
class Workload:
    """One row of the table."""

    title: str
    target: float
    """Ratio engine / plain to reach."""
    model: dict
    method: dict
    training: dict
    clients: int
    samples: int
    """Training images per client."""
    rounds: int
    """Rounds per measurement."""
    tolerance: float
    """Largest acceptable difference of a weight after the first rounds, from rounding."""


SGD = {"participation": 0.1, "batch_size": 20, "local_epochs": 1, "optimizer": "sgd", "learning_rate": 0.01}
ADAM = {
    "participation": 1.0,
    "local_epochs": 1,
    "optimizer": "adam",
    "learning_rate": 1e-3,
    "weight_decay": 1e-4,
    "clip": 1.0,
}
FEDAVG = {"method": "fedavg", "trainable": "full"}
FEDSDG = {"method": "fedsdg", "rank": 8, "lora_alpha": 16.0}
VIT = {"backbone": "small-vit", "patch": 4}

WORKLOADS = {
    "mlp": Workload(
        "MLP 3072-32-10, FedAvg, 100 x 100 images", 0.70, {"backbone": "mlp"}, FEDAVG, SGD, 100, 100, 10, 1e-4
    ),
    "cnn": Workload(
        "CNN 32-64-512, FedAvg, 100 x 100 images", 0.95, {"backbone": "cnn"}, FEDAVG, SGD, 100, 100, 1, 1e-4
    ),
    # Adam's first steps divide a gradient by its own size: where it is all rounding, so is the weight's step.
    "fedsdg-8": Workload(
        "FedSDG, ViT-Tiny 32/4, 10 clients, batch 8", 0.70, VIT, FEDSDG, {**ADAM, "batch_size": 8}, 10, 16, 1, 1e-3
    ),
    "fedsdg-32": Workload(
        "FedSDG, ViT-Tiny 32/4, 10 clients, batch 32", 1.00, VIT, FEDSDG, {**ADAM, "batch_size": 32}, 10, 32, 1, 1e-3
    ),
}


def synthetic(workload):
    """Random images of 32x32 pixels, and a partition that gives every client its share."""
    from fedbench.data.store import TRAIN, Store
    from fedbench.partition.partition import Partition

    rng = np.random.default_rng(SEED)
    count = workload.clients * workload.samples
    store = Store(
        images=rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8),
        labels=rng.integers(0, CLASSES, count),
        domains=np.zeros(count, np.int64),
        splits=np.full(count, TRAIN, np.uint8),
        class_names=tuple(map(str, range(CLASSES))),
        domain_names=("all",),
        groups=None,
        meta={"sha256": {"all": "synthetic"}},
    )
    empty = [np.zeros(0, np.int64)] * workload.clients
    shares = list(np.arange(count).reshape(workload.clients, workload.samples))
    return store, Partition(shares, empty, empty, np.zeros(workload.clients, np.int64), {"sha256": "synthetic"})


def resolved(workload):
    """The run's spec, through the config like any other run."""
    from fedbench.config.reading import validate
    from fedbench.config.spec import Cell, resolve

    config = validate(
        {
            "name": "benchmark",
            "datasets": {"d": {"source": "digits"}},
            "partitions": {"p": {"scheme": "iid", "clients": workload.clients}},
            "models": {"m": workload.model},
            "methods": {"x": workload.method},
            "training": {"rounds": 1, **workload.training},
            "experiments": {},
        }
    )
    return resolve(config, Cell("d", "p", "m", "x", SEED))


class Engine:
    """The federation's rounds without evaluation."""

    def __init__(self, spec, store, partition, base):
        from fedbench.engine.federation import Federation

        self.federation = Federation(spec, store, partition, base)
        self.state, self.method = self.federation.init(), self.federation.method

    @property
    def shared(self):
        return self.state.shared

    def round(self, number):
        self.state = self.federation.round(self.state, number).state


def both_sides(workload):
    """The plain loop and the engine, at the same starting point."""
    import torch
    from plain import PlainFedAvg, PlainFedSDG, plain_cnn, plain_mlp

    from fedbench.bases.base import Base
    from fedbench.models.make_model import make_model
    from fedbench.tree import rows

    spec = resolved(workload)
    store, partition = synthetic(workload)
    classifier = make_model(spec.model, store.shape, store.classes)
    engine = Engine(spec, store, partition, Base(classifier.state_dict(), ""))
    arguments = (classifier, store, partition, spec.training, SEED)
    if workload.method is FEDSDG:
        start = engine.federation.private(engine.state)
        private = {client: rows(start.gather([client], torch.device("cpu")), 0) for client in range(workload.clients)}
        return PlainFedSDG(*arguments, engine.shared, private), engine
    network = {"mlp": plain_mlp, "cnn": plain_cnn}[workload.model["backbone"]]()
    return PlainFedAvg(network, *arguments), engine


def measure(side, numbers):
    """Wall and CPU seconds per round of some rounds."""
    wall, cpu = time.perf_counter(), time.process_time()
    for number in numbers:
        side.round(number)
    return (time.perf_counter() - wall) / len(numbers), (time.process_time() - cpu) / len(numbers)


def compare(workload, repeats):
    """Run one workload; returns its row and the difference of the two sides' weights after warming up."""
    from plain import difference

    plain, engine = both_sides(workload)
    # The first round of each side is not timed (allocations, the optimisers' imports) but compared.
    for side in (plain, engine):
        measure(side, [1])
    gap = difference(plain.shared, engine.shared)
    times = {id(plain): [], id(engine): []}
    for repeat in range(repeats):
        first = 2 + repeat * workload.rounds
        order = (plain, engine) if repeat % 2 == 0 else (engine, plain)
        for side in order:
            times[id(side)].append(measure(side, range(first, first + workload.rounds)))
    plain_times, engine_times = np.array(times[id(plain)]), np.array(times[id(engine)])
    wall, cpu = np.median(engine_times / plain_times, axis=0)
    return {
        "plain": statistics.median(plain_times[:, 0]),
        "engine": statistics.median(engine_times[:, 0]),
        "wall": wall,
        "cpu": cpu,
    }, gap


@click.command()
@click.option("--only", type=click.Choice(sorted(WORKLOADS)), multiple=True, help="Workloads; all by default.")
@click.option("--repeats", default=5, show_default=True, help="Timed repeats of each side, in turn.")
@click.option("--threads", default=1, show_default=True, help="CPU threads of both sides.")
def main(only, repeats, threads):
    """Time the engine beside a plain loop over clients."""
    from fedbench.stages import keep_freed_memory, set_threads

    set_threads(threads)
    keep_freed_memory()  # as every run does; the plain loop gets the good of it too
    print(f"{'workload':<46} {'plain s':>9} {'engine s':>9} {'ratio':>6} {'by CPU':>6} {'target':>7}")
    for name in only or WORKLOADS:
        workload = WORKLOADS[name]
        row, gap = compare(workload, repeats)
        if not gap <= workload.tolerance:
            sys.exit(
                f"{name}: the two sides' weights differ by {gap:.2g} after one round; they did not do the same work"
            )
        verdict = "reached" if row["wall"] <= workload.target else "missed"
        print(
            f"{workload.title:<46} {row['plain']:>9.4f} {row['engine']:>9.4f} {row['wall']:>6.2f} {row['cpu']:>6.2f} "
            f"{workload.target:>7.2f} {verdict}",
            flush=True,
        )


if __name__ == "__main__":
    main()
