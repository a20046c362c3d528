"""What goes wrong on clusters, for real: a killed Snakemake, cancelled jobs, time limits, cells that always fail.

The cheap faults happen to one small grid, since waiting for SLURM's answers takes longest: `faulty` lives through
them, and each test looks at one. Training processes are paused where a fault has to hit them in the middle.
"""

import os
import re
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from cluster import numbers, wait

from fedbench.site.allocation import SHARE, seconds

pytestmark = pytest.mark.xdist_group("slurm")

ROOT = Path(__file__).parents[2]
RUNS = "results/faults/runs/digits/even/mlp"
# A step of a gradient times 1e7 is no number of fp16.
CONFIG = """
name: faults
results: results/faults
training: {rounds: 20, local_steps: 60, batch_size: 8, learning_rate: 0.05, momentum: 0.9}
datasets: {digits: {source: digits}}
partitions: {even: {scheme: iid, clients: 4}}
models: {mlp: {backbone: mlp}}
channels: {half: {codec: dense, dtype: fp16}}
methods:
  steady: {method: fedavg}
  cancelled: {method: fedavg, training: {local_steps: 61}}
  limited: {method: fedavg, training: {local_steps: 62}}
  broken: {method: fedavg, channel: half, training: {learning_rate: 1e7, local_steps: 1}}
experiments:
  only:
    title: Only
    cells: [{dataset: digits, partition: even, model: mlp, method: [steady, cancelled, limited, broken]}]
"""
# The first attempt of one method has two minutes: a busy machine may need one to start and ten seconds to end.
SITE = """
retries: 2
set-resources:
  run:
    mem_mb: 1000
    runtime: "2 * attempt if wildcards.method == 'limited' else 10"
"""
GOOD = ("steady", "cancelled", "limited")


def target(method: str) -> str:
    return f"{RUNS}/{method}/seed0/summary.json"


@pytest.fixture(scope="module")
def reference(locally, tmp_path_factory):
    """The good cells on one machine, and a copy of the folder as it was before they ran."""
    config = tmp_path_factory.mktemp("faults-config") / "faults.yaml"
    config.write_text(CONFIG)
    local = locally("faults-local", config)
    local.run(
        "results/faults/partitions/digits/even/seed0/partition.npz", "results/faults/bases/digits/mlp/base.safetensors"
    )
    inputs = local.folder.with_name("faults-inputs")
    shutil.copytree(local.folder, inputs)
    local.run(*map(target, GOOD))
    return SimpleNamespace(config=config, inputs=inputs, numbers=numbers(local.folder / RUNS))


@pytest.fixture(scope="module")
def faulty(cluster, on_cluster, reference):
    """A grid that ends well in spite of everything, but for the cell that cannot."""
    grid = on_cluster("faults", reference.config, SITE, reference.inputs)
    logs = grid.folder / "results/faults/logs/run/digits/even/mlp"

    def log_of(method: str) -> str:
        path = logs / method / "seed0.log"
        return path.read_text() if path.exists() else ""

    def lasting(method: str) -> str:
        path = grid.folder / RUNS / method / "seed0/log.txt"
        return path.read_text() if path.exists() else ""

    snakemake = grid.start(*map(target, ("steady", "cancelled")))
    try:
        wait(lambda: "round 0/" in log_of("cancelled"), "the first round of the run that will be cancelled")
        paused = grid.pause("cancelled")
        (victim,) = [job for job, name in cluster.comments().items() if "cancelled" in name]
        wait(lambda: "(Rule: run)" in grid.text(), "Snakemake to see the steady run's end")
    finally:
        snakemake.kill()
        snakemake.wait()
    finished = (grid.folder / target("steady")).stat().st_mtime_ns

    grid.run("--unlock")
    snakemake = grid.start("--", *map(target, (*GOOD, "broken")))
    try:
        wait(lambda: "waiting for it" in log_of("cancelled"), "a second job for the paused run")
        both = grid.training("cancelled")
        cluster.call("scancel", victim)
        time.sleep(1)
        os.kill(paused, signal.SIGCONT)
        wait(lambda: "round 0/" in log_of("limited"), "the first round of the run with a time limit")
        limited = grid.pause("limited")
        (job,) = [job for job, name in cluster.comments().items() if "limited" in name]
        left = cluster.call("squeue", "--noheader", f"--jobs={job}", "--format=%L").stdout
        time.sleep((1 - SHARE) * seconds(left) + 1)  # past its own deadline, but not past SLURM's
        os.kill(limited, signal.SIGCONT)
        status = snakemake.wait(1500)
    finally:
        snakemake.kill()
    return SimpleNamespace(
        grid=grid, log_of=log_of, lasting=lasting, finished=finished, both=both, status=status, victim=victim, job=job
    )


