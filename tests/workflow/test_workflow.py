"""The workflow as users call it: planning, what is run again, and the smoke config from end to end.

All tests share one finished run, so they stay in one process (``xdist_group``).
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from fedbench.config.plan import Plan
from fedbench.config.reading import load
from fedbench.files.io import read_json
from fedbench.status.status import look

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "workflow/configs/smoke.yaml"
RUNS = "results/smoke/runs/digits/dirichlet"
ANALYSIS = {"aggregate": 1, "figure": 5, "report": 1, "all": 1}

pytestmark = pytest.mark.xdist_group("workflow")


def snakemake(folder: Path, *arguments, config: Path | None = SMOKE, python=()) -> subprocess.CompletedProcess:
    """Call Snakemake with `folder` as the working directory; everything is written there."""
    chosen = [] if config is None else ["--configfile", str(config)]
    command = [sys.executable, *python, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    return subprocess.run(
        [*command, "--directory", str(folder), "--cores", "2", *chosen, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "FEDBENCH_DEVICE": "cpu"},
    )


def planned(folder: Path, *arguments, **options) -> tuple[dict[str, int], set[str]]:
    """Jobs per rule of a dry run, and the runs among them as model/method/seed."""
    result = snakemake(folder, "--dry-run", *arguments, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    text = result.stdout + result.stderr
    table = re.search(r"Job stats:\n(.*?)\ntotal ", text, re.DOTALL)
    jobs = re.findall(r"^(\w+) +(\d+)$", table[1], re.MULTILINE) if table else []
    runs = re.findall(r"^    output: \S+/runs/[^/]+/[^/]+/(\S+)/rounds\.csv", text, re.MULTILINE)
    return {rule: int(count) for rule, count in jobs}, set(runs)


def edited(folder: Path, old: str, new: str) -> Path:
    """The smoke config with one change, as another file."""
    text = SMOKE.read_text()
    assert text.count(old) == 1
    path = folder / f"edited-{abs(hash((old, new)))}.yaml"
    path.write_text(text.replace(old, new))
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A folder in which the smoke config has run to its end."""
    folder = tmp_path_factory.mktemp("finished")
    result = snakemake(folder, "--profile", ROOT / "workflow/profiles/local")
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def test_smoke_config_runs_from_end_to_end(finished):
    results = finished / "results/smoke"
    for name in ("report.html", "summary.csv", "tables/communication.tex", "figures/communication/pareto.pdf"):
        assert (results / name).stat().st_size > 0
    runs = sorted((finished / RUNS).rglob("summary.json"))
    assert len(runs) == 7
    plan = Plan(load([SMOKE]))
    assert {read_json(run)["digest"] for run in runs} == {plan.run_digest(cell) for cell in plan.cells}
    assert not list((finished / "checkpoints").rglob("*.safetensors"))


def test_logs_and_benchmarks_of_all_jobs(finished):
    results = finished / "results/smoke"
    logs = Counter(path.relative_to(results / "logs").parts[0] for path in (results / "logs").rglob("*.log"))
    assert logs == {"prepare": 1, "partition": 1, "base": 2, "run": 7, "figure": 5, "aggregate.log": 1, "report.log": 1}
    assert len(list((results / "benchmarks").rglob("*.tsv"))) == sum(logs.values())
    assert "round 2/2" in (results / "logs/run/digits/dirichlet/tiny-vit/fedsdg/seed0.log").read_text()


def test_a_second_call_does_nothing(finished):
    result = snakemake(finished)
    assert result.returncode == 0
    assert "Nothing to be done" in result.stdout + result.stderr


def test_what_was_deleted_is_made_again(finished, tmp_path):
    deleted = {
        "runs/digits/dirichlet/tiny-vit/fedsdg/seed0/summary.json": {**ANALYSIS, "run": 1, "figure": 2},
        "tables/communication.md": {"aggregate": 1, "report": 1, "all": 1},
        "report.html": {"report": 1, "all": 1},
    }
    for name, expected in deleted.items():
        os.replace(finished / "results/smoke" / name, tmp_path / "kept")
        try:
            assert planned(finished)[0] == expected, name
        finally:
            os.replace(tmp_path / "kept", finished / "results/smoke" / name)
    assert planned(finished)[0] == {}


def test_another_name_of_the_same_config_reruns_nothing(finished, tmp_path):
    copy = tmp_path / "copy.yaml"
    copy.write_text(SMOKE.read_text())
    assert planned(finished, config=copy) == ({}, set())


