"""SLURM: commands, partitions, GPUs, and how to ask it about jobs."""

import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from fedbench.doctor.finding import Finding, Level
from fedbench.doctor.profile import Profile, read
from fedbench.errors import FedbenchError, nearest
from fedbench.site.programs import ask
from fedbench.site.progress import size

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
SECONDS = 20.0
# The executor asks after so many seconds at first, and turns from squeue to sacct if jobs are forgotten sooner than
# three times that.
FIRST, FIRST_SECONDS = "slurm-init-seconds-before-status-checks", 40
LONGEST_SECONDS = 180  # what the time between its questions grows to
FIELDS = ("partition", "available", "nodes", "state", "cores", "megabytes", "gres", "limit")
DEAD = ("down", "drained", "draining", "fail", "failing", "inval", "maint", "unknown", "powered_down")
FORMAT = "%P|%a|%D|%T|%c|%m|%G|%l"


def slurm(root: Path, site: Path | None) -> Iterator[Finding]:
    """What `snakemake --profile slurm [--workflow-profile site]` would meet here.

    Parameters
    ----------
    root : folder of the Snakefile and the profile
    site : a site's own settings, which say that the cluster is meant: what keeps jobs from running is then ``missing``
    """
    level: Level = "missing" if site else "warning"
    try:
        profile = read(root / "slurm/config.yaml", site)
        yield from profile.unknown_rules(root)
    except (FedbenchError, ImportError) as error:  # a package that is missing has its own line
        yield Finding(level, "profile", str(error))
        return
    there = [command for command in COMMANDS if shutil.which(command)]
    if not there and site:
        yield Finding(level, "slurm", "no SLURM here", "ask on a login node of the cluster")
        return
    if not there:
        yield Finding("ok", "slurm", "no SLURM here, use --profile workflow/profiles/local")
        return
    lacking = [command for command in COMMANDS if command not in there]
    if lacking:
        fix = "install SLURM's client commands, or use another login node"
        yield Finding(level, "slurm", f"{', '.join(lacking)} not found", fix)
        return
    answer = ask(["sinfo", "--noheader", f"--format={FORMAT}"], SECONDS)
    if not answer.good:
        yield Finding(level, "slurm", f"sinfo fails ({answer.complaint})", "is slurmctld running?")
        return
    yield from partitions(answer.output, profile)
    yield from accounting(profile)


def partitions(table: str, profile: Profile) -> Iterator[Finding]:
    """One line for each partition in sinfo's table, then what the profile asks of them."""
    lines = [line.strip().split("|") for line in table.splitlines()]
    rows = [dict(zip(FIELDS, values, strict=True)) for values in lines if len(values) == len(FIELDS)]
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        groups[row["partition"]].append(row)
    if not rows:
        yield Finding(profile.level, "partitions", "none", "ask whether you may use this cluster")
        return
    default = {name.rstrip("*") for name in groups if name.endswith("*")}
    used = set().union(*(default if names is None else names for names in profile.partitions().values()))
    for name, group in groups.items():
        nodes = ", ".join(f"{row['nodes']} {row['state']}" for row in group)
        first = group[0]
        gres = sorted({row["gres"] for row in group if row["gres"] not in ("", "(null)")}) or ["no gres"]
        memory = size(1e6 * int(re.match(r"\d*", first["megabytes"])[0] or 0))
        shape = f"{first['cores']} cores and {memory} each, {', '.join(gres)}, time limit {first['limit']}"
        text = f"{first['available']}, nodes: {nodes}; {shape}"
        good = first["available"] == "up" and any(row["state"].rstrip("*~#") not in DEAD for row in group)
        bad = profile.level if name.rstrip("*") in used else "warning"
        fix = "" if good else "ask for it to be brought up, or use another partition"
        yield Finding("ok" if good else bad, f"partition {name}", text, fix)
    offers = {name.rstrip("*"): any(re.search(r"\bgpu\b", row["gres"]) for row in groups[name]) for name in groups}
    yield from _requests(offers, default, profile)


