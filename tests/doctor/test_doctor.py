"""`fedbench doctor`: what it finds on pretended machines and clusters."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from fedbench.cli import commands as cli
from fedbench.config.plan import Plan
from fedbench.config.reading import load
from fedbench.doctor import cluster, folders, inputs, machine, software
from fedbench.doctor import profile as profiles
from fedbench.doctor.finding import Finding
from fedbench.errors import FedbenchError
from fedbench.site.gpus import resolve
from fedbench.site.programs import Answer, ask

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "workflow/configs/smoke.yaml"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """No choice of GPUs by whoever runs the tests."""
    for variable in ("FEDBENCH_GPUS", "FEDBENCH_DEVICE", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"):
        monkeypatch.delenv(variable, raising=False)


def levels(findings) -> list[str]:
    return [finding.level for finding in findings]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Install pretended programs, and hide all others but the shell."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def install(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return install


def test_a_finding_is_one_line_with_its_fix():
    assert str(Finding("missing", "memory", "none\nat all", "buy some")) == "missing  memory: none at all; buy some"
    assert str(Finding("ok", "memory", "1 GB")) == "ok       memory: 1 GB"


def test_programs_that_hang_fail_or_are_not_there(programs):
    programs("hangs", "/bin/sleep 60 & /bin/sleep 60")  # a child, too, keeps the output open
    started = time.monotonic()
    assert ask(["hangs"], 0.3) == Answer(None, "", "hangs did not answer within 0.3 s")
    assert time.monotonic() - started < 50
    programs("fails", "echo some; echo first >&2; echo 'it broke' >&2; exit 3")
    assert ask(["fails"], 30) == Answer(3, "some\n", "it broke")
    assert ask(["absent"], 30) == Answer(None, "", "absent is not installed")


def test_versions_of_packages(tmp_path, monkeypatch):
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs/constraints.txt").write_text("# tested\nA_b==2.1\nc==1.0\nd==3.0 # comment\n")
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["a-b>=2", "c>=1", "d>=2.10", "e", "f>=1"]\n')
    there = {"a-b": "2.1+cpu", "c": "1.4", "d": "2.9", "f": "1.0"}
    monkeypatch.setattr(software, "installed", there.get)
    lines = [str(finding) for finding in software.packages(tmp_path)]
    assert [line.split(";")[0] for line in lines] == [
        "warning  c: 1.4, tested with 1.0",
        "missing  d: 2.9 is older than 2.10",
        "missing  e: not installed",
        "ok       packages: 2 of 5 as tested",
    ]
    (tmp_path / "envs/constraints.txt").unlink()
    assert "tested versions not known" in str(list(software.packages(tmp_path))[-1])


def test_this_environment_has_everything():
    assert "missing" not in levels([software.python(), *software.packages(ROOT)])


@pytest.mark.parametrize(("version", "level"), [((3, 10, 0), "missing"), ((3, 11, 2), "ok"), ((3, 14, 0), "warning")])
def test_versions_of_python(monkeypatch, version, level):
    monkeypatch.setattr(sys, "version_info", version)
    assert software.python().level == level


def test_cores_and_memory_of_a_container(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    assert machine.memory().level == "warning"
    (tmp_path / "meminfo").write_text("MemTotal:       64000000 kB\nMemAvailable:   32000000 kB\n")
    assert str(machine.memory()) == "ok       memory: 65.5 GB, 32.8 GB of it free; enough for 4 runs of 8 GB at a time"
    assert machine.cores().level == "ok"
    (tmp_path / "memory.max").write_text("6000000000\n")
    (tmp_path / "memory.current").write_text("2000000000\n")
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert str(machine.memory()).startswith("warning  memory: 6 GB, 4 GB of it free; ")
    assert "a quota allows 0.5; call snakemake with --cores 1" in str(machine.cores())
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert levels([machine.memory(), machine.cores()]) == ["ok", "ok"]


def torch_says(monkeypatch, cuda: str | None, *names: str, cards: int = 0):
    """Pretend torch's and the driver's answers."""
    devices = [{"name": name, "free": 1e9, "total": 2e9} for name in names]
    listing = "".join(f"GPU {number}: Card (UUID: GPU-{number})\n" for number in range(cards))
    answers = {sys.executable: json.dumps({"cuda": cuda, "devices": devices}), "nvidia-smi": listing}
    monkeypatch.setattr(machine, "ask", lambda command, seconds: Answer(0, answers[command[0]], ""))


def test_devices(monkeypatch):
    torch_says(monkeypatch, "13.0", "Card A", "Card B")
    assert [str(finding) for finding in machine.devices("auto")] == [
        "ok       GPU 0: Card A, 2 GB, 1 GB of it free",
        "ok       GPU 1: Card B, 2 GB, 1 GB of it free",
    ]
    assert levels(machine.devices("cuda:1")) == ["ok", "ok"]
    assert levels(machine.devices("cuda:2")) == ["ok", "ok", "missing"]
    torch_says(monkeypatch, "13.0")
    assert levels(machine.devices("cpu")) == ["ok"]
    assert levels(machine.devices("cuda")) == ["missing"]
    torch_says(monkeypatch, "13.0", cards=2)
    assert "CUDA_VISIBLE_DEVICES" in str(next(machine.devices("auto")))
    torch_says(monkeypatch, None, cards=2)
    assert "install torch with CUDA" in str(next(machine.devices("auto")))
    monkeypatch.setenv("FEDBENCH_GPUS", "")
    assert levels(machine.devices("auto")) == ["ok", "ok"]


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize(
    "name", ["auto", "cpu", "cuda", "cuda:1", "cuda:2", "gpu", "cuda:", "cuda:x", "cuda:²", "", "CPU"]
)
def test_a_device_is_judged_as_runs_judge_it(monkeypatch, name, count):
    torch_says(monkeypatch, "13.0", *["Card"] * count)
    bad = [finding.text for finding in machine.devices(name) if finding.level == "missing"]
    with pytest.raises(FedbenchError, match=f"^{re.escape(bad[0])}$") if bad else nullcontext():
        resolve(name, count)


@pytest.mark.parametrize(
    ("text", "device", "names", "expected"),
    [
        ("0,1", "auto", ["A", "B"], ["ok       FEDBENCH_GPUS: 2 runs at a time, on GPUs 0, 1", "GPU 0: A", "GPU 1: B"]),
        ("5,3,5", "cuda", ["A", "B"], ["FEDBENCH_GPUS: 3 runs at a time, on GPUs 5, 3", "GPU 5: A", "GPU 3: B"]),
        ("3", "auto", ["A"], ["FEDBENCH_GPUS: one run at a time, on GPU 3", "GPU 3: A"]),
        ("", "auto", [], ["FEDBENCH_GPUS: empty, runs use the CPU", "ok       devices: no GPU, runs use the CPU"]),
        ("", "cuda", [], ["FEDBENCH_GPUS: empty", "missing  devices: --device cuda: not here"]),
        ("3", "auto", [], ["FEDBENCH_GPUS: one run", "missing  devices: FEDBENCH_GPUS=3: torch finds no such GPU"]),
        ("0;1", "auto", ["A"], ["missing  devices: FEDBENCH_GPUS=0;1: '0;1' is no GPU"]),
        ("0;1", "cuda:0", ["A"], ["ok       FEDBENCH_GPUS: not heeded", "GPU 0: A"]),
    ],
)
def test_named_gpus(monkeypatch, programs, text, device, names, expected):
    monkeypatch.setenv("FEDBENCH_GPUS", text)
    torch_says(monkeypatch, "13.0", *names)
    lines = [str(finding) for finding in machine.devices(device)]
    assert len(lines) == len(expected)
    for line, part in zip(lines, expected, strict=True):
        assert part in line


@pytest.mark.parametrize(
    ("text", "device", "shown"),
    [("5,3,5", "auto", "5,3"), ("GPU-1a", "cuda", "GPU-1a"), ("", "auto", ""), ("5", "cpu", "7"), ("5", "cuda:0", "7")],
)
def test_torch_is_shown_what_runs_see(monkeypatch, programs, text, device, shown):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("FEDBENCH_GPUS", text)
    stop = "sys.exit('sees <' + os.environ['CUDA_VISIBLE_DEVICES'] + '>')"
    monkeypatch.setattr(machine, "PROBE", machine.PROBE.replace("import torch", stop))
    assert f"torch does not work (sees <{shown}>)" in str(list(machine.devices(device))[-1])


def test_a_torch_that_does_not_work(monkeypatch):
    monkeypatch.setattr(machine, "PROBE", "import time; time.sleep(60)")
    monkeypatch.setattr(machine, "PROBE_SECONDS", 0.3)
    [finding] = machine.devices("auto")
    assert (finding.level, "did not answer within 0.3 s" in finding.text) == ("missing", True)
    monkeypatch.setattr(machine, "PROBE_SECONDS", 60)
    monkeypatch.setattr(machine, "PROBE", "raise RuntimeError('driver too old')")
    [finding] = machine.devices("auto")
    assert (finding.level, "driver too old" in finding.text) == ("missing", True)
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: None)
    assert "torch is not installed" in str(next(machine.devices("auto")))


SINFO = """\
gpu*|up|1|idle|2|20000|gpu:1|infinite
gpu*|up|3|down*|2|20000|gpu:1|infinite
old|down|2|idle|8|64000|(null)|1-00:00:00
"""


def slurm(programs, sinfo: str = SINFO, accounting: str = "none", age: int = 300, sacct: str = "exit 1") -> None:
    """Install a pretended cluster."""
    for name in ("sbatch", "squeue", "scancel"):
        programs(name, "exit 0")
    programs("sinfo", f"/bin/cat <<'END'\n{sinfo}END")
    programs(
        "scontrol", f"echo 'AccountingStorageType   = accounting_storage/{accounting}'; echo 'MinJobAge = {age} sec'"
    )
    programs("sacct", sacct)


@pytest.fixture
def site(tmp_path):
    """Write a site's own settings; returns their folder."""

    def write(text: str, name: str = "config.yaml") -> Path:
        (tmp_path / "site").mkdir(exist_ok=True)
        (tmp_path / "site" / name).write_text(text)
        return tmp_path / "site"

    return write


