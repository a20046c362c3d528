"""`fedbench status`: states, sizes and expected times, from folders that look like those of runs."""

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from fedbench.cli import commands as cli
from fedbench.cli.status_text import failures, table, totals, totals_line
from fedbench.config.identity import identity, identity_digest
from fedbench.config.plan import Plan
from fedbench.config.reading import load
from fedbench.files.io import write_json, write_sealed
from fedbench.status import evidence
from fedbench.status.status import STATES, look

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "workflow/configs/smoke.yaml"
NOW = 1_800_000_000.0
OLD = NOW - 7200
HASH = "a" * 64
FLITE = "digits/dirichlet/tiny-resnet/flite/seed0"
FEDAVG = "digits/dirichlet/tiny-resnet/fedavg/seed0"


class Folders:
    """Writes what runs leave behind."""

    def __init__(self, root: Path, assignments=("training.rounds=100",)):
        self.plan = Plan(load([SMOKE], assignments), root / "results")
        self.cells = {cell.path: cell for cell in self.plan.cells}
        self.checkpoints = root / "checkpoints"

    def checkpoint_folder(self, run: str) -> Path:
        return self.checkpoints / self.plan.paths.run(self.cells[run]).relative_to(self.checkpoints.parent)

    def digest(self, run: str) -> str:
        return self.plan.run_digest(self.cells[run])

    def write(self, path: Path, text: str, when: float = OLD) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (when, when))

    def own_log(self, run: str, *lines: str, when: float = OLD) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
        text = "".join(f"{stamp} {line}\n" for line in lines)
        self.write(self.plan.paths.run(self.cells[run]) / "log.txt", text, when)

    def started(self, run: str, *before: str, when: float = OLD) -> None:
        self.own_log(run, *before, f"run {self.digest(run)} ({run}) on cpu", when=when)

    def job_log(self, run: str, *lines: str, when: float = OLD) -> None:
        self.write(self.plan.paths.root / f"logs/run/{run}.log", "".join(f"{line}\n" for line in lines), when)

    def checkpoint(self, run: str, number: int, when: float = OLD) -> None:
        self.write(self.checkpoint_folder(run) / f"round{number:06}-{HASH}.safetensors", "not a checkpoint", when)

    def finish(self, run: str, digest: str | None = None, **values) -> None:
        defaults = {"digest": digest or self.digest(run), "rounds_done": 100, "seconds": {"wall": 50.0}, "files": {}}
        defaults["base_sha256"] = HASH
        self.write_summary(run, defaults | values)

    def write_summary(self, run: str, values: dict) -> None:
        path = self.plan.paths.run(self.cells[run]) / "summary.json"
        write_sealed(path, values)
        os.utime(path, (OLD, OLD))

    def status(self, run: str, now: float = NOW):
        return {status.cell.path: status for status in look(self.plan, self.plan.cells, self.checkpoints, now)}[run]


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path)


def test_nothing_there(folders):
    status = folders.status(FLITE)
    assert (status.state, status.round, status.rounds, status.bytes) == ("missing", 0, 100, 0)
    assert status.seconds_left is None


def test_done(folders):
    folders.finish(FLITE)
    status = folders.status(FLITE)
    assert (status.state, status.round, status.seconds_left, status.detail) == ("done", 100, 0.0, "")
    assert status.bytes == (folders.plan.paths.run(status.cell) / "summary.json").stat().st_size
    folders.finish(FLITE, diverged=True, diverged_round=7, rounds_done=7)
    status = folders.status(FLITE)
    assert (status.state, status.round, status.detail) == ("done", 7, "diverged in round 7")


def test_results_of_another_spec_are_outdated(folders):
    folders.finish(FLITE, digest="0" * 16)
    status = folders.status(FLITE)
    assert (status.state, status.round, status.detail) == (
        "outdated",
        0,
        "results made by another spec than the config's",
    )
    assert status.seconds_left == pytest.approx(50.0), "the other spec's pace is the best guess there is"


@pytest.mark.parametrize(
    ("changed", "detail"),
    [
        ("data", "results made from other data"),
        ("partition", "results made from another partition"),
        ("base", "results made with another base"),
    ],
)
def test_results_are_compared_with_the_inputs_that_are_there(folders, changed, detail):
    cell, paths = folders.cells[FLITE], folders.plan.paths
    hashes = {"data_sha256": {"images": "i", "all": "d"}, "partition_sha256": "p", "base_sha256": "b"}
    folders.finish(FLITE, **hashes)
    assert folders.status(FLITE).state == "done", "inputs that were removed are not compared"
    files = {
        "data": paths.data(cell.dataset) / "dataset.json",
        "partition": paths.partition(cell.dataset, cell.partition, 0) / "partition.json",
        "base": paths.base(cell.dataset, cell.model) / "base.json",
    }
    for name, path in files.items():
        write_json(path, {"sha256": hashes[f"{name}_sha256"]})
    assert folders.status(FLITE).state == "done"
    write_json(files[changed], {"sha256": {"images": "i", "all": "x"} if changed == "data" else "x"})
    status = folders.status(FLITE)
    assert (status.state, status.round, status.detail) == ("outdated", 0, detail)


