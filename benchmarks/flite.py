"""Times FLITE's local step beside a full-weight step of the same model, and seeded factors beside stored ones.

    python benchmarks/flite.py [--only stored] [--repeats 5] [--threads 1] [--depth 18]

A step is the loss of one client's batch of 64 images, its gradient and an update by Adam; the sides take turns in one
process. Full: every weight of ResNet-GN trains, in torch's own loop. FLITE: the task as the engine uses it, latents of
64 numbers per tensor through factors of rank 32 that lie in memory (stored) or are drawn again in both passes (seeded).
Prints medians of seconds per step and of the pairs' ratios. Stored factors of ResNet-18 take 1.4 GB.
"""

import copy
import statistics
import time

import click

BATCH, CLASSES, DIMENSION, RANK = 64, 100, 64, 32
# side -> (what it is compared with, ratio to reach)
ROWS = {"stored": ("full", 1.20), "seeded": ("stored", 4.00)}


def sides(depth, wanted):
    """The wanted sides' steps by name; all see the same images and start at the same weights."""
    import torch
    from torch.nn import functional

    from fedbench.config.reading import parse_entry
    from fedbench.models.affine_map import AffineMapTask
    from fedbench.models.make_model import make_model
    from fedbench.models.task import Batch

    torch.manual_seed(0)
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(CLASSES, (BATCH,))
    entry = parse_entry("models", "resnet", {"backbone": "resnet-gn", "depth": depth})
    model = make_model(entry, (3, 32, 32), CLASSES)

    def step_of(leaves, loss):
        optimiser = torch.optim.Adam(leaves, lr=1e-3, fused=True)

        def step():
            optimiser.zero_grad()
            value = loss()
            value.backward()
            optimiser.step()
            return float(value.detach())

        return step

    def full():
        network = copy.deepcopy(model).requires_grad_(True)
        return step_of(list(network.parameters()), lambda: functional.cross_entropy(network(images), labels))

    def mapped(factors):
        task = AffineMapTask(copy.deepcopy(model), DIMENSION, RANK, seed=0, factors=factors)
        latent = task.init(None)["latent"].unsqueeze(0).requires_grad_()
        batch = Batch(images.unsqueeze(0), labels.unsqueeze(0))
        return step_of([latent], lambda: task.losses({"latent": latent}, batch).sum())

    return {name: full() if name == "full" else mapped(name) for name in wanted}


def timed(step):
    """Seconds of one step, and its loss."""
    started = time.perf_counter()
    loss = step()
    return time.perf_counter() - started, loss


@click.command(help=__doc__.split("\n")[0])
@click.option("--only", type=click.Choice(list(ROWS)), multiple=True)
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1))
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1))
@click.option("--depth", default="18", show_default=True, type=click.Choice(["8", "18", "20", "34"]))
def main(only, repeats, threads, depth):
    import torch

    torch.set_num_threads(threads)
    print(f"ResNet-{depth}-GN, batch {BATCH}, {threads} threads, medians of {repeats} steps each in turn")
    for name in only or ROWS:
        against, target = ROWS[name]
        pair = sides(int(depth), (against, name))
        losses = [timed(step)[1] for step in pair.values()]  # not timed: first allocations
        if abs(losses[0] - losses[1]) > 1e-4:
            raise SystemExit(f"{name} and {against} start at different losses: {losses}")
        times = {side: [] for side in pair}
        for repeat in range(repeats):
            for side in list(pair)[:: 1 if repeat % 2 == 0 else -1]:
                times[side].append(timed(pair[side])[0])
        ratio = statistics.median(mine / other for mine, other in zip(times[name], times[against], strict=True))
        seconds = ", ".join(f"{side} {statistics.median(values):.2f} s" for side, values in times.items())
        print(f"{name} / {against}: {ratio:.2f} (to reach {target:.2f}); {seconds}")


if __name__ == "__main__":
    main()