def found(site: Path | None = None) -> dict[str, list[Finding]]:
    """Findings about the cluster by what they are about."""
    findings: dict[str, list[Finding]] = {}
    for finding in cluster.slurm(ROOT, site):
        findings.setdefault(finding.what, []).append(finding)
    return findings


# ~/fedbench-site/config.yaml of docs/slurm.md, for the pretended cluster
GOOD = """\
default-resources: {slurm_account: my-account, slurm_partition: gpu}
set-resources:
  base: {gpu: 1, slurm_partition: gpu, mem_mb: 16000 * attempt}
  run: {gpu: 1, slurm_partition: gpu, mem_mb: 32000 if wildcards.model == "resnet34" else 16000}
slurm-status-command: squeue
slurm-init-seconds-before-status-checks: 5
"""


def test_no_slurm(programs, site):
    assert levels(cluster.slurm(ROOT, None)) == ["ok"]
    assert levels(cluster.slurm(ROOT, site(GOOD))) == ["missing"]
    programs("sbatch", "exit 0")
    [finding] = cluster.slurm(ROOT, None)
    assert finding.text == "squeue, scancel, sinfo, scontrol not found"


def test_after_what_the_docs_say_nothing_remains(programs, site):
    slurm(programs)
    findings = found()
    assert findings["partition gpu*"][0].text == (
        "up, nodes: 1 idle, 3 down*; 2 cores and 20 GB each, gpu:1, time limit infinite"
    )
    assert findings["partition old"][0].level == "warning"
    [accounting] = findings["accounting"]
    assert accounting.level == "warning"
    assert accounting.fix == (
        "set slurm-status-command: squeue in a folder of your own for --workflow-profile (docs/slurm.md), "
        "else jobs are never seen to end"
    )
    lines = [str(finding) for finding in cluster.slurm(ROOT, site(GOOD))]
    assert [line for line in lines if not line.startswith("ok")] == [str(findings["partition old"][0])]
    assert lines[-1] == "ok       accounting: no database; the profile asks squeue"