def test_all_good_runs_end_as_without_faults(faulty, reference):
    found = numbers(faulty.grid.folder / RUNS)
    assert len(reference.numbers) == 2 * len(GOOD)
    assert found == reference.numbers


def test_a_killed_snakemake_starts_again_without_repeating_a_finished_run(faulty):
    assert (faulty.grid.folder / target("steady")).stat().st_mtime_ns == faulty.finished
    assert faulty.lasting("steady").count("complete") == 1


def test_two_jobs_for_one_run_never_train_at_the_same_time(faulty):
    assert len(faulty.both) == 2
    lines = [re.sub(r"^\S+ \S+ ", "", line) for line in faulty.lasting("cancelled").splitlines()]
    kinds = [line.split()[0] for line in lines]
    assert kinds == ["run", "stopped", "continuing", "run", "complete"], "the second began when the first had saved"


def test_a_cancelled_job_saves_and_the_next_one_continues(faulty):
    stopped = re.search(r"stopped after round (\d+) \(SIGTERM\)", faulty.lasting("cancelled"))
    assert f"continuing after round {stopped[1]}" in faulty.lasting("cancelled")


def test_a_run_stops_before_its_time_limit_and_is_submitted_again(faulty, cluster):
    stopped = re.search(r"stopped after round (\d+) \(time limit\)", faulty.lasting("limited"))
    assert f"continuing after round {stopped[1]}" in faulty.lasting("limited")
    assert cluster.jobs()[faulty.job] == "FAILED", "it ended by itself, SLURM did not have to end it"


def test_a_run_that_always_fails_stops_no_other_and_is_named_at_the_end(faulty):
    assert faulty.status == 1
    end = faulty.grid.text().split("1 failed (fedbench status shows all runs):")[-1]
    name, log = "digits/even/mlp/broken/seed0", "results/faults/logs/run/digits/even/mlp/broken/seed0.log"
    assert re.search(rf"^  run {name}: error: .*does not fit fp16.* \({log}\)$", end, re.M), end
    assert "does not fit fp16" in (faulty.grid.folder / log).read_text()


def node_down_and_up(cluster, job):
    cluster.call("scontrol", "update", "nodename=node", "state=down", "reason=test")
    # SLURM may have taken it back by itself meanwhile, and refuses then
    cluster.call("scontrol", "update", "nodename=node", "state=resume", check=False)
    cluster.wait(lambda: cluster.node_state("node") in ("idle", "mixed"), "the node to be back")


def requeue(cluster, job):
    cluster.call("scontrol", "requeue", job)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [requeue, node_down_and_up])
def test_a_job_that_slurm_starts_again_continues(fault, cluster, on_cluster, reference):
    grid = on_cluster(fault.__name__, reference.config, SITE, reference.inputs)
    log = grid.folder / "results/faults/logs/run/digits/even/mlp/steady/seed0.log"
    snakemake = grid.start(target("steady"))
    try:
        wait(lambda: log.exists() and "round 0/" in log.read_text(), "the first round")
        paused = grid.pause("steady")
        (job,) = cluster.comments()
        fault(cluster, job)
        with suppress(ProcessLookupError):
            os.kill(paused, signal.SIGCONT)
        assert snakemake.wait(1500) == 0, grid.text()
    finally:
        snakemake.kill()
    assert grid.text().count("has been submitted") == 1, "SLURM started it again, not Snakemake"
    lasting = (grid.folder / RUNS / "steady/seed0/log.txt").read_text()
    assert lasting.count("complete") == 1
    assert lasting.count(" run ") == 2
    assert numbers(grid.folder / RUNS) == {
        name: rows for name, rows in reference.numbers.items() if name.startswith("steady/")
    }


@pytest.mark.slow
def test_short_runs_as_one_array(on_cluster, reference):
    """Runs of unequal lengths, and one that fails, be it the array's first or not."""
    site = SITE.replace("attempt if wildcards.method == 'limited' else 10", "10")
    arrays = (ROOT / "workflow/profiles/arrays/config.yaml").read_text()
    grid = on_cluster("arrays", reference.config, site + arrays, reference.inputs)
    grid.run("--retries", "0", "--", *map(target, (*GOOD, "broken")), status=1)
    assert grid.text().count("Submitted array job") == 1
    assert "has been submitted with" not in grid.text(), "no job beside it"
    assert "Removing output files" not in grid.text()
    assert re.search(r"^1 failed .*\n  run digits/even/mlp/broken/seed0: error: .*does not fit fp16", grid.text(), re.M)
    assert numbers(grid.folder / RUNS) == reference.numbers
