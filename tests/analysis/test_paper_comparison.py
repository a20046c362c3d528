"""Published numbers beside ours, in a world whose answers are known."""

import shutil
from dataclasses import replace
from itertools import product
from math import isnan

import pandas as pd
import pytest
from distinct import TASKS, about, runs
from fake_runs import RECIPES, make_world, write_runs

from fedbench.analysis.collect import collect
from fedbench.analysis.paper_comparison import MEASURES, compare, lay_out
from fedbench.analysis.plot import plot
from fedbench.analysis.report import report
from fedbench.analysis.tables import aggregate
from fedbench.config import papers
from fedbench.config.papers import Paper, Published
from fedbench.config.spec import Cell, Paths

RUN = ("digits", "dirichlet-0.1", "vit")
NUMBERS = (
    Published("1", *RUN, "fedsdg", "personal_mean", 0.80, 0.01, 600_000),
    Published("2", *RUN, "fedsdg", "personal_mean", 0.80, 0.01, None),
    Published("fairness", *RUN, "fedsdg", "personal_p10", 0.65, None, None),
    Published("1", *RUN, "fa-lora", "personal_mean", 0.70, 0.02, None),
    Published("1", *RUN, "fedavg-sgd", "global", 0.6, None, None),
    Published("1", "digits", "elsewhere", "vit", "fedsdg", "personal_mean", 0.9, None, None),
)
SETTINGS = (
    {"are": {"training.rounds": 20, "partition.clients": 10, "method.rank": 8}, "free": ["*"]},
    {"where": {"method": "fa*"}, "are": {"method.rank": 4, "model.head": "frozen-etf"}},
    {"where": {"method": "fedavg*"}, "are": {"method.rank": 8}},
)


@pytest.fixture
def paper(monkeypatch):
    made = Paper("fake", "A paper", 3, ("everything else",), SETTINGS, NUMBERS)
    monkeypatch.setattr(papers, "names", lambda: ["fake"])
    monkeypatch.setattr(papers, "read", lambda name: made)
    return made


@pytest.fixture
def world(paper, fresh):
    return fresh(paper="fake")


def table(world):
    made, paths = world
    data = collect(made.config, paths).experiment("main")
    return data, compare(data)


def test_numbers_and_settings(world):
    _, rows = table(world)
    assert list(rows.method) == ["fedsdg", "fedsdg", "fa-lora", "fedavg-sgd"], "each once, and only what is asked for"
    first, tenth, second, diverged = rows.itertuples()
    assert first.table == "1, 2"
    assert (first.published, first.ours, first.n) == (0.80, pytest.approx(0.78), 3)
    assert first.ours_std == pytest.approx(0.0264575131)
    assert first.difference == pytest.approx(-0.02)
    assert (first.published_bytes, first.bytes) == (600_000, 593_296)
    assert tenth.ours == pytest.approx(0.70)
    assert first.setting == tenth.setting == "as stated"
    assert second.setting == "method.rank 8 (paper: 4); model.head trainable (paper: frozen-etf)"
    assert (diverged.n, diverged.diverged) == (2, 1)
    assert diverged.ours == pytest.approx(0.665 - 0.05)
    assert diverged.setting == "seeds 2 (paper: 3)"