def _requests(offers: dict[str, bool], default: set[str], profile: Profile) -> Iterator[Finding]:
    """What the profile asks for and no partition has.

    Parameters
    ----------
    offers : whether each partition has GPUs
    default : the partition of jobs that name none, if there is one
    """
    asked = profile.partitions()
    for name in sorted(set().union(*(names or () for names in asked.values())) - offers.keys()):
        fix = f"correct slurm_partition {profile.where}; {nearest(name, offers)}"
        yield Finding(profile.level, "partitions", f"the profile wants {name!r}, which is not here", fix)
    if not default and asked[""] is None:
        fix = f"set slurm_partition in default-resources {profile.where}"
        yield Finding(profile.level, "partitions", "none is the default", fix)
    places = {rule: (default if names is None else names & offers.keys()) or offers for rule, names in asked.items()}
    unserved = [
        rule or "default-resources"
        for rule, resources in profile.resources.items()
        if str(resources.get("gpu", 0)) != "0" and not any(offers[name] for name in places[rule])
    ]
    if unserved and any(offers.values()):
        fix = f"choose a slurm_partition with GPUs for them {profile.where}"
        yield Finding(
            profile.level, "gres", f"no gpu in the partition of {', '.join(unserved)}, which ask for one", fix
        )
    elif unserved:
        fix = f"set `gpu: 0` for them {profile.where} and FEDBENCH_DEVICE=cpu to run on CPUs"
        yield Finding(profile.level, "gres", f"no partition offers a gpu, which {', '.join(unserved)} ask for", fix)


def accounting(profile: Profile) -> Iterator[Finding]:
    """Whether jobs' fates are kept in a database, and which command the profile should ask for them."""
    answer = ask(["scontrol", "show", "config"], SECONDS)
    if not answer.good:
        yield Finding(profile.level, "accounting", f"scontrol fails ({answer.complaint})", "is slurmctld running?")
        return
    values = dict(re.findall(r"^(\w+) *= *(.*?) *$", answer.output, re.MULTILINE))
    storage = values.get("AccountingStorageType", "").removeprefix("accounting_storage/")
    complaint = "no database"
    if storage not in ("", "none", "(null)"):
        sacct = ask(["sacct", "-X", "--noheader", "--starttime=now-1hour"], SECONDS)
        if sacct.good:
            yield _status_command("sacct", f"{storage}, sacct answers", profile)
            return
        complaint = f"{storage}, but sacct fails ({sacct.complaint})"
    yield _status_command("squeue", complaint, profile)
    age = re.match(r"\d+", values.get("MinJobAge", ""))
    if age:
        yield from _memory(int(age[0]), profile)


def _status_command(wanted: str, text: str, profile: Profile) -> Finding:
    """Compare with the profile; without the setting the executor takes sacct where that is installed."""
    now = profile.settings.get("slurm-status-command") or ("sacct" if shutil.which("sacct") else "squeue")
    if now == wanted:
        return Finding("ok", "accounting", f"{text}; the profile asks {wanted}")
    level, reason = profile.level, "else jobs are never seen to end"
    if now == "squeue":
        level, reason = "warning", "which forgets no job"
    fix = f"set slurm-status-command: {wanted} {profile.where}, {reason}"
    return Finding(level, "accounting", f"{text}; the profile asks {now}", fix)


def _memory(seconds: int, profile: Profile) -> Iterator[Finding]:
    """Whether squeue tells of jobs long enough after their end."""
    first = profile.settings.get(FIRST, FIRST_SECONDS)
    text = f"forgets jobs {seconds} s after their end"
    if shutil.which("sacct") and isinstance(first, int) and seconds < 3 * first:
        fix = "ask for a MinJobAge of 300"
        if seconds >= 3:
            fix += f", or set {FIRST}: {seconds // 3} {profile.where}"
        yield Finding(profile.level, "squeue", f"{text}, too soon for the executor, which takes sacct instead", fix)
    elif seconds < LONGEST_SECONDS:
        text += f", and is asked every {LONGEST_SECONDS} s in the end: one may never be seen to end"
        yield Finding("warning", "squeue", text, "ask for a MinJobAge of 300")
