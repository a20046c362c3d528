"""SLURM: commands, partitions, GPUs, and how to ask it about jobs."""

import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from fedbench.commands import ask
from fedbench.doctor.finding import Finding
from fedbench.progress import size

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
SECONDS = 20.0
# The executor asks every 40 s by default; a job that SLURM forgets sooner is never seen to end.
MIN_JOB_AGE = 120
FIELDS = ("partition", "available", "nodes", "state", "cores", "megabytes", "gres", "limit")
DEAD = ("down", "drained", "draining", "fail", "failing", "inval", "maint", "unknown", "powered_down")
FORMAT = "%P|%a|%D|%T|%c|%m|%G|%l"


def slurm(profile: Path) -> Iterator[Finding]:
    """What `snakemake --profile slurm` would meet here.

    Parameters
    ----------
    profile : the profile's file, to say what has to change in it
    """
    there = [command for command in COMMANDS if shutil.which(command)]
    if not there:
        yield Finding("ok", "slurm", "no SLURM here, use --profile workflow/profiles/local")
        return
    lacking = [command for command in COMMANDS if command not in there]
    if lacking:
        fix = "install SLURM's client commands, or use another login node"
        yield Finding("warning", "slurm", f"{', '.join(lacking)} not found", fix)
        return
    settings = profile.read_text(encoding="utf-8") if profile.exists() else ""
    answer = ask(["sinfo", "--noheader", f"--format={FORMAT}"], SECONDS)
    if not answer.good:
        yield Finding("warning", "slurm", f"sinfo fails ({answer.complaint})", "is slurmctld running?")
        return
    yield from partitions(answer.output, settings)
    yield from accounting(settings)


def partitions(table: str, settings: str) -> Iterator[Finding]:
    """One line for each partition in sinfo's table, then what the profile asks of them."""
    lines = [line.strip().split("|") for line in table.splitlines()]
    rows = [dict(zip(FIELDS, values, strict=True)) for values in lines if len(values) == len(FIELDS)]
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        groups[row["partition"]].append(row)
    for name, group in groups.items():
        nodes = ", ".join(f"{row['nodes']} {row['state']}" for row in group)
        first = group[0]
        gres = sorted({row["gres"] for row in group if row["gres"] not in ("", "(null)")}) or ["no gres"]
        memory = size(1e6 * int(re.match(r"\d*", first["megabytes"])[0] or 0))
        shape = f"{first['cores']} cores and {memory} each, {', '.join(gres)}, time limit {first['limit']}"
        text = f"{first['available']}, nodes: {nodes}; {shape}"
        good = first["available"] == "up" and any(row["state"].rstrip("*~#") not in DEAD for row in group)
        fix = "" if good else "ask for it to be brought up, or use another partition"
        yield Finding("ok" if good else "warning", f"partition {name}", text, fix)
    if not rows:
        yield Finding("warning", "partitions", "none", "ask whether you may use this cluster")
        return
    chosen = re.search(r"^\s*slurm_partition: *(\S+)", settings, re.MULTILINE)
    if chosen and chosen[1] not in {name.rstrip("*") for name in groups}:
        fix = "correct slurm_partition in slurm/config.yaml"
        yield Finding("warning", "partitions", f"the profile wants {chosen[1]!r}, which is not here", fix)
    elif not chosen and not any(name.endswith("*") for name in groups):
        yield Finding("warning", "partitions", "none is the default", "set slurm_partition in slurm/config.yaml")
    if not any(re.search(r"\bgpu\b", row["gres"]) for row in rows):
        fix = "remove `gpu: 1` from slurm/config.yaml to run on CPUs"
        yield Finding("warning", "gres", "no partition offers a gpu, which the profile asks for", fix)


def accounting(settings: str) -> Iterator[Finding]:
    """Whether jobs' fates are kept in a database, and which command the profile should ask for them."""
    answer = ask(["scontrol", "show", "config"], SECONDS)
    if not answer.good:
        yield Finding("warning", "accounting", f"scontrol fails ({answer.complaint})", "is slurmctld running?")
        return
    values = dict(re.findall(r"^(\w+) *= *(.*?) *$", answer.output, re.MULTILINE))
    storage = values.get("AccountingStorageType", "").removeprefix("accounting_storage/")
    complaint = "no database"
    if storage not in ("", "none", "(null)"):
        sacct = ask(["sacct", "-X", "--noheader", "--starttime=now-1hour"], SECONDS)
        if sacct.good:
            yield _status_command("sacct", f"{storage}, sacct answers", settings)
            return
        complaint = f"{storage}, but sacct fails ({sacct.complaint})"
    yield _status_command("squeue", complaint, settings)
    age = re.match(r"\d+", values.get("MinJobAge", ""))
    if age and int(age[0]) < MIN_JOB_AGE:
        fix = "set slurm-init-seconds-before-status-checks: 5 in slurm/config.yaml, or ask for a MinJobAge of 300"
        yield Finding("warning", "squeue", f"forgets jobs {age[0]} s after their end", fix)


def _status_command(wanted: str, text: str, settings: str) -> Finding:
    """Compare with the profile; without the setting the executor takes sacct where that is installed."""
    said = re.search(r"^slurm-status-command: *(\w+)", settings, re.MULTILINE)
    now = said[1] if said else "sacct" if shutil.which("sacct") else "squeue"
    if now == wanted:
        return Finding("ok", "accounting", f"{text}; the profile asks {wanted}")
    fix = f"set slurm-status-command: {wanted} in slurm/config.yaml, else jobs are never seen to end"
    return Finding("warning", "accounting", f"{text}; the profile asks {now}", fix)
