"""A SLURM cluster on one machine, with pretended nodes and GPUs: real daemons of this test's own.

Configuration, key, state, sockets and ports are private: a SLURM that is already at work here, or another copy of
this one, is neither used nor disturbed, and only what was started is stopped.
"""

import csv
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from processes import environment_of, step_daemon

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol")
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
GPUS = 4
# The sizes are pretended as well (config_overrides), so that jobs ask for what the profile says and fit.
SLURM_CONF = """
ClusterName=fedbench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=1
SchedulerType=sched/backfill
MpiDefault=none
ReturnToService=2
MinJobAge=600
InactiveLimit=0
KillWait=30
GresTypes=gpu
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=16 RealMemory=200000 Gres=gpu:{gpus} "
    "State=UNKNOWN\n"
)
PARTITIONS = "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"


class Unavailable(Exception):
    """SLURM cannot be had here; the message says why."""


def install() -> None:
    """Install SLURM and munge if they are missing, where that is allowed.

    Raises
    ------
    Unavailable
        If they are missing and this is not root on Debian or a derivative of it.
    """
    missing = [program for program in PROGRAMS if _program(program) is None]
    if os.getuid() != 0:
        raise Unavailable("the cluster's daemons need root")
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise Unavailable(f"{', '.join(missing)} not found, and no apt-get to install them")
    # packages start their services at once; these would be on the standard ports
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"apt-get cannot install {' '.join(PACKAGES)}: {done.stderr.strip().splitlines()[-1:]}")


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


class Cluster:
    """The daemons and their folder.

    Parameters
    ----------
    folder : an empty folder of the cluster's own, with a short name (sockets lie in it)
    nodes : their names; each has a daemon and ports of its own
    gpus : of each node
    partitions : lines of slurm.conf
    """

    def __init__(self, folder: Path, nodes: Sequence[str] = ("node",), gpus: int = GPUS, partitions: str = PARTITIONS):
        self.folder, self.nodes, self.gpus, self.partitions = folder, nodes, gpus, partitions
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }
        self.daemons: dict[str, subprocess.Popen] = {}

    def start(self) -> None:
        """Start everything and wait until the nodes take jobs."""
        self._configure()
        munge = self.folder / "munge"
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        self._daemon(
            "munged", "--foreground", "--force", *(f"--{option}={munge / name}" for option, name in files.items())
        )
        self.wait(lambda: (munge / "socket").exists(), "munged")
        self._daemon("slurmctld", "-D", "-c", "-f", self.environment["SLURM_CONF"])
        self.wait(lambda: self.call("scontrol", "ping", check=False).returncode == 0, "slurmctld")
        for node in self.nodes:
            self.start_node(node)

    def _configure(self) -> None:
        for name in ("munge", "state", *(f"spool.{node}" for node in self.nodes)):
            (self.folder / name).mkdir(mode=0o711)
        key = self.folder / "munge/key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        host = socket.gethostname().split(".")[0]
        controller_port, *node_ports = free_ports(1 + len(self.nodes))
        settings = SLURM_CONF.format(host=host, folder=self.folder, controller_port=controller_port)
        for name, port in zip(self.nodes, node_ports, strict=True):
            settings += NODE.format(name=name, host=host, port=port, gpus=self.gpus)
        (self.folder / "slurm.conf").write_text(settings + self.partitions)
        # the executor hides SLURM_CONF from the srun that it starts inside of a job
        srun = self.folder / "bin/srun"
        srun.parent.mkdir()
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={self.folder}/slurm.conf exec {_program("srun")} "$@"\n')
        srun.chmod(0o755)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        devices = [self.folder / f"gpu{number}" for number in range(self.gpus)]
        for device in devices:
            device.symlink_to("/dev/null")
        (self.folder / "gres.conf").write_text(
            "".join(f"NodeName={node} Name=gpu File={device}\n" for node in self.nodes for device in devices)
        )

    def _daemon(self, program: str, *arguments: str, name: str | None = None) -> None:
        name = name or program
        with open(self.folder / f"{name}.out", "ab") as output:
            self.daemons[name] = subprocess.Popen(
                [_program(program), *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def start_node(self, node: str) -> None:
        """Start a node's daemon and wait until it takes jobs."""
        self._daemon("slurmd", "-D", "-N", node, "-f", self.environment["SLURM_CONF"], name=f"slurmd.{node}")
        self.wait(lambda: self.node_state(node) in ("idle", "mixed"), f"slurmd of {node}")

    def lose_node(self, node: str) -> None:
        """End a node as a power cut does: nobody there says a word, and SLURM is told what it would notice in time."""
        on_it = self._job_processes(node)
        daemon = self.daemons[f"slurmd.{node}"]
        # the node's daemon and those of the steps first, since they would report how the processes ended
        for process in [daemon.pid, *sorted(set(filter(None, map(step_daemon, on_it)))), *on_it]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        daemon.wait()
        self.call("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    def start_again_now(self, job: str) -> None:
        """Wait until a job is queued again, and start it at once: by itself SLURM waits for two minutes."""
        self.wait(lambda: self.jobs()[job] == "PENDING", f"job {job} to be queued again")
        self.call("scontrol", "update", f"jobid={job}", "starttime=now")

    def stop(self) -> None:
        """Cancel all jobs and end the daemons."""
        with suppress(OSError):
            self.call("scancel", "--user=root", "--signal=KILL", check=False)
            self.call("scancel", "--user=root", check=False)
            with suppress(AssertionError):
                self.wait(lambda: not self.call("squeue", "--noheader").stdout.strip(), "jobs to end", 20)
        for name in reversed(self.daemons):
            self.daemons[name].terminate()
            try:
                self.daemons[name].wait(10)
            except subprocess.TimeoutExpired:
                self.daemons[name].kill()
        self._kill_leftovers()

    def _kill_leftovers(self) -> None:
        """End what a job left behind: a node's daemon that was stopped amid a job's end never kills the stubborn."""
        for process in self._job_processes():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def _job_processes(self, node: str | None = None) -> list[int]:
        """Processes of this cluster's jobs, on one node or on all."""
        settings = self.environment["SLURM_CONF"]
        return [
            process
            for process in map(int, (folder.name for folder in Path("/proc").glob("[0-9]*")))
            if (variables := environment_of(process)).get("SLURM_CONF") == settings
            and "SLURM_JOB_ID" in variables
            and node in (None, variables.get("SLURMD_NODENAME"))
        ]

    def call(self, *command: str, check: bool = True) -> subprocess.CompletedProcess:
        """Run one of SLURM's commands against this cluster."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=check, timeout=60)

    def node_state(self, node: str) -> str:
        answer = self.call("sinfo", "--noheader", "--Node", f"--nodes={node}", "--format=%T", check=False)
        return next(iter(answer.stdout.split()), "").rstrip("*")

    def jobs(self) -> dict[str, str]:
        """Job id -> state of all jobs that SLURM still knows of."""
        lines = self.call("squeue", "--noheader", "--states=all", "--format=%i %T").stdout.splitlines()
        return dict(line.split() for line in lines)

    def comments(self) -> dict[str, str]:
        """Job id -> comment of the jobs that have not ended; the executor writes rule and wildcards there."""
        lines = self.call("squeue", "--noheader", "--format=%i %k").stdout.splitlines()
        return dict(line.split(maxsplit=1) for line in lines)

    def wait(self, condition, what: str, seconds: float = 60) -> None:
        """Wait for one of the daemons; what they said is in the message if it is in vain."""
        try:
            wait(condition, what, seconds)
        except AssertionError as error:
            logs = sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")])
            tails = (f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in logs)
            raise AssertionError("\n".join([str(error), *tails])) from None


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait(condition, what: str, seconds: float = 600) -> None:
    """Wait until `condition()` is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain for {what}"
        time.sleep(0.2)


def numbers(results: Path) -> dict[str, list[dict[str, str]]]:
    """Every CSV below a folder, without the columns that measure the machine: seconds, and memory in use."""
    tables = {}
    for path in sorted(results.rglob("*.csv")):
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        tables[str(path.relative_to(results))] = [
            {column: value for column, value in row.items() if not re.search("seconds|rss", column)} for row in rows
        ]
    return tables


def main() -> None:
    """A cluster to try things on, until Ctrl-C."""
    install()
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    cluster = Cluster(folder)
    try:
        cluster.start()
        for name in ("SLURM_CONF", "PATH"):
            print(f"export {name}={shlex.quote(cluster.environment[name])}")
        print("# there is no accounting: --slurm-status-command squeue. Ctrl-C stops the cluster", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
