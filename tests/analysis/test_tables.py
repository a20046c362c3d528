"""Collecting runs and the tables made from them, against a world whose answers are known."""

import shutil
from math import isnan

import pandas as pd
import pytest
from fake_runs import BASE, CLIENTS, RECIPES, ROUNDS, Recipe, make_world, write_run
from scipy import stats

from fedbench.analysis.collect import collect
from fedbench.analysis.layout import escape_latex, lay_out
from fedbench.analysis.summary_row import COLUMNS
from fedbench.analysis.tables import TARGET_MARGIN, aggregate, build
from fedbench.analysis.text import human_bytes, percent, signed
from fedbench.config.entries import Experiment, Grid
from fedbench.config.spec import Cell, Paths
from fedbench.errors import FedbenchError
from fedbench.files.io import read_sealed, write_csv, write_sealed


@pytest.fixture(scope="module")
def table(results):
    world, paths = results
    return build(collect(world.config, paths).experiment("main")).set_index("method")


def test_summary_has_one_row_per_run(results, tmp_path):
    world, paths = results
    files = aggregate(world.config, paths)
    summary = pd.read_csv(paths.root / "summary.csv")
    assert list(summary.columns) == COLUMNS
    assert len(summary) == len(RECIPES) * 3
    assert {file.name for file in files} == {"summary.csv", "main.csv", "main.md", "main.tex"}
    row = summary[(summary.method == "fedsdg") & (summary.seed == 1)].iloc[0]
    assert row.last_personal_mean == pytest.approx(0.79)
    assert row.base_personal == pytest.approx(BASE)
    assert row.gain_over_base_last_personal == pytest.approx(0.29)
    assert row.gain_over_local_last_personal == pytest.approx(0.79 - 0.62)
    assert row.bytes_total == 2 * 593_296 * CLIENTS * ROUNDS
    assert row.bytes_per_client == 2 * 593_296 * ROUNDS
    assert row.bytes_uplink == row.bytes_downlink == row.bytes_total / 2
    assert row.bytes_one_time == 21_000_000
    assert row.method_label == "FedSDG"
    row = summary[(summary.method == "fedavg-top-1") & (summary.seed == 1)].iloc[0]
    assert (row.bytes_uplink_per_client_round, row.bytes_downlink_per_client_round) == (443_498, 22_174_864)
    assert (row.bytes_uplink_per_client, row.bytes_downlink_per_client) == (443_498 * ROUNDS, 22_174_864 * ROUNDS)
    assert row.bytes_per_client == row.bytes_uplink_per_client + row.bytes_downlink_per_client


def test_means_and_intervals(table):
    row = table.loc["fedsdg"]
    assert row.n == 3
    assert row.accuracy_mean == pytest.approx(0.78)
    assert row.accuracy_std == pytest.approx(0.0264575131)
    assert row.accuracy_high - row.accuracy_mean == pytest.approx(4.302652729911275 * 0.0264575131 / 3**0.5)
    assert row.gain_over_base_mean == pytest.approx(0.28)
    assert row.gain_over_local_mean == pytest.approx(0.17)
    assert row.worst == pytest.approx(0.68)


def test_paired_difference_and_holm(table):
    a, b = RECIPES["fedsdg"].accuracy, RECIPES["fa-lora"].accuracy
    expected = stats.ttest_rel(a, b)
    row = table.loc["fedsdg"]
    assert row.difference_mean == pytest.approx(0.06)
    assert row.difference_p == pytest.approx(expected.pvalue)
    assert row.difference_n == 3
    tested = table.difference_p.dropna()
    assert len(tested) == len(RECIPES) - 1
    assert row.difference_p_holm >= row.difference_p
    # the smallest p is multiplied by the size of the family
    smallest = tested.idxmin()
    assert table.difference_p_holm[smallest] == pytest.approx(min(1, len(tested) * tested.min()))
    assert isnan(table.difference_p_holm["fa-lora"])


def test_frontier_and_hypervolume(table):
    assert set(table.index[table.frontier]) == {"local-only", "fedsdg"}
    shares = table.hypervolume_share
    assert shares["fedsdg"] > 0
    assert shares["fedavg"] == 0
    assert (table.hypervolume_task == table.hypervolume_task.iloc[0]).all()