def test_runs_from_before_bases_were_recorded_are_counted(folders, tmp_path, monkeypatch, capsys):
    folders.finish(FLITE, base_sha256=None)
    write_json(folders.plan.paths.base("digits", "tiny-resnet") / "base.json", {"sha256": "b"})
    assert folders.status(FLITE).state == "done"
    cli.main(["status", "--config", str(SMOKE), "--set", "training.rounds=100", "--results", str(tmp_path / "results")])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "1 run made before bases were recorded: not checked for another base"


def test_checkpoint_of_another_spec_is_outdated(folders):
    folders.own_log(FLITE, f"run {'0' * 16} ({FLITE}) on cpu")
    folders.checkpoint(FLITE, 40)
    status = folders.status(FLITE)
    assert (status.state, status.round, status.detail) == ("outdated", 0, "a checkpoint of another spec")


@pytest.mark.parametrize("made", ["same", "unknown base", "another base", "unreadable"])
def test_a_checkpoint_is_judged_by_its_inputs_too(folders, made):
    paths, cell = folders.plan.paths, folders.cells[FLITE]
    write_json(paths.data("digits") / "dataset.json", {"sha256": {"images": "i", "all": "d"}})
    write_json(paths.partition("digits", "dirichlet", 0) / "partition.json", {"sha256": "p"})
    if made != "unknown base":
        write_json(paths.base("digits", "tiny-resnet") / "base.json", {"sha256": "b"})
    folders.started(FLITE)
    own = identity(folders.plan.run_digest(cell), {"all": "d"}, "p", "old" if made.endswith("base") else "b")
    header = json.dumps({"__metadata__": {"digest": identity_digest(own)}}).encode()
    folders.checkpoint(FLITE, 40)
    (file,) = folders.checkpoint_folder(FLITE).glob("round*")
    if made != "unreadable":
        file.write_bytes(len(header).to_bytes(8, "little") + header)
    os.utime(file, (OLD, OLD))
    status = folders.status(FLITE)
    if made == "another base":
        detail = "a checkpoint of other data, another partition or another base"
        assert (status.state, status.round, status.detail) == ("outdated", 0, detail)
    else:
        assert (status.state, status.round) == ("resumable", 40)


def test_damaged_summary(folders):
    for text, complaint in (("{", "not valid JSON"), ("[]", "damaged"), ("{}", "damaged")):
        folders.write(folders.plan.paths.run(folders.cells[FLITE]) / "summary.json", text)
        status = folders.status(FLITE)
        assert status.state == "failed"
        assert complaint in status.detail


def test_a_run_without_one_of_its_tables(folders):
    folders.finish(FLITE, files={"rounds.csv": "0" * 64})
    status = folders.status(FLITE)
    assert status.state == "failed"
    assert status.detail.endswith("rounds.csv: missing; run again")


def test_stopped_run_is_resumable_at_the_newest_checkpoint(folders):
    folders.started(FLITE, when=OLD - 300)
    folders.checkpoint(FLITE, 20, OLD - 100)
    folders.checkpoint(FLITE, 30, OLD)
    folders.job_log(
        FLITE, f"{FLITE} round 30/100: loss 1", "interrupted after round 30 (SIGTERM); start again to go on"
    )
    status = folders.status(FLITE, now=OLD + 5)
    assert (status.state, status.round) == ("resumable", 30)
    assert status.seconds_left == pytest.approx(70 * 300 / 30, rel=0.01)
    assert status.bytes > 2 * len("not a checkpoint")


def test_a_continued_run_counts_its_pace_from_where_it_continued(folders):
    folders.started(FLITE, "continuing after round 30", when=OLD - 100)
    folders.checkpoint(FLITE, 50)
    assert folders.status(FLITE).seconds_left == pytest.approx(50 * 100 / 20, rel=0.01)


def test_killed_run_without_a_last_word_is_resumable(folders):
    folders.started(FLITE)
    folders.checkpoint(FLITE, 30)
    folders.write(folders.checkpoint_folder(FLITE).with_name("seed0.lock"), "")
    assert folders.status(FLITE).state == "resumable"