@pytest.mark.parametrize(
    ("break_it", "settings", "expected"),
    [
        ({"sinfo": "echo 'Unable to contact slurm controller' >&2; exit 1"}, GOOD, "sinfo fails (Unable to contact"),
        ({"sinfo": "echo 'Could not establish a configuration source' >&2; exit 1"}, GOOD, "configuration source"),
        ({"scontrol": "exit 1"}, GOOD, "scontrol fails"),
        *(({name: None}, GOOD, f"{name} not found") for name in cluster.COMMANDS),
        ({"sinfo": "exit 0"}, GOOD, "partitions: none"),
        ({}, GOOD.replace("squeue", "sacct"), "asks sacct; set slurm-status-command: squeue in "),
        ({}, GOOD.replace("squeue", "sqeue"), "asks sqeue; set slurm-status-command: squeue in "),
        ({}, "jobs: 3", "asks sacct; set slurm-status-command: squeue in "),
        ({}, GOOD.replace("slurm_partition: gpu", "slurm_partition: gpuu"), "wants 'gpuu', which is not here"),
        ({}, GOOD.replace("slurm_partition: gpu,", "slurm_partition: old,"), "no gpu in the partition of base, run"),
        ({}, GOOD.replace("  run:", "  runn:"), "set-resources names 'runn', which is no rule"),
        ({}, GOOD + "set-threads: {bass: 2}", "did you mean 'base'?"),
        ({}, GOOD + "set-threads: [bass=2]", "set-threads names 'bass'"),
        ({}, GOOD + "jobs: [", "not valid YAML"),
        ({}, "- jobs", "a profile is a mapping"),
        ({}, "set-resources: {run: 3}", "'3' is no NAME=VALUE"),
        ({}, "set-resources: [run]", "'run' is no NAME:VALUE"),
    ],
    ids=lambda value: "" if isinstance(value, dict) or "\n" in value else None,
)
def test_what_keeps_jobs_from_running_is_missing_where_the_cluster_is_meant(
    programs, site, tmp_path, break_it, settings, expected
):
    slurm(programs)
    for name, script in break_it.items():
        if script is None:
            (tmp_path / "programs" / name).unlink()
        else:
            programs(name, script)
    folder = site(settings)
    bad = [str(finding) for finding in cluster.slurm(ROOT, folder) if finding.level == "missing"]
    assert [line for line in bad if expected in line], bad
    if break_it:  # what the cluster lacks is a warning for those who may not mean it
        without = list(cluster.slurm(ROOT, None))
        assert "missing" not in levels(without)
        assert [str(finding) for finding in without if finding.level == "warning" and expected in str(finding)]
    else:
        assert [line for line in bad if str(folder / "config.yaml") in line or "NAME" in line]