def test_cost_to_target(table):
    row = table.loc["fedsdg"]
    assert row.target_accuracy == pytest.approx(0.72 - TARGET_MARGIN)
    assert row.bytes_to_target == row.rounds_to_target * 2 * 593_296 * CLIENTS
    assert 0 < row.rounds_to_target < table.loc["fa-lora"].rounds_to_target < ROUNDS
    assert isnan(table.loc["head-only"].rounds_to_target)


def test_diverged_runs_are_counted_and_enter_no_mean(table, results):
    row = table.loc["fedavg-sgd"]
    assert (row.n, row.diverged) == (2, 1)
    assert row.accuracy_mean == pytest.approx((0.66 + 0.67) / 2)
    assert not row.frontier
    world, paths = results
    aggregate(world.config, paths)
    text = (paths.root / "tables" / "main.md").read_text()
    line = next(line for line in text.splitlines() if "FedAvg (SGD)" in line)
    assert "†" in line
    assert "2 of 3" in line
    assert "† diverged" in text


def test_a_method_that_always_diverges_is_shown_as_such(fresh):
    recipes = {
        "fa-lora": RECIPES["fa-lora"],
        "fedavg": Recipe({"method": "fedavg", "label": "FedAvg"}, (0.9, 0.9, 0.9), 1, 1, diverged=frozenset({0, 1, 2})),
    }
    world, paths = fresh(recipes=recipes)
    rows = build(collect(world.config, paths).experiment("main")).set_index("method")
    assert rows.loc["fedavg"].n == 0
    assert isnan(rows.loc["fedavg"].accuracy_mean)
    assert rows.frontier.tolist() == [True, False]
    aggregate(world.config, paths)
    assert "diverged" in (paths.root / "tables" / "main.md").read_text()


def test_single_seed_has_no_interval(fresh):
    world, paths = fresh(seeds=(0,))
    data = collect(world.config, paths).experiment("main")
    rows = build(data)
    assert rows.accuracy_low.isna().all()
    assert rows.accuracy_std.isna().all()
    assert rows.difference_p.isna().all()
    shown = lay_out(data, rows)
    cells = [cell.text for group in shown.groups for row in group.rows for cell in row]
    assert not any("±" in cell or "[" in cell for cell in cells)
    assert "One seed gives no interval." in shown.notes
    assert "n = 1" in shown.caption


def test_missing_run_is_an_error_or_a_note(fresh):
    world, paths = fresh()
    shutil.rmtree(paths.run(Cell("digits", "dirichlet-0.1", "vit", "fedsdg", 1)))
    with pytest.raises(FedbenchError, match=r"1 of 24 runs .* digits/dirichlet-0.1/vit/fedsdg/seed1 \(not run yet\)"):
        aggregate(world.config, paths)
    assert not (paths.root / "summary.csv").exists()
    aggregate(world.config, paths, require_all=False)
    assert len(pd.read_csv(paths.root / "summary.csv")) == 23
    assert "1 of 24 runs are missing" in (paths.root / "tables" / "main.md").read_text()


def test_run_of_another_spec_is_missing(fresh):
    world, paths = fresh()
    other = make_world()
    other.config.training["rounds"] = 7
    cell = Cell("digits", "dirichlet-0.1", "vit", "fedavg", 0)
    write_run(other, cell, paths)
    with pytest.raises(FedbenchError, match="made by another spec"):
        aggregate(world.config, paths)


def test_no_table_of_another_spec_is_left(fresh, monkeypatch):
    """Neither an experiment's own nor that of a paper's numbers, whether the runs are of another spec or gone."""
    world, paths = fresh()
    for name, method in (("stale", "fedavg"), ("gone", "fedsdg"), ("kept", "fa-lora")):
        grid = Grid(dataset="digits", partition="dirichlet-0.1", model="vit", method=method)
        world.config.experiments[name] = Experiment(title=name, cells=[grid])
    aggregate(world.config, paths)
    folder = paths.root / "tables"
    (folder / "published").mkdir()
    (folder / "published" / "stale.md").write_text("**Stale**\n\n| Method | n |\n")
    other = make_world()
    other.config.training["rounds"] = 7
    for seed in range(3):
        write_run(other, Cell("digits", "dirichlet-0.1", "vit", "fedavg", seed), paths)
        shutil.rmtree(paths.run(Cell("digits", "dirichlet-0.1", "vit", "fedsdg", seed)))
    said = []
    files = aggregate(world.config, paths, require_all=False, log=said.append)
    assert said[0] == "left out: 6 of 24 runs (3 not run yet, 3 made by another spec than the config's)"
    assert len(said) == 1 + 3 + 1 + 3
    assert all(line.startswith(f"removed {folder}") for line in said[1:])
    assert {path for path in folder.rglob("*") if path.is_file()} == set(files) - {paths.root / "summary.csv"}
    assert {path.stem for path in files} == {"summary", "main", "kept"}