def test_failed_run_ends_with_its_last_line(folders):
    folders.started(FLITE)
    folders.job_log(FLITE, f"{FLITE} round 30/100: loss 1", "error: results/x: cannot write: no space left", when=NOW)
    status = folders.status(FLITE)
    assert (status.state, status.detail) == ("failed", "error: results/x: cannot write: no space left")
    assert status.log == folders.plan.paths.root / f"logs/run/{FLITE}.log"


@pytest.mark.parametrize(
    "lines",
    [
        ["Traceback (most recent call last):", '  File "x.py", line 1', "ZeroDivisionError: division by zero"],
        ["torch.OutOfMemoryError: CUDA out of memory"],
        ["Usage: fedbench train", "Error: Missing option '--dataset'."],
        ["slurmstepd: error: Detected 1 oom_kill event"],
        ['environment: line 2: 26136 Killed                  python -m fedbench "$command" "$@"'],
        ["/bin/sh: line 1:   411 Segmentation fault      (core dumped) python -m fedbench"],
        ["Killed"],
    ],
)
def test_failures_of_many_kinds(folders, lines):
    folders.checkpoint(FLITE, 3)
    folders.job_log(FLITE, *lines, when=NOW - 1)
    status = folders.status(FLITE)
    assert (status.state, status.detail, status.round) == ("failed", lines[-1], 3)


def test_a_run_that_ended_without_a_word_has_failed(folders):
    folders.started(FLITE)
    folders.job_log(FLITE, f"{FLITE} round 0/100: accuracy 10 %", when=OLD + 1)
    status = folders.status(FLITE)
    assert (status.state, status.detail) == (
        "failed",
        f"ended without a word after: {FLITE} round 0/100: accuracy 10 %",
    )


@pytest.mark.parametrize("when", [OLD, NOW - 5])
@pytest.mark.parametrize(
    ("last", "detail"),
    [
        ("results/runs/x/seed0/summary.json", "its results were removed"),
        ("stopped after round 5 (SIGTERM); start again to continue", "its checkpoint was removed"),
    ],
)
def test_a_run_whose_files_were_removed_is_missing(folders, last, detail, when):
    folders.job_log(FLITE, f"{FLITE} round 5/100: loss 1", last, when=when)
    status = folders.status(FLITE)
    assert (status.state, status.detail) == ("missing", detail)


@pytest.mark.parametrize(
    "last",
    [
        "interrupted before the first round (SIGTERM); start again to continue",
        "interrupted by Ctrl-C; start again to go on",
    ],
)
def test_a_run_that_stopped_before_any_round_is_resumable(folders, last):
    folders.job_log(FLITE, last, when=NOW - 5)
    status = folders.status(FLITE)
    assert (status.state, status.detail, status.round) == ("resumable", last, 0)


def test_an_empty_log_says_nothing(folders):
    folders.job_log(FLITE, when=NOW - 5)
    assert folders.status(FLITE).state == "missing", "Snakemake makes it when it submits the job"
    folders.checkpoint(FLITE, 5)
    folders.started(FLITE)
    assert folders.status(FLITE).state == "resumable"


def test_a_newer_stop_hides_an_older_error(folders):
    folders.job_log(FLITE, "error: once upon a time", when=OLD - 50)
    folders.own_log(FLITE, f"run {folders.digest(FLITE)} ({FLITE}) on cpu", "stopped after round 5 (SIGUSR1)")
    folders.checkpoint(FLITE, 5)
    status = folders.status(FLITE)
    assert (status.state, status.detail) == ("resumable", "stopped after round 5 (SIGUSR1)")


def test_a_run_that_wrote_lately_is_running(folders):
    folders.started(FLITE, when=NOW - 100)
    folders.write(folders.checkpoint_folder(FLITE).with_name("seed0.lock"), "")
    folders.job_log(FLITE, f"{FLITE} round 20/100: loss 2", f"{FLITE} round 40/100: loss 1", when=NOW - 20)
    status = folders.status(FLITE)
    assert (status.state, status.round) == ("running", 40)
    assert status.detail == "last sign 20 s ago, no lock on this machine"
    assert status.seconds_left == pytest.approx(60 * 80 / 40, rel=0.05)


