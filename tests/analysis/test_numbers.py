"""Every column of summary.csv and of the tables, in a world in which every number differs."""

from itertools import product
from math import isnan, log10, nan
from statistics import mean

import pytest
from distinct import (
    ABSENT,
    RECIPES,
    SEEDS,
    TASKS,
    A,
    B,
    C,
    D,
    about,
    adjusted,
    beaten,
    runs,
    to_target,
    within,
)
from scipy import stats

from fedbench.analysis.layout import caption, lay_out
from fedbench.analysis.statistics import hypervolume
from fedbench.analysis.summary_row import COLUMNS

HEADLINES = [("personal", "last"), ("personal", "best"), ("personal", "tail"), ("global", "best")]
COLUMN = {"personal": "test_accuracy_mean", "global": "global_accuracy"}
SPREAD = ("mean", "std", "low", "high")
BUDGET = 2e8


def total(run):
    return run.summary["bytes"]["cumulative_total"]


def expected_row(paths, task, method, metric, selection):
    """What a table must say of a method on a task, but for what depends on the task's other methods."""
    every, sound = runs(paths, task, method), runs(paths, task, method, sound=True)
    pooled = method == "pooled"
    row = {
        "dataset": task[0], "partition": task[1], "model": task[2], "method": method,
        "label": RECIPES[method].entry["label"],
        "n": len(sound),
        "diverged": len(every) - len(sound),
        "at_chance": sum(run.summary["selections"]["last"]["personal"]["mean"] <= 0.1 for run in sound),
    }  # fmt: skip
    chosen = [run.summary["selections"][selection] for run in sound]
    groups = {
        "accuracy": [run.headline(metric, selection) for run in sound],
        "held_out": [one["held_out"]["mean"] for one in chosen],
        "gain_over_base": [
            run.headline(metric, selection) - run.summary["base"]["personal_mean" if metric == "personal" else "global"]
            for run in sound
        ],
    }
    alone = {run.seed: run.headline("personal", selection) for run in runs(paths, task, "alone")}
    own = {run.seed: run.headline("personal", selection) for run in sound}
    groups["gain_over_local"] = [own[seed] - alone[seed] for seed in own]
    for name, values in groups.items():
        row |= {f"{name}_{part}": about(values)[part] for part in SPREAD}
    for name in ("p10", "p50", "p90", "worst"):
        row[name] = mean(one["personal"][name] for one in chosen)

    reference = {run.seed: run.headline(metric, selection) for run in runs(paths, task, "ref", sound=True)}
    ours = {run.seed: run.headline(metric, selection) for run in sound}
    both = [] if method == "ref" else sorted(reference.keys() & ours.keys())
    row["difference_n"] = len(both)
    found = about([ours[seed] - reference[seed] for seed in both]) if both else dict.fromkeys(SPREAD, nan)
    row |= {f"difference_{part}": found[part] for part in ("mean", "low", "high")}
    row["difference_p"] = (
        stats.ttest_rel([ours[seed] for seed in both], [reference[seed] for seed in both]).pvalue if both else nan
    )

    clients = every[0].summary["clients"]
    directions = {direction: mean(run.summary["bytes"][f"{direction}_total"] for run in every)
                  for direction in ("uplink", "downlink")}  # fmt: skip
    sizes = {
        **{f"bytes_{direction}": value for direction, value in directions.items()},
        **{f"bytes_{direction}_per_client": value / clients for direction, value in directions.items()},
        "bytes_total": sum(directions.values()),
        "bytes_per_client": sum(directions.values()) / clients,
        "bytes_one_time": 21_000_000 if RECIPES[method].up else 0,
        **{
            f"bytes_{direction}_per_client_round": mean(
                run.summary["bytes"][f"{direction}_per_client_round"] for run in every
            )
            for direction in ("uplink", "downlink")
        },
    }
    row |= dict.fromkeys(sizes, nan) if pooled else sizes
    row |= {"parameters_shared": RECIPES[method].up // 4, "parameters_private": 12 if method == "gated" else 0}
    row["seconds_wall"] = mean(run.summary["seconds"]["wall"] for run in every)

    target = mean(reference.values()) - 0.01
    number, sent = to_target(sound, COLUMN[metric], target)
    row |= {"target_accuracy": target, "rounds_to_target": number, "bytes_to_target": nan if pooled else sent}
    reached, _ = within(sound, COLUMN[metric], BUDGET)
    spent = about(reached) if reached and not pooled else dict.fromkeys(("n", *SPREAD), nan) | {"n": 0}
    spent["n"] = nan if pooled else len(reached)
    return row | {"budget_bytes": BUDGET} | {f"accuracy_at_budget_{name}": value for name, value in spent.items()}


def expected_table(paths, metric, selection):
    rows = []
    for task in TASKS:
        part = [expected_row(paths, task, method, metric, selection) for method in RECIPES]
        offered = [(row["bytes_total"], row["accuracy_mean"]) for row in part if not row["diverged"]]
        offered = [point for point in offered if not isnan(point[0])]
        costs = [cost for cost, _ in offered if cost > 0]
        bases = [
            run.summary["base"]["personal_mean" if metric == "personal" else "global"]
            for method in RECIPES
            for run in runs(paths, task, method)
        ]
        box = {"floor": mean(bases), "cheapest": min(costs), "dearest": max(costs)}
        whole = hypervolume(*zip(*offered, strict=True), **box)
        for row in part:
            point = row["bytes_total"], row["accuracy_mean"]
            row["frontier"] = point in offered and not beaten(point, offered)
            others = [other for other in offered if other != point]
            row["hypervolume_share"] = whole - hypervolume(*zip(*others, strict=True), **box)
            row["hypervolume_task"] = whole
        rows += part
    for row, p in zip(rows, adjusted([row["difference_p"] for row in rows]), strict=True):
        row["difference_p_holm"] = p
    return rows


@pytest.fixture(scope="module", params=HEADLINES, ids="-".join)
def headline(request, distinct):
    metric, selection = request.param
    return metric, selection, distinct(metric=metric, selection=selection)


def test_every_column_of_every_row(headline, table):
    metric, selection, data = headline
    rows, expected = table(metric=metric, selection=selection), expected_table(data.paths, metric, selection)
    assert len(rows) == len(expected)
    assert set(rows.columns) == set(expected[0])
    for row in expected:
        found = rows.loc[tuple(row[name] for name in ("dataset", "partition", "model", "method"))]
        for name, value in row.items():
            where = f"{name} of {row['method']} on {row['dataset']}/{row['partition']}/{row['model']}"
            if isinstance(value, float):
                value = pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True)
            assert found[name] == value, where