def test_nothing_is_said_of_whole_results(results):
    world, paths = results
    said = []
    aggregate(world.config, paths, require_all=False, log=said.append)
    assert said == []


def test_percentiles_over_clients_stand_in_the_table_and_are_defined(results):
    world, paths = results
    data = collect(world.config, paths).experiment("main")
    shown = lay_out(data, build(data))
    first = shown.columns.index("Worst")
    assert shown.columns[first : first + 4] == ["Worst", "P10", "P50", "P90"]
    row = next(row for row in shown.groups[0].rows if row[0].text == "FedSDG")
    assert [cell.text for cell in row[first : first + 4]] == ["68.0", "70.0", "78.0", "86.0"]
    assert any(note.startswith("Worst, P10, P50, P90:") and "averaged over seeds" in note for note in shown.notes)


def test_nothing_run_yet(tmp_path):
    with pytest.raises(FedbenchError, match="no finished run of config 'fake'"):
        aggregate(make_world().config, Paths(tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("summary.json", "{", "not valid JSON"),
        ("summary.json", "{}", "no 'sha256'"),
        ("rounds.csv", "", "damaged"),
        ("clients.csv", 'client\n"', "damaged"),
        ("clients.csv", None, "cannot read"),
    ],
)
def test_damaged_file_is_one_clear_line(fresh, name, content, message):
    world, paths = fresh()
    path = paths.run(Cell("digits", "dirichlet-0.1", "vit", "fedavg", 0)) / name
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(FedbenchError, match=message) as error:
        aggregate(world.config, paths)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["rounds.csv", "clients.csv", "gates.csv"])
def test_a_table_that_lost_rows_is_noticed(fresh, name):
    world, paths = fresh()
    path = paths.run(Cell("digits", "dirichlet-0.1", "vit", "fedsdg", 0)) / name
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))
    with pytest.raises(FedbenchError, match=rf"{name}: damaged \(not the contents .*; delete the run's"):
        aggregate(world.config, paths)


def test_a_table_of_another_version_is_noticed(fresh):
    world, paths = fresh()
    folder = paths.run(Cell("digits", "dirichlet-0.1", "vit", "fedavg", 0))
    summary = read_sealed(folder / "summary.json")
    summary["files"]["rounds.csv"] = write_csv(folder / "rounds.csv", ["round"], [{"round": 20}])
    write_sealed(folder / "summary.json", summary)
    with pytest.raises(FedbenchError, match=r"no column cumulative_bytes, .*; another version wrote it"):
        aggregate(world.config, paths)


def test_an_edited_summary_is_noticed(fresh):
    world, paths = fresh()
    path = paths.run(Cell("digits", "dirichlet-0.1", "vit", "fedavg", 0)) / "summary.json"
    path.write_text(path.read_text().replace('"diverged": false', '"diverged": true'))
    with pytest.raises(FedbenchError, match=r"summary\.json: damaged \(not the contents that were written\)"):
        aggregate(world.config, paths)


def test_summary_without_a_key_names_it(fresh):
    world, paths = fresh()
    path = paths.run(Cell("digits", "dirichlet-0.1", "vit", "fedavg", 0)) / "summary.json"
    values = read_sealed(path)
    del values["bytes"]["one_time"]
    write_sealed(path, values)
    with pytest.raises(FedbenchError, match="key 'one_time'"):
        aggregate(world.config, paths)


def test_selection_best_without_validation(fresh):
    world, paths = fresh(selection="best")
    for path in paths.root.glob("runs/**/summary.json"):
        values = read_sealed(path)
        del values["selections"]["best"]
        write_sealed(path, values)
    with pytest.raises(FedbenchError, match=r"experiments\.main\.selection"):
        aggregate(world.config, paths)


def test_second_call_writes_the_same_bytes(fresh):
    world, paths = fresh()
    first = {file: file.read_bytes() for file in aggregate(world.config, paths)}
    second = {file: file.read_bytes() for file in aggregate(world.config, paths)}
    assert first == second