@pytest.fixture
def zone(monkeypatch):
    """Move this process to another time zone."""

    def move(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


# As Asia/Tokyo, but without the need for a data base of zones.
UTC, TOKYO = "UTC0", "JST-9"


@pytest.mark.parametrize(("there", "here"), [(UTC, TOKYO), (TOKYO, UTC)])
def test_a_run_looks_the_same_from_another_time_zone(folders, zone, there, here):
    from fedbench.files.log import Log

    zone(there)
    began = time.time()
    path = folders.plan.paths.run(folders.cells[FLITE]) / "log.txt"
    path.parent.mkdir(parents=True)
    Log(path)(f"run {folders.digest(FLITE)} ({FLITE}) on cpu")
    folders.checkpoint(FLITE, 30, began + 300)
    zone(here)
    status = folders.status(FLITE, began + 4000)
    assert status.state == "resumable"
    assert status.seconds_left == pytest.approx(70 * 300 / 30, rel=0.02)


def test_a_stamp_without_an_offset_is_of_this_time_zone(folders, zone):
    zone(TOKYO)
    folders.started(FLITE, when=OLD - 300)
    assert "+" not in (folders.plan.paths.run(folders.cells[FLITE]) / "log.txt").read_text()
    folders.checkpoint(FLITE, 30)
    assert folders.status(FLITE).seconds_left == pytest.approx(70 * 300 / 30, rel=0.01)


def test_what_is_dated_in_the_future_is_not_believed(folders):
    """Neither that a killed run is at work, nor its pace, nor that an old log is the newest."""
    folders.started(FLITE, when=NOW + 40000)
    folders.checkpoint(FLITE, 30, NOW + 40300)
    folders.job_log(FLITE, f"{FLITE} round 30/100: loss 1", when=NOW + 40300)
    folders.write(folders.checkpoint_folder(FLITE).with_name("seed0.lock"), "")
    status = folders.status(FLITE)
    assert (status.state, status.round, status.seconds_left) == ("resumable", 30, None)

    folders.started(FEDAVG, when=NOW + 40000)
    folders.job_log(FEDAVG, f"{FEDAVG} round 0/100: loss 1", when=OLD)
    folders.write(folders.plan.paths.run(folders.cells[FEDAVG]) / "log.txt", "error: once upon a time\n", NOW + 9000)
    assert folders.status(FEDAVG).detail.startswith("ended without a word after")


def test_clocks_that_differ_by_seconds_are_believed(folders):
    folders.job_log(FLITE, "preparing data set digits", when=NOW + 5)
    status = folders.status(FLITE)
    assert (status.state, status.detail) == ("running", "last sign 0 s ago, no lock on this machine")


def test_long_rounds_are_given_more_time(folders):
    folders.started(FLITE, when=NOW - 3100)
    folders.write(folders.checkpoint_folder(FLITE).with_name("seed0.lock"), "")
    folders.checkpoint(FLITE, 2, NOW - 1100)  # 1000 s per round
    assert folders.status(FLITE).state == "running"
    assert folders.status(FLITE, NOW + 2000).state == "resumable"


def test_a_job_that_makes_its_inputs_is_running(folders):
    folders.job_log(FLITE, "preparing data set digits", when=NOW - 3)
    assert folders.status(FLITE).state == "running"
    assert folders.status(FLITE, NOW + 3600).state == "failed"


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system does not list locks")
def test_a_held_lock_means_running_and_stays_untouched(folders):
    lock_file = folders.checkpoint_folder(FLITE).with_name("seed0.lock")
    lock_file.parent.mkdir(parents=True)
    folders.started(FLITE)
    with FileLock(lock_file):
        status = folders.status(FLITE)
        assert (status.state, status.detail) == ("running", "")
        assert lock_file.exists()
    assert folders.status(FLITE).state == "failed"


def test_locks_are_read_from_the_systems_table(tmp_path):
    path = tmp_path / "locks"
    path.write_text(
        "1: FLOCK  ADVISORY  WRITE 12 fe:00:2392628 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 13 fe:00:99 0 EOF\n"
        "2: POSIX  ADVISORY  WRITE 14 00:17:7 0 EOF\n"
    )
    assert evidence.locked_inodes(path) == {2392628}
    assert evidence.locked_inodes(tmp_path / "none") == frozenset()


def test_time_left_is_learnt_from_the_closest_kin(tmp_path):
    folders = Folders(tmp_path, ["training.rounds=100", "seeds=[0, 1]"])
    assert folders.status(FLITE).seconds_left is None
    folders.finish(FLITE.replace("seed0", "seed1"), seconds={"wall": 200.0})
    assert folders.status(FLITE).seconds_left == pytest.approx(200.0)
    folders.checkpoint(FLITE, 75)
    assert folders.status(FLITE).seconds_left == pytest.approx(50.0)
    assert folders.status(FEDAVG).seconds_left is None
    base = FLITE.replace("flite", "base")
    folders.finish(base, rounds_done=0, seconds={"wall": 3.0})
    assert folders.status(base.replace("seed0", "seed1")).seconds_left == pytest.approx(3.0)


def test_table_totals_and_colours(folders):
    folders.finish(FLITE)
    folders.started(FEDAVG, when=OLD - 300)
    folders.checkpoint(FEDAVG, 30)
    statuses = look(folders.plan, folders.plan.cells, folders.checkpoints, NOW)
    text = table(statuses)
    assert len(text.splitlines()) == 1 + len(statuses)
    assert "\x1b" not in text
    assert any(line.split()[:2] == ["resumable", "30/100"] and FEDAVG in line for line in text.splitlines())
    narrow = table(statuses, width=30).splitlines()
    assert "\x1b[32mdone" in "".join(narrow)
    assert all(len(line.split("m", 1)[-1].replace("\x1b[0m", "")) <= 30 for line in narrow)
    sums = totals(statuses)
    assert sums["states"] == {"done": 1, "resumable": 1, "missing": 5, **dict.fromkeys(("running", "failed"), 0)} | {
        "outdated": 0
    }
    assert list(sums["states"]) == list(STATES)
    assert sums["runs_without_estimate"] == 5
    line = totals_line(statuses)
    assert line.startswith("7 runs: 1 done, 1 resumable, 5 missing; ")
    assert line.endswith("about 11:40 of computing left and 5 runs of unknown length")


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folders = Folders(Path())
    folders.finish(FLITE)
    folders.job_log(FEDAVG, "error: out of luck")
    arguments = ["--config", str(SMOKE), "--set", "training.rounds=100", "--results", "results"]
    cli.main(["status", *arguments])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9
    assert lines[-1].startswith("7 runs: 1 done, 1 failed, 5 missing; ")
    cli.main(["status", *arguments, "--match", "*/tiny-resnet/*", "--state", "failed", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert [run["run"] for run in answer["runs"]] == [FEDAVG]
    assert answer["runs"][0]["detail"] == "error: out of luck"
    assert answer["runs"][0]["log"] == f"results/logs/run/{FEDAVG}.log"
    assert answer["totals"]["runs"] == 4
    with pytest.raises(SystemExit) as end:
        cli.main(["status", *arguments, "--state", "lost"])
    assert end.value.code == 2
    assert "'lost' is none of done, running" in capsys.readouterr().err


def test_status_imports_no_torch(tmp_path):
    code = "import sys; from fedbench.cli.commands import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, "status", "--config", str(SMOKE)], check=True, cwd=tmp_path)


def test_three_thousand_runs_take_little_more_than_reading_their_files(tmp_path):
    folders = Folders(tmp_path, ["training.rounds=100", f"seeds={list(range(430))}"])
    for number, run in enumerate(folders.cells):
        kind = number % 3
        if kind == 0:
            folders.finish(run, spec={str(key): list(range(10)) for key in range(100)})
        if kind == 1:
            folders.started(run)
            folders.checkpoint(run, 20)
        if kind >= 1:
            folders.job_log(run, *[f"{run} round {r}/100: loss 1" for r in range(40)], "error: no luck")

    def report() -> list:
        plan = Plan(folders.plan.config, folders.plan.paths.root)  # nothing is known of its specs yet
        assert len(plan.cells) > 3000
        statuses = look(plan, plan.cells, folders.checkpoints)
        table(statuses)
        return statuses

    def read() -> None:
        for file in tmp_path.rglob("*"):
            if file.is_file():
                text = file.read_text()
                if file.suffix == ".json":
                    json.loads(text)

    def seconds(work) -> float:  # of one core; the wall time depends on who else is at work
        gc.collect()
        gc.disable()  # or it would go again and again through whatever other tests have left in memory
        started = time.process_time()
        work()
        gc.enable()
        return time.process_time() - started

    assert totals(report())["states"]["done"] == 1004
    assert min(seconds(report) / seconds(read) for _ in range(3)) < 3


def test_failures_name_jobs_of_all_kinds(tmp_path):
    assert failures({}) == ""
    (tmp_path / "a.log").write_text("loading\nerror: no such file\n")
    (tmp_path / "b.log").touch()
    jobs = {"run x/seed0": tmp_path / "b.log", "prepare x": tmp_path / "a.log", "base x/m": tmp_path / "missing.log"}
    assert failures(jobs).splitlines() == [
        "3 failed (fedbench status shows all runs):",
        f"  base x/m: never began, the reason stands above ({tmp_path / 'missing.log'})",
        f"  prepare x: error: no such file ({tmp_path / 'a.log'})",
        f"  run x/seed0: never began, the reason stands above ({tmp_path / 'b.log'})",
    ]