def test_a_cluster_without_gpus_and_without_a_default(programs, site):
    slurm(programs, sinfo="cpu|up|1|idle|2|20000|(null)|infinite\n")
    findings = found()
    assert [finding.text for finding in findings["partitions"]] == ["none is the default"]
    assert findings["gres"][0].text == "no partition offers a gpu, which base, run ask for"
    settings = "default-resources: [mem_mb=4000, slurm_partition=cpu]\nset-resources: ['run:gpu=0', 'base:gpu=0']\n"
    findings = found(site(settings + "slurm-status-command: squeue"))
    assert all(finding.level == "ok" for several in findings.values() for finding in several)


def test_a_partition_that_is_down_matters_to_those_who_use_it(programs, site):
    slurm(programs)
    assert levels(found(site(GOOD))["partition old"]) == ["warning"]
    assert levels(found(site(GOOD.replace("slurm_partition: gpu}", "slurm_partition: old}")))["partition old"]) == [
        "missing"
    ]


def test_partitions_that_only_a_job_can_tell(programs, site):
    slurm(programs)
    for text in ('"gpu" if attempt < 2 else "long"', "gpu,old"):
        assert "partitions" not in found(site(GOOD.replace("slurm_partition: gpu}", f"slurm_partition: {text!r}}}")))
    [finding] = found(site(GOOD.replace("slurm_partition: gpu}", "slurm_partition: 'gpu,olb'}")))["partitions"]
    assert (finding.level, "did you mean 'old'?" in finding.fix) == ("missing", True)


@pytest.mark.parametrize(
    ("age", "settings", "level", "fix"),
    [
        (300, GOOD, None, ""),
        (120, GOOD, "warning", "ask for a MinJobAge of 300"),
        (90, "slurm-status-command: squeue", "missing", "or set slurm-init-seconds-before-status-checks: 30 in "),
        (90, GOOD, "warning", "ask for a MinJobAge of 300"),
        (2, GOOD, "missing", "ask for a MinJobAge of 300"),
    ],
)
def test_a_cluster_that_forgets_its_jobs(programs, site, age, settings, level, fix):
    slurm(programs, age=age)
    findings = found(site(settings)).get("squeue", [])
    assert levels(findings) == ([level] if level else [])
    assert not level or fix in findings[0].fix