def test_the_world_tells_things_apart(headline, table):
    """Otherwise the tests above would not notice what they are there for."""
    metric, selection, data = headline
    for run in runs(data.paths, A, "gated"):
        chosen = run.summary["selections"]
        assert chosen["best"]["rounds"] == [8]
        assert chosen["last"]["rounds"] == [12]
        accuracies = {number: accuracy for number, (accuracy, _) in run.evaluated(COLUMN[metric]).items()}
        assert max(accuracies, key=accuracies.get) == 6, "neither of them has the best test accuracy"
    rows = table(metric=metric, selection=selection)
    trained = rows[rows.method != "base"]
    for name in ("accuracy_mean", "accuracy_std", "worst", "p10", "p50", "p90", "gain_over_base_mean", "held_out_mean"):
        assert trained[name].nunique() == len(trained), name
    assert {cell.seed for cell in ABSENT} > {1, 3}
    assert data.runs[(data.runs.method == "gated") & (data.runs.partition == "skewed")].seed.tolist()[:3] == [1, 3, 2]


def test_pairs_are_of_one_seed(table):
    """By hand: Gated lacks seed 4 on A, so that its first seed is the reference's second."""
    rows = table()
    row = rows.loc[(*A, "gated")]
    differences = [0.772 - 0.731, 0.765 - 0.688, 0.751 - 0.743]
    assert row.difference_n == 3
    assert row.difference_mean == pytest.approx(sum(differences) / 3)
    assert row.difference_p == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    row = rows.loc[(*D, "whole")]  # the reference lacks seed 1, Whole diverged on seed 3
    assert row.difference_n == 2
    assert row.difference_mean == pytest.approx((0.633 - 0.602 + 0.627 - 0.624) / 2)


def test_the_family_is_the_whole_experiment(table):
    """Six methods on four tasks are tested, less none: the smallest p counts 24 times."""
    rows = table()
    smallest = rows.difference_p.idxmin()
    assert rows.difference_p.notna().sum() == 24
    assert rows.difference_p_holm[smallest] == pytest.approx(24 * rows.difference_p[smallest])


