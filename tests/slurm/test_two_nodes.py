"""Two nodes with one GPU each: cells side by side, a node that is lost, a job that gives way to a more urgent one.

Debian's ``slurmd`` can be started several times on one machine (``-N``), so both nodes are real daemons.
"""

import os
import re
import shutil
import signal
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
from cluster import numbers, wait
from processes import environment_of

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.slow]

NODES = ("one", "two")
PARTITIONS = """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=patient Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE MaxTime=INFINITE State=UP
PartitionName=graced Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=60 MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF MaxTime=INFINITE State=UP
"""
RUNS = "results/nodes/runs/digits/even/mlp"
# Rounds of about a second: whoever watches a run finds it in the middle.
CONFIG = """
name: nodes
results: results/nodes
training: {rounds: 12, local_steps: 400, batch_size: 8, learning_rate: 0.05, momentum: 0.9}
datasets: {digits: {source: digits}}
partitions: {even: {scheme: iid, clients: 4}}
models: {mlp: {backbone: mlp}}
methods:
  first: {method: fedavg}
  second: {method: fedavg, training: {local_steps: 401}}
experiments:
  only:
    title: Only
    cells: [{dataset: digits, partition: even, model: mlp, method: [first, second]}]
"""
SITE = """
retries: 2
set-resources:
  run: {mem_mb: 1000, runtime: 20, slurm_partition: PARTITION}
"""
# The engine saves when this much time has gone by since the last save.
SAVE_SECONDS = 60


def target(method: str) -> str:
    return f"{RUNS}/{method}/seed0/summary.json"


@pytest.fixture(scope="module")
def cluster(start_cluster):
    with start_cluster(nodes=NODES, gpus=1, partitions=PARTITIONS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def reference(locally, tmp_path_factory):
    """Both cells on one machine, undisturbed, and a copy of the folder as it was before they ran."""
    config = tmp_path_factory.mktemp("nodes-config") / "nodes.yaml"
    config.write_text(CONFIG)
    local = locally("nodes-local", config)
    local.run(
        "results/nodes/partitions/digits/even/seed0/partition.npz", "results/nodes/bases/digits/mlp/base.safetensors"
    )
    inputs = local.folder.with_name("nodes-inputs")
    shutil.copytree(local.folder, inputs)
    local.run(*map(target, ("first", "second")))
    return SimpleNamespace(config=config, inputs=inputs, numbers=numbers(local.folder / RUNS))


@pytest.fixture
def make_grid(cluster, submit_to, reference):
    """Make a workflow whose runs go to a partition."""

    def make(partition: str = "patient"):
        site = SITE.replace("PARTITION", partition)
        return submit_to(cluster, "nodes", reference.config, site, reference.inputs)

    return make


def own_log(grid, method: str) -> str:
    path = grid.folder / RUNS / method / "seed0/log.txt"
    return path.read_text() if path.exists() else ""


def job_log(grid, method: str) -> str:
    path = grid.folder / f"results/nodes/logs/run/digits/even/mlp/{method}/seed0.log"
    return path.read_text() if path.exists() else ""


def node_of(process: int) -> str:
    return environment_of(process)["SLURMD_NODENAME"]


def paused_in_the_middle(grid, method: str) -> int:
    """Stop a run after its first round."""
    wait(lambda: "round 0/" in job_log(grid, method), f"the first round of {method}")
    return grid.pause(method)


def resume(process: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGCONT)


def assert_once_and_as_undisturbed(grid, method: str, reference) -> None:
    kinds = [line.split()[2] for line in own_log(grid, method).splitlines()]
    assert kinds.count("complete") == 1
    assert kinds[-1] == "complete", "nobody trained it again"
    assert kinds.count("run") == 2
    assert kinds.count("continuing") == 1
    expected = {name: rows for name, rows in reference.numbers.items() if name.startswith(f"{method}/")}
    assert expected
    assert numbers(grid.folder / RUNS) == expected


def test_two_cells_train_on_two_nodes_at_a_time(make_grid, reference):
    grid = make_grid()
    snakemake = grid.start("--", *map(target, ("first", "second")))
    try:
        paused = [paused_in_the_middle(grid, method) for method in ("first", "second")]
        assert sorted(map(node_of, paused)) == sorted(NODES)
        for process in paused:
            resume(process)
        assert snakemake.wait(1500) == 0, grid.text()
    finally:
        snakemake.kill()
    assert numbers(grid.folder / RUNS) == reference.numbers


def test_the_cell_of_a_lost_node_continues_on_the_other_from_its_last_save(make_grid, cluster, reference):
    grid = make_grid()
    snakemake = grid.start(target("first"))
    try:
        paused = paused_in_the_middle(grid, "first")
        began = time.monotonic()
        wait(lambda: time.monotonic() > began + SAVE_SECONDS, "a save to be due", 2 * SAVE_SECONDS)
        resume(paused)
        checkpoints = grid.folder / "checkpoints"
        wait(lambda: list(checkpoints.rglob("round*.safetensors")), "the save")
        grid.pause("first")
        saved = max(int(path.name[5:11]) for path in checkpoints.rglob("round*.safetensors"))
        lost = node_of(paused)
        (other,) = set(NODES) - {lost}
        try:
            (job,) = cluster.comments()
            cluster.lose_node(lost)
            cluster.start_again_now(job)
            wait(lambda: grid.training("first"), "the run on the other node")
            assert [node_of(process) for process in grid.training("first")] == [other]
            assert snakemake.wait(1500) == 0, grid.text()
        finally:
            cluster.start_node(lost)
    finally:
        snakemake.kill()
    assert f"continuing after round {saved}\n" in own_log(grid, "first")
    assert "stopped" not in own_log(grid, "first"), "it had no time for a word"
    assert_once_and_as_undisturbed(grid, "first", reference)


@pytest.mark.parametrize(("partition", "submissions"), [("patient", 1), ("graced", 2)])
def test_a_preempted_cell_saves_and_continues(partition, submissions, make_grid, cluster, reference):
    """SLURM queues it again; where it gives a time of grace the cell has ended by then, and Snakemake does."""
    grid = make_grid(partition)
    snakemake = grid.start(target("first"))
    try:
        paused = paused_in_the_middle(grid, "first")
        (job,) = cluster.comments()
        urgent = cluster.call(
            *("sbatch", "--parsable", "--partition=urgent", "--gpus=1", f"--nodelist={node_of(paused)}"),
            *("--output=/dev/null", "--wrap", "sleep 3600"),
        ).stdout.strip()
        try:
            wait(lambda: signalled(paused) or cluster.jobs()[urgent] == "RUNNING", "the preemption")
            resume(paused)
            wait(lambda: cluster.jobs()[urgent] == "RUNNING", "the urgent job in the other's place")
            if submissions == 1:
                cluster.start_again_now(job)
            assert snakemake.wait(1500) == 0, grid.text()
        finally:
            cluster.call("scancel", urgent)
    finally:
        snakemake.kill()
    assert grid.text().count("has been submitted") == submissions
    stopped = re.search(r"stopped after round (\d+) \(SIGTERM\)", own_log(grid, "first"))
    assert f"continuing after round {stopped[1]}\n" in own_log(grid, "first")
    assert_once_and_as_undisturbed(grid, "first", reference)


def signalled(process: int) -> bool:
    """Whether a process has ended, goes on, or was sent a signal that it has not taken yet."""
    try:
        with open(f"/proc/{process}/status") as file:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return True
    return not fields["State"].startswith("T") or int(fields["ShdPnd"], 16) != 0