@pytest.mark.parametrize("selection", ["last", "best", "tail"])
def test_ours_is_of_the_selection_and_of_sound_runs(monkeypatch, distinct, selection):
    """Every measure of every method, on tasks that share names; bytes are those of diverged runs, too."""
    numbers = tuple(
        Published("1", *task, method, measure, 0.5 + place / 100, None, 1000)
        for place, (task, method, measure) in enumerate(product(TASKS[::-1], ["whole", "gated"], MEASURES))
    )
    settings = ({"are": {}, "free": ["*"]},)
    monkeypatch.setattr(papers, "names", lambda: ["fake"])
    monkeypatch.setattr(papers, "read", lambda name: Paper("fake", "A paper", 4, (), settings, numbers))
    data = distinct(selection=selection)
    config = replace(data.config, experiments={"main": replace(data.experiment, paper="fake")})
    rows = compare(replace(data, config=config))
    assert len(rows) == len(numbers)
    for row, number in zip(rows.itertuples(), numbers, strict=True):
        task = (number.dataset, number.partition, number.model)
        sound = runs(data.paths, task, number.method, sound=True)
        chosen = [run.summary["selections"][selection] for run in sound]
        name = number.measure.removeprefix("personal_")
        found = about([one["global"] if name == "global" else one["personal"][name] for one in chosen])
        assert (row.ours, row.ours_std, row.n) == (
            pytest.approx(found["mean"]),
            pytest.approx(found["std"]),
            found["n"],
        )
        assert row.difference == pytest.approx(found["mean"] - number.value)
        every = runs(data.paths, task, number.method)
        sizes = [run.summary["bytes"]["uplink_per_client_round"] for run in every]
        assert row.bytes == pytest.approx(sum(sizes) / len(sizes))
        assert row.diverged == len(every) - len(sound)
        assert row.setting == ("as stated" if found["n"] == 4 else f"seeds {found['n']} (paper: 4)")
        assert row.label == {"whole": "Whole", "gated": "Gated"}[number.method]


def test_missing_cells_fill_in(world):
    made, paths = world
    for seed in range(3):
        shutil.rmtree(paths.run(Cell(*RUN, "fedsdg", seed)))
    shutil.rmtree(paths.run(Cell(*RUN, "fa-lora", 2)))
    files = aggregate(made.config, paths, require_all=False)
    folder = paths.root / "tables" / "published"
    assert {folder / f"main.{kind}" for kind in ("csv", "md", "tex")} <= set(files)
    lines = [line for line in (folder / "main.md").read_text().splitlines() if line.startswith("| Fed")]
    assert lines[0] == "| FedSDG | 1, 2 | 80.00 ± 1.00 | – | – | 0 | 600 kB | – | as stated |"
    written = pd.read_csv(folder / "main.csv")
    assert isnan(written.ours[0])
    assert "seeds 2 (paper: 3)" in written.setting[2]
    write_runs(made, paths)
    aggregate(made.config, paths)
    (line,) = [line for line in (folder / "main.md").read_text().splitlines() if line.startswith("| FedSDG | 1")]
    assert "| 78.00 ± 2.65 | −2.00 | 3 |" in line


def test_another_setting_is_marked(paper, tmp_path):
    made, paths = make_world(paper="fake"), Paths(tmp_path)
    made.config.training["rounds"] = 7
    write_runs(made, paths)
    data = collect(made.config, paths).experiment("main")
    shown = lay_out(data, compare(data))
    assert all(row[-1].text.startswith("differs (") for group in shown.groups for row in group.rows)
    assert any("training.rounds 7 (paper: 20)" in note for note in shown.notes)
    assert any("does not say: everything else" in note for note in shown.notes)


def test_what_all_departures_have_in_common_is_said_once(paper, tmp_path):
    made, paths = make_world(paper="fake"), Paths(tmp_path)
    made.config.training["rounds"] = 7
    write_runs(made, paths)
    data = collect(made.config, paths).experiment("main")
    notes = lay_out(data, compare(data)).notes
    assert notes[-3:] == [
        "(1) to (3) training.rounds 7 (paper: 20).",
        "(2) also method.rank 8 (paper: 4); model.head trainable (paper: frozen-etf).",
        "(3) also seeds 2 (paper: 3).",
    ]


def test_the_report_has_them(world):
    made, paths = world
    plot(made.config, paths)
    text = report(made.config, paths).read_text()
    assert "numbers published in A paper" in text
    assert "80.00 ± 1.00" in text


def test_without_a_paper_there_is_no_table(fresh):
    made, paths = fresh(recipes={"fa-lora": RECIPES["fa-lora"]})
    assert not any("published" in str(file) for file in aggregate(made.config, paths))