def test_bytes_of_diverged_runs_were_sent(table):
    """By hand: on A eight clients send and receive; three runs take 12 rounds, the one that diverged takes 6."""
    rows = table()

    def sent(rounds, place):
        return 8 * sum(3_100_000 + 3_500_000 + 3 * 1_900 * (1 + place) * done for done in range(rounds))

    every = [sent(12, 0), sent(12, 1), sent(6, 2), sent(12, 3)]
    assert rows.bytes_total[(*A, "whole")] == pytest.approx(sum(every) / 4)
    # on B four clients of six are members, and two of them take part in each round
    even = rows.loc[(*B, "lost")]
    sizes = [sum(5_000 + 90 * (1 + place) * done for done in range(12)) / 12 for place in range(4)]
    assert even.bytes_uplink_per_client_round == pytest.approx(sum(sizes) / 4)
    assert even.bytes_uplink == pytest.approx(2 * 12 * sum(sizes) / 4)
    assert even.bytes_uplink_per_client == pytest.approx(even.bytes_uplink / 6)


def test_summary_csv_is_what_the_runs_say(distinct):
    data = distinct()
    frame = data.runs.set_index(["dataset", "partition", "model", "method", "seed"])
    assert list(data.runs.columns) == COLUMNS
    assert len(frame) == len(TASKS) * len(RECIPES) * len(SEEDS) - len(ABSENT)
    for task, method in product(TASKS, RECIPES):
        alone = {run.seed: run for run in runs(data.paths, task, "alone")}
        for run in runs(data.paths, task, method):
            row, summary = frame.loc[(*task, method, run.seed)], run.summary
            expected = {
                "dataset_label": {"digits": "Digits", "numerals": "Numerals"}[task[0]],
                "partition_label": {"skewed": "Skewed", "even": "Even"}[task[1]],
                "model_label": {"vit": "ViT", "deep": "Deep ViT"}[task[2]],
                "method_label": RECIPES[method].entry["label"],
                "rounds": summary["rounds_done"],
                "best_round": summary["selections"]["best"]["rounds"][0],
                "base_personal": summary["base"]["personal_mean"],
                "base_global": summary["base"]["global"],
                "bytes_one_time": nan if method == "pooled" else summary["bytes"]["one_time"],
                "diverged_round": summary["diverged_round"] or nan,
                "git_commit": summary["git"]["commit"],
                "git_dirty": summary["git"]["dirty"],
                **{key: summary[key] for key in ("digest", "clients", "held_out_clients", "classes", "device",
                                                 "threads", "diverged", "chance_level", "peak_rss_bytes")},
                **{f"seconds_{name}": value for name, value in summary["seconds"].items()},
                **{f"parameters_{name}": value for name, value in summary["parameters"].items()},
            }  # fmt: skip
            for selection, chosen in summary["selections"].items():
                expected |= {f"{selection}_personal_{name}": value for name, value in chosen["personal"].items()}
                expected |= {f"{selection}_held_out_{name}": chosen["held_out"][name] for name in ("mean", "worst")}
                expected |= {f"{selection}_{name}": chosen[name] for name in ("global", "val")}
                gain = {
                    "personal": chosen["personal"]["mean"] - summary["base"]["personal_mean"],
                    "global": chosen["global"] - summary["base"]["global"],
                }
                expected |= {f"gain_over_base_{selection}_{metric}": value for metric, value in gain.items()}
                expected[f"gain_over_local_{selection}_personal"] = (
                    chosen["personal"]["mean"] - alone[run.seed].summary["selections"][selection]["personal"]["mean"]
                )
            for name, value in expected.items():
                if isinstance(value, float):
                    value = pytest.approx(value, nan_ok=True)
                assert row[name] == value, f"{name} of {task} {method} {run.seed}"