def test_cluster_with_accounting(programs, site):
    slurm(programs, accounting="slurmdbd", sacct="exit 0")
    [finding] = found(site("jobs: 3"))["accounting"]
    assert str(finding) == "ok       accounting: slurmdbd, sacct answers; the profile asks sacct"
    [finding] = found(site(GOOD))["accounting"]
    assert finding.level == "warning", "squeue sees the end of jobs, too"
    slurm(programs, accounting="slurmdbd", sacct="echo 'connection refused' >&2; exit 1")
    assert "sacct fails (connection refused)" in found()["accounting"][0].text


def test_controller_that_does_not_answer(programs, monkeypatch):
    slurm(programs)
    programs("sinfo", "/bin/sleep 60")
    monkeypatch.setattr(cluster, "SECONDS", 0.3)
    [finding] = cluster.slurm(ROOT, None)
    assert "sinfo did not answer" in finding.text


def test_the_file_of_a_profile_is_snakemakes(site, tmp_path):
    from snakemake.cli import get_profile_dir

    with pytest.raises(FedbenchError, match=r"--workflow-profile .*site: no config\.yaml there"):
        profiles.read(ROOT / "slurm/config.yaml", tmp_path / "site")
    for name in ("config.yml", "config.yaml", "config.v8+.yaml", "profile.v9+.yaml", "config.v999+.yaml"):
        folder = site(f"jobs: {name}", name)
        if name == "config.yml":
            with pytest.raises(FedbenchError, match="no config"):
                profiles.read(ROOT / "slurm/config.yaml", folder)
            continue
        _, expected = get_profile_dir(str(folder))
        assert profiles.read(ROOT / "slurm/config.yaml", folder).where == f"in {expected}"
    assert profiles.read(ROOT / "slurm/config.yaml", folder / "config.v8+.yaml").settings["jobs"] == "config.v8+.yaml"


def test_a_sites_key_replaces_the_whole_key(site):
    merged = profiles.read(ROOT / "slurm/config.yaml", site("set-resources: {run: {runtime: 60}}\nset-threads:\n"))
    assert merged.resources["run"] == {"mem_mb": 4000, "runtime": 60, "gpu": 1}, "the rule asks for it by itself"
    assert set(merged.resources) == {"", "base", "run"}
    assert merged.settings["set-threads"] == {"base": 4, "run": 2}, "a key without a value sets nothing"
    assert profiles.read(ROOT / "slurm/config.yaml", ROOT / "workflow/profiles/slurm").where == profiles.OWN


def test_the_repositorys_profiles_name_rules_of_the_workflow():
    for folder in (None, ROOT / "workflow/profiles/arrays"):
        assert list(profiles.read(ROOT / "slurm/config.yaml", folder).unknown_rules(ROOT)) == []


def test_folders(tmp_path, monkeypatch):
    [finding] = folders.usable("results", tmp_path / "a/b", "--results")
    assert (finding.level, "(not made yet)" in finding.text) == ("ok", True)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    [finding] = folders.usable("results", tmp_path / "file/b", "--results")
    assert (finding.level, finding.fix) == ("missing", "remove it or give another --results")
    for free, level in ((5e9, "warning"), (5e8, "missing")):
        monkeypatch.setattr(folders.shutil, "disk_usage", lambda path, free=free: type("Usage", (), {"free": free}))
        assert levels(folders.usable("results", tmp_path, "--results")) == [level]
    monkeypatch.setattr(folders, "_lockable", lambda descriptor: False)
    assert levels(folders.usable("results", tmp_path, "--results")) == ["warning", "missing"]


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")  # root may write anywhere, so it has to be pretended

    monkeypatch.setattr(folders.tempfile, "TemporaryFile", refuse)
    [finding] = folders.usable("checkpoints", tmp_path, "--checkpoints")
    assert (finding.level, "Permission denied" in finding.text) == ("missing", True)


def found_data(tmp_path: Path, *assignments: str) -> Finding:
    [finding] = inputs.datasets(Plan(load([SMOKE], assignments), tmp_path / "results"), tmp_path)
    return finding