def test_an_edited_hyperparameter_reruns_just_its_cells(finished, tmp_path):
    jobs, runs = planned(finished, config=edited(tmp_path, "private_rank: 2", "private_rank: 3"))
    assert runs == {"tiny-vit/fedsdg/seed0"}
    assert jobs == {"run": 1, **ANALYSIS, "figure": 2}  # the other experiment's figures show none of it
    jobs, runs = planned(finished, "--config", "training={rounds: 3}")
    assert len(runs) == 7
    assert jobs == {"run": 7, **ANALYSIS}


def test_an_edited_base_reruns_what_starts_from_it(finished, tmp_path):
    jobs, _ = planned(finished, config=edited(tmp_path, "    epochs: 2", "    epochs: 3"))
    assert jobs == {"base": 2, "run": 7, **ANALYSIS}


def test_a_new_method_or_seed_reruns_nothing_that_exists(finished, tmp_path):
    added = edited(tmp_path, "method: [base, fa-lora, fedsdg]", "method: [base, fa-lora, fedsdg, fedavg]")
    jobs, runs = planned(finished, config=added)
    assert runs == {"tiny-vit/fedavg/seed0"}
    jobs, runs = planned(finished, "--config", "seeds=[0, 1]")
    assert len(runs) == 7
    assert all(run.endswith("/seed1") for run in runs)
    assert jobs == {"partition": 1, "run": 7, **ANALYSIS}


def test_a_new_figure_or_label_runs_nothing(finished, tmp_path):
    jobs, runs = planned(
        finished, config=edited(tmp_path, "figures: [pareto, gates]", "figures: [pareto, gates, ablation]")
    )
    assert (jobs["figure"], runs) == (3, set())  # the experiment's own
    jobs, runs = planned(finished, config=edited(tmp_path, "{method: fedavg}", "{method: fedavg, label: Averaging}"))
    assert (jobs, runs) == (ANALYSIS, set())


def test_one_run_by_name(finished):
    target = f"{RUNS}/tiny-vit/fedsdg/seed0/summary.json"
    jobs, runs = planned(finished, "--forcerun", "run", "--", target)
    assert (jobs, runs) == ({"run": 1}, {"tiny-vit/fedsdg/seed0"})


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (f"{RUNS}/tiny-vit/fedsgd/seed0/summary.json", "did you mean 'digits/dirichlet/tiny-vit/fedsdg/seed0'?"),
        ("results/smoke/partitions/digits/dirichlett/seed0/partition.npz", "did you mean 'dirichlet'?"),
        ("results/smoke/figures/communication/paretto.png", "has no figure 'paretto'; did you mean 'pareto'?"),
        ("results/smoke/tables/comunication.csv", "did you mean 'results/smoke/tables/communication.csv'?"),
        ("results/runs/digits/dirichlet/tiny-vit/fedsdg/seed0/summary.json", f"did you mean '{RUNS}/tiny-vit/fedsdg"),
        ("nonsense", "`fedbench cells` lists the runs"),
    ],
)
def test_wrong_targets_name_the_right_ones(tmp_path, target, expected):
    result = snakemake(tmp_path, "--dry-run", target)
    assert result.returncode != 0
    assert expected in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("training={rouns: 3}", "config.training.rouns: unknown key; did you mean 'rounds'?"),
        ("methods={fedsdg: {alignment: bass}}", "methods.fedsdg.alignment: "),
    ],
)
def test_config_mistakes_end_with_their_path(tmp_path, assignment, expected):
    result = snakemake(tmp_path, "--dry-run", "--config", assignment)
    assert result.returncode != 0
    assert expected in result.stdout + result.stderr


def test_the_full_benchmark_is_planned_without_torch(tmp_path):
    result = snakemake(tmp_path, "--dry-run", config=None, python=("-X", "importtime"))
    assert result.returncode == 0, result.stderr[-2000:]
    imported = {
        line.rsplit("|", 1)[1].strip() for line in result.stderr.splitlines() if line.startswith("import time:")
    }
    assert "fedbench.config.plan" in imported
    assert not imported & {"torch", "timm", "torchvision", "matplotlib", "sklearn"}
    expected = len(Plan(load([ROOT / "config.yaml"])).cells)
    assert re.search(rf"^run +{expected}$", result.stdout + result.stderr, re.MULTILINE)