@pytest.mark.parametrize(
    ("metric", "selection", "words"),
    [
        ("personal", "last", "personalised test accuracy (mean over clients), last round"),
        ("personal", "best", "personalised test accuracy (mean over clients), best round by validation"),
        ("global", "tail", "global test accuracy, mean of the last 10 evaluated rounds"),
    ],
)
def test_caption_says_which_metric_which_round_and_how_many_seeds(distinct, table, metric, selection, words):
    data = distinct(metric=metric, selection=selection)
    rows = table(metric=metric, selection=selection)
    assert caption(data, rows) == f"Main table. Headline: {words}; n = 3 to 4 seeds per row."
    whole = rows[rows.method == "whole"]
    assert set(whole.n) == {3}
    assert caption(data, whole).endswith("; n = 4 seeds per row."), "a run that diverged is a seed, too"


def test_shown_rows(distinct, table):
    """By hand, in each task: bold is the best mean; ± is half of the interval."""
    data = distinct()
    shown = lay_out(data, table())
    assert [group.title for group in shown.groups] == [
        "Digits · Skewed · ViT", "Digits · Even · ViT", "Digits · Skewed · Deep ViT", "Numerals · Skewed · ViT",
    ]  # fmt: skip
    place = shown.columns.index("Accuracy, %")
    bold = [[row[0].text for row in group.rows if row[place].bold] for group in shown.groups]
    assert bold == [["Pooled"]] * 4
    assert all(row[0].bold == row[place].bold for group in shown.groups for row in group.rows)
    assert not any(cell.bold for group in shown.groups for row in group.rows for cell in [row[1], *row[3:]])
    (line,) = [row for row in shown.groups[0].rows if row[0].text == "Gated"]
    texts = dict(zip(shown.columns, (cell.text for cell in line), strict=True))
    values = [0.772, 0.765, 0.751]
    half = 100 * (about(values)["high"] - about(values)["mean"])
    assert (texts["n"], texts["Accuracy, %"]) == ("3", f"{100 * mean(values):.1f} ± {half:.1f}")
    assert texts["Gain over base"] == f"+{100 * (mean(values) - (0.513 + 0.492 + 0.507) / 3):.1f}"
    assert texts["Gain over local"] == f"+{100 * (mean(values) - (0.634 + 0.597 + 0.622) / 3):.1f}"
    difference = about([0.772 - 0.731, 0.765 - 0.688, 0.751 - 0.743])
    low, high = (f"{100 * difference[end]:+.1f}".replace("-", "−") for end in ("low", "high"))
    assert texts["Δ to Reference"] == f"{100 * difference['mean']:+.1f} [{low}, {high}]"
    newcomers = [value - 0.117 for value in values]
    half = 100 * (about(newcomers)["high"] - about(newcomers)["mean"])
    assert texts["Newcomers, %"] == f"{100 * mean(newcomers):.1f} ± {half:.1f}"
    (line,) = [row for row in shown.groups[0].rows if row[0].text == "Whole †"]
    assert line[1].text == "3 of 4"
    (line,) = [row for row in shown.groups[1].rows if row[0].text.startswith("Lost")]
    assert line[0].text == "Lost ‡"
    assert f"{len(ABSENT)} of {4 * 7 * 4} runs are missing." in shown.notes


def test_bold_is_the_best_mean_of_its_task(distinct, table):
    """Not of all tasks, and not the surest: A's best has the widest interval."""
    data = distinct()
    rows = table()
    few = rows[rows.method.isin(["ref", "gated", "whole"])].copy()
    few.loc[few.method == "gated", ["accuracy_low", "accuracy_high"]] = (0.1, 0.99)
    shown = lay_out(data, few)
    bold = [[row[0].text.rstrip(" †") for row in group.rows if row[0].bold] for group in shown.groups]
    assert bold == [["Gated"], ["Whole"], ["Gated"], ["Whole"]]


def test_hypervolume_is_in_decades_of_bytes_above_the_base(distinct, table):
    data = distinct()
    part = table().loc[C]
    offered = part[(part.diverged == 0) & part.bytes_total.notna()]
    left, right = offered.bytes_total[offered.bytes_total > 0].min(), offered.bytes_total.max()
    alone = offered.accuracy_mean["alone"] - data.runs[(data.runs.model == "deep")].base_personal.mean()
    steps = offered[offered.frontier & (offered.bytes_total > 0)].sort_values("bytes_total")
    area, best = alone * (log10(right) - log10(left)), offered.accuracy_mean["alone"]
    for row in steps.itertuples():
        area += (row.accuracy_mean - best) * (log10(right) - log10(row.bytes_total))
        best = row.accuracy_mean
    assert part.hypervolume_task.iloc[0] == pytest.approx(area)
