"""The cluster, and Snakemake on it as a user calls it: from the repository's root, with ``--profile slurm``."""

import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster import Cluster, Unavailable, install

ROOT = Path(__file__).parents[2]
OUTPUT = "snakemake.out"
SNAKEMAKE = (sys.executable, "-m", "snakemake")
# What a site without an accounting database sets, and the threads that make numbers equal to the local profile's.
SITE = """
slurm-status-command: squeue
slurm-init-seconds-before-status-checks: 1
set-threads: {base: 1, run: 1}
latency-wait: 10
"""


class Workflow:
    """Snakemake with a working folder of its own."""

    def __init__(self, folder: Path, environment: dict[str, str], config: Path, profile: list[str]):
        self.folder, self.environment, self.config, self.profile = folder, environment, config, profile
        self.output = folder / OUTPUT

    def start(self, *arguments: str) -> subprocess.Popen:
        """Start it; what it says is added to `output`."""
        with open(self.output, "ab") as output:
            return subprocess.Popen(
                [*SNAKEMAKE, "--configfile", self.config, "--directory", self.folder, *self.profile, *arguments],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def run(self, *arguments: str, status: int = 0) -> None:
        """Run it to its end."""
        process = self.start(*arguments)
        try:
            assert process.wait(1500) == status, self.text()
        finally:
            process.kill()

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def training(self, method: str) -> list[int]:
        """Processes that train a cell of this folder."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                here = Path(os.readlink(folder / "cwd")) == self.folder
            except OSError:  # it has just ended
                continue
            if here and command[1:4] == ["-m", "fedbench", "train"] and method in command:
                found.append(int(folder.name))
        return sorted(found)

    def pause(self, method: str) -> int:
        """Stop a training process for a while; it does not notice, but its time goes on."""
        (process,) = self.training(method)
        os.kill(process, signal.SIGSTOP)
        return process


@contextmanager
def started(**keywords) -> Iterator[Cluster]:
    """A cluster while the block lasts; the tests are skipped where there cannot be one."""
    try:
        install()
    except Unavailable as reason:
        pytest.skip(f"no SLURM: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    cluster = Cluster(folder, **keywords)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def start_cluster():
    """What starts a cluster of a test's own."""
    return started


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster of one node."""
    with started() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def on_cluster(cluster, submit_to):
    """Make a workflow that submits to the cluster; what is given stands in the site's profile too."""
    return functools.partial(submit_to, cluster)


@pytest.fixture(scope="session")
def submit_to(tmp_path_factory):
    """Make a workflow that submits to some cluster."""

    def make(cluster: Cluster, name: str, config: Path, site: str = "", inputs: Path | None = None) -> Workflow:
        folder = tmp_path_factory.mktemp(name) / "work"
        shutil.copytree(inputs, folder, ignore=shutil.ignore_patterns(OUTPUT)) if inputs else folder.mkdir()
        profile = folder.parent / "site"
        profile.mkdir()
        (profile / "config.yaml").write_text(SITE + site)
        environment = {**cluster.environment, "FEDBENCH_DEVICE": "cpu"}
        return Workflow(folder, environment, config, ["--profile", "slurm", "--workflow-profile", str(profile)])

    return make


@pytest.fixture(scope="session")
def locally(tmp_path_factory):
    """Make a workflow that runs on this machine without SLURM."""

    def make(name: str, config: Path) -> Workflow:
        environment = {**os.environ, "FEDBENCH_DEVICE": "cpu"}
        return Workflow(tmp_path_factory.mktemp(name), environment, config, ["--profile", "workflow/profiles/local"])

    return make