def test_experiments_share_runs(fresh):
    world, paths = fresh()
    grid = Grid(dataset="digits", partition="dirichlet-0.1", model="vit", method=["fedsdg", "fa-lora"])
    world.config.experiments["few"] = Experiment(title="Few", cells=[grid], seeds=[2, 0])
    collection = collect(world.config, paths)
    few = collection.experiment("few")
    assert list(zip(few.runs.method, few.runs.seed, strict=True)) == [
        ("fedsdg", 2), ("fedsdg", 0), ("fa-lora", 2), ("fa-lora", 0),
    ]  # fmt: skip
    assert len(collection.runs) == 24
    shown = lay_out(few, build(few))
    assert not any(column.startswith(("Δ", "p (")) for column in shown.columns)


def test_directions_have_columns_of_their_own(results):
    world, paths = results
    data = collect(world.config, paths).experiment("main")
    shown = lay_out(data, build(data))
    row = next(row for row in shown.groups[0].rows if row[0].text == "FedAvg & top_1%")
    texts = dict(zip(shown.columns, (cell.text for cell in row), strict=True))
    assert texts["Up / client / round"] == "443 kB"
    assert texts["Down / client / round"] == "22.2 MB"
    assert (texts["Up"], texts["Down"], texts["Total"]) == ("88.7 MB", "4.43 GB", "4.52 GB")
    assert texts["Per client"] == "452 MB"


def test_gain_over_base_stands_in_every_table(fresh):
    """Also where the untouched base is no method of the experiment, and for either metric."""
    recipes = {name: RECIPES[name] for name in ("fa-lora", "fedsdg")}
    world, paths = fresh(recipes=recipes, reference=None, metric="global")
    data = collect(world.config, paths).experiment("main")
    shown = lay_out(data, build(data))
    place = shown.columns.index("Gain over base")
    assert [row[place].text for row in shown.groups[0].rows] == ["+22.0", "+28.0"]


def test_tasks_become_groups(fresh):
    world, paths = fresh(partitions={"dirichlet-0.1": "Dirichlet 0.1", "iid": "IID"})
    data = collect(world.config, paths).experiment("main")
    shown = lay_out(data, build(data))
    assert [group.title for group in shown.groups] == ["Dirichlet 0.1", "IID"]
    aggregate(world.config, paths)
    assert r"\multicolumn" in (paths.root / "tables" / "main.tex").read_text()


def test_equal_labels_are_told_apart(fresh):
    recipes = {name: Recipe({"method": "fedavg", "label": "FedAvg"}, (0.7, 0.7, 0.7), 1, 1) for name in ("a", "b")}
    world, paths = fresh(recipes=recipes, reference=None)
    assert list(collect(world.config, paths).experiment("main").methods.values()) == ["FedAvg (a)", "FedAvg (b)"]


def test_latex_is_escaped(results):
    assert escape_latex(r"50 % of a_b & {c} ~ $x$ #1 ^ \d") == (
        r"50 \% of a\_b \& \{c\} \textasciitilde{} \$x\$ \#1 \textasciicircum{} \textbackslash{}d"
    )
    world, paths = results
    aggregate(world.config, paths)
    text = (paths.root / "tables" / "main.tex").read_text()
    assert r"FedAvg \& top\_1\%" in text
    assert text.count(r"\resizebox{\textwidth}") == text.count(r"\end{tabular}}") == 1  # too wide for a page
    assert text.isascii()
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert len({line.replace(r"\&", "").count("&") for line in rows}) == 1


def test_markdown_rows_have_one_width(results):
    world, paths = results
    aggregate(world.config, paths)
    lines = [line for line in (paths.root / "tables" / "main.md").read_text().splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (648, "648 B"), (999, "999 B"), (1000, "1 kB"), (5120, "5.12 kB"), (999_999, "1 MB"),
     (44_639_000, "44.6 MB"), (8.87e9, "8.87 GB"), (float("nan"), "")],
)  # fmt: skip
def test_human_bytes(count, text):
    assert human_bytes(count) == text


def test_percent_and_signed():
    assert percent(0.7845) == "78.5"
    assert signed(-0.012) == "−1.2"
    assert signed(0.0004) == "+0.0" or signed(0.0004) == "0.0"
    assert signed(-0.0) == "0.0"
    assert signed(float("nan")) == ""