def test_data(tmp_path):
    assert found_data(tmp_path).level == "ok"
    pictures = "datasets.digits={source: image-folder, path: pictures, size: 8, public: {fraction: 0.3}}"
    assert str(tmp_path / "pictures") in found_data(tmp_path, pictures).text
    assert found_data(tmp_path, pictures).level == "missing"
    (tmp_path / "pictures").mkdir()
    assert found_data(tmp_path, pictures).level == "ok"
    cifar = "datasets.digits={source: cifar10, public: {fraction: 0.3}}"
    assert found_data(tmp_path, cifar).level == "missing"
    assert found_data(tmp_path, cifar, "datasets.digits.download=true").level == "warning"
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10/cifar-10-python.tar.gz").write_text("")
    assert found_data(tmp_path, cifar).level == "ok"


def test_official_names_are_torchvisions():
    from torchvision import datasets

    for source, reader in (("cifar10", datasets.CIFAR10), ("cifar100", datasets.CIFAR100)):
        assert inputs.OFFICIAL[source] == (reader.base_folder, reader.filename, reader.__name__.lower())


def test_prepared_data_need_no_raw_data(tmp_path):
    pictures = "datasets.digits={source: image-folder, path: pictures, size: 8, public: {fraction: 0.3}}"
    plan = Plan(load([SMOKE], [pictures]), tmp_path / "results")
    folder = plan.paths.data("digits")
    folder.mkdir(parents=True)
    (folder / "dataset.json").write_text(json.dumps({"spec": plan.example("digits").data_spec}))
    assert found_data(tmp_path, pictures).text == f"prepared in {folder}"
    assert found_data(tmp_path, pictures, "datasets.digits.size=9").level == "missing"


def test_bases_from_elsewhere(tmp_path):
    def found(*assignments):
        return list(inputs.bases(Plan(load([SMOKE], assignments), tmp_path / "results"), tmp_path))

    assert found() == []
    [finding] = found("bases.public={kind: file, path: weights.safetensors}")
    assert (finding.level, "for tiny-vit on digits and 1 more" in finding.text) == ("missing", True)
    (tmp_path / "weights.safetensors").write_text("")
    assert levels(found("bases.public={kind: file, path: weights.safetensors}")) == ["ok"]
    assert levels(found("bases.public={kind: pretrained}")) == ["warning"]


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch_says(monkeypatch, None)
    monkeypatch.setattr(folders, "WISHED_BYTES", 0)
    monkeypatch.setattr(folders, "NEEDED_BYTES", 0)
    cli.main(["doctor", "--config", str(SMOKE)])
    lines = capsys.readouterr().out.splitlines()
    assert "ok       data set digits: source digits needs no files" in lines
    assert not [line for line in lines if line.startswith("missing")]
    with pytest.raises(SystemExit) as end:
        cli.main(["doctor", "--config", "nowhere.yaml"])
    assert end.value.code == 1
    assert "missing  config: nowhere.yaml: cannot read this config" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_the_exit_status_covers_the_cluster_that_is_meant(programs, site, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch_says(monkeypatch, None)
    monkeypatch.setattr(folders, "WISHED_BYTES", 0)
    slurm(programs)
    programs("sinfo", "exit 1")
    cli.main(["doctor", "--config", str(SMOKE)])
    assert "warning  slurm: sinfo fails" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        cli.main(["doctor", "--config", str(SMOKE), "--workflow-profile", str(site(GOOD))])
    assert end.value.code == 1
    assert "missing  slurm: sinfo fails" in capsys.readouterr().out


def test_a_config_whose_runs_cannot_be_resolved_is_a_finding_and_not_the_end(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["doctor", "--config", str(SMOKE), "--set", "training.rounds=abc"])
    assert stopped.value.code == 1
    out = capsys.readouterr().out
    assert "missing  config: training of " in out
    assert " checkpoints: " in out, "what comes after it is looked at all the same"


def test_it_works_where_packages_are_missing(tmp_path):
    hide = "import sys; sys.modules.update(dict.fromkeys(['torch', 'numpy', 'pydantic', 'yaml', 'filelock', 'rich']))"
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{hide}; from fedbench.cli.commands import main; main(['doctor', '--config', {str(SMOKE)!r}])",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": ""},
    )
    assert result.returncode == 1, result.stderr
    assert "missing  config: " in result.stdout
    assert "torch is not installed" in result.stdout
    assert result.stderr == ""