def test_published_numbers_are_tables_like_others_and_follow_the_runs(tmp_path):
    jobs, _ = planned(tmp_path, "results/tables/published/negative-result.md", config=None)
    assert jobs["aggregate"] == 1
    assert jobs["run"] == len(Plan(load([ROOT / "config.yaml"])).cells)


@pytest.mark.parametrize("name", ["demo", "personalisation-cpu", "communication-cpu"])
def test_other_configs_are_planned(tmp_path, name):
    config = ROOT / f"workflow/configs/{name}.yaml"
    jobs, _ = planned(tmp_path, config=config)
    assert jobs["run"] == len(Plan(load([config])).cells)


@pytest.mark.parametrize("setting", [[], ["--set-resources", "run:runtime=60"]], ids=["profile", "one call"])
def test_slurm_profile_asks_for_gpus_only_where_models_train(tmp_path, setting):
    """Whatever is set in place of the profile's resources."""
    result = snakemake(tmp_path, "--dry-run", "--profile", ROOT / "slurm", *setting)
    assert result.returncode == 0, result.stderr[-2000:]
    blocks = re.findall(
        r"^rule (\w+):\n(.*?)(?=^\[|^Job stats)", result.stdout + result.stderr, re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 19
    asks = {
        resource: {rule for rule, text in blocks if re.search(rf"resources: .*\b{resource}=1\b", text)}
        for resource in ("gpu", "login")
    }
    assert asks == {"gpu": {"base", "run"}, "login": {"partition", "aggregate", "figure", "report"}}


def test_slurm_resources_follow_the_model_and_a_sites_settings(tmp_path):
    """Without an edit of the repository: a profile of the site is laid over the one that is here."""
    site = tmp_path / "site"
    site.mkdir()
    minutes = "7 if wildcards.model == 'tiny-vit' else 9"
    text = f"default-resources: {{slurm_account: mine}}\nset-resources: {{run: {{runtime: {minutes}}}}}"
    (site / "config.yaml").write_text(text)
    runs = {}
    for name, arguments in {"ours": [], "site": ["--workflow-profile", site]}.items():
        result = snakemake(tmp_path, "--dry-run", "--profile", ROOT / "slurm", *arguments)
        blocks = re.findall(r"^rule run:\n(.*?)(?=^\[|^Job stats)", result.stdout, re.MULTILINE | re.DOTALL)
        assert len(blocks) == 7, result.stderr[-2000:]
        runs[name] = [
            (re.search(r"model=([\w-]+)", block)[1], int(re.search(r"runtime=(\d+)", block)[1]), "=mine" in block)
            for block in blocks
        ]
    assert {(minutes, mine) for _, minutes, mine in runs["ours"]} == {(240, False)}
    assert set(runs["site"]) == {("tiny-vit", 7, True), ("tiny-resnet", 9, True)}


CTRL_C = """
name: ctrl-c
results: results
training: {rounds: 1000, local_steps: 600, batch_size: 8, learning_rate: 0.05}
datasets: {digits: {source: digits}}
partitions: {even: {scheme: iid, clients: 4}}
models: {mlp: {backbone: mlp}}
methods: {fedavg: {method: fedavg}}
experiments:
  only: {title: Only, cells: [{dataset: digits, partition: even, model: mlp, method: fedavg}]}
"""


def test_ctrl_c_saves_what_is_at_work_and_says_so(tmp_path, monkeypatch, ctrl_c):
    """It goes to Snakemake and all that it has started."""
    config = tmp_path / "ctrl-c.yaml"
    config.write_text(CTRL_C)
    log = tmp_path / "results/logs/run/digits/even/mlp/fedavg/seed0.log"
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--configfile", config]
    process = subprocess.Popen(
        [*command, "--directory", tmp_path, "--cores", "1"],
        env={**os.environ, "FEDBENCH_DEVICE": "cpu"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        while process.poll() is None and not (log.exists() and " round 0/" in log.read_text()):
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=600)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 1
    assert "Terminating processes on user request" in errors
    assert " failed (fedbench status shows all runs)" not in errors
    last = r"interrupted after round \d+ \(SIGINT\); start again to continue"
    assert re.fullmatch(last, log.read_text().splitlines()[-1])
    monkeypatch.chdir(tmp_path)
    (status,) = look(Plan(load([config])), Plan(load([config])).cells, Path("checkpoints"))
    assert status.state == "resumable"
    assert re.match(r"(stopped|interrupted) after round \d+ \(SIGINT\)", status.detail)
