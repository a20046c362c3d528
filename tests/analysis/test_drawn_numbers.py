"""What figures draw, in a world in which every number differs: places, lengths, bands, error bars, units."""

from dataclasses import replace
from math import isnan
from statistics import mean, stdev

import numpy as np
import pandas as pd
import pytest
from distinct import RECIPES, A, B, C, D, about, beaten, quantiles, runs, to_target, trajectory, within
from matplotlib.colors import to_hex

from fedbench.analysis.tables import build
from fedbench.analysis.text import human_bytes, percent, signed
from fedbench.config.reading import FIGURE, split_entry
from fedbench.registry import FIGURES

LABELS = {name: recipe.entry["label"] for name, recipe in RECIPES.items()}
COLUMN = {"personal": "test_accuracy_mean", "global": "global_accuracy"}


def draw(data, name, **options):
    figure = FIGURES[name].target(data, split_entry(*FIGURE, {"figure": name, **options}, name).options)
    figure.canvas.draw()
    return figure


def of(data, *tasks):
    """The data of some tasks only."""
    names = ("runs", "rounds", "clients", "domains", "gates")
    kept = {name: [task.of(getattr(data, name)) for task in data.tasks if astuple(task) in tasks] for name in names}
    return replace(data, **{name: pd.concat(parts, ignore_index=True) for name, parts in kept.items()})


def astuple(task):
    return task.dataset, task.partition, task.model


def labelled(axes, label):
    return [line for line in axes.lines if line.get_label() == label]


def words(axes):
    return [text.get_text() for text in axes.texts]


def values(data, task, method, sound=True):
    experiment = data.experiment
    return [run.headline(experiment.metric, experiment.selection) for run in runs(data.paths, task, method, sound)]


def methods(data, task):
    """In the order in which the data have them."""
    rows = next(one for one in data.tasks if astuple(one) == task).of(data.runs)
    return list(dict.fromkeys(rows.method))


def base(data, task):
    """Mean over all runs of a task of the untouched base."""
    name = {"personal": "personal_mean", "global": "global"}[data.experiment.metric]
    return mean(run.summary["base"][name] for method in RECIPES for run in runs(data.paths, task, method))


def test_bars_differences_and_their_intervals(distinct):
    data = of(distinct("personal", "best"), A, D)
    figure = draw(data, "ablation")
    own = build(data).set_index(["dataset", "partition", "model", "method"]).sort_index()
    for task, (bars, differences) in zip((A, D), np.reshape(figure.axes, (-1, 2)), strict=True):
        found = [about(values(data, task, method)) for method in methods(data, task)]
        assert [bar.get_width() for bar in bars.patches] == pytest.approx([one["mean"] for one in found])
        drawn = [line.get_xdata() for line in labelled(bars, "_interval")]
        assert np.ravel(drawn) == pytest.approx([max(one["low"], 0) if end == "low" else min(one["high"], 1)
                                                 for one in found for end in ("low", "high")])  # fmt: skip
        dots = [sorted(line.get_xdata()) for line in labelled(bars, "_seeds")]
        assert dots == [pytest.approx(sorted(values(data, task, method))) for method in methods(data, task)]
        assert [line.get_xdata()[0] for line in labelled(bars, "_mean")] == pytest.approx(
            [one["mean"] for one in found]
        )
        (line,) = labelled(bars, "_base")
        assert line.get_xdata() == pytest.approx([base(data, task)] * 2)
        assert [text.split(" ")[0] for text in words(bars)[:-1]] == [percent(one["mean"]) for one in found]
        assert "(1 diverged)" in words(bars)[methods(data, task).index("whole")]
        for place, method in enumerate(methods(data, task)):
            if method == "ref":
                continue
            row = own.loc[(*task, method)]
            (point,) = labelled(differences, LABELS[method])
            assert (point.get_xdata()[0], point.get_ydata()[0]) == (pytest.approx(row.difference_mean), place)
            (text,) = [text for text in differences.texts if text.get_position() == (1.01, place)]
            p = "p < 0.001" if row.difference_p_holm < 0.001 else f"p = {row.difference_p_holm:.3f}"
            assert text.get_text() == f"{signed(row.difference_mean)}  {p}"
            assert to_hex(text.get_color()) == ("#222222" if row.difference_p_holm < 0.05 else "#6b6b6b")
        drawn = [tuple(line.get_xdata()) for line in labelled(differences, "_interval")]
        part = [own.loc[(*task, method)] for method in methods(data, task) if method != "ref"]
        assert drawn == [pytest.approx((row.difference_low, row.difference_high)) for row in part]
    bottom, right = figure.axes[-2:]
    assert bottom.get_xlabel() == "Accuracy, %\n(personalised, best validation)"
    assert right.get_xlabel() == "Difference to Reference, points\n(paired, 95 % interval, Holm-corrected p)"
    limit = right.get_xlim()[1]
    everything = own.difference_mean.abs().max()
    ends = own[["difference_low", "difference_high"]].abs().max().max()
    assert limit == pytest.approx(max(1.15 * everything, 1.05 * min(ends, 3 * everything)))
    assert right.get_xlim()[0] == -limit


@pytest.mark.parametrize("axis", ["both", "per-client"])
def test_points_of_the_pareto_figure(distinct, axis):
    data = of(distinct("personal", "tail"), A, B, C)
    figure = draw(data, "pareto", axis=axis)
    for axes, tasks in zip(figure.axes[:2], ((A, C), (B,)), strict=True):
        clients = 6 if tasks == (B,) else 10
        expected = []
        for task in tasks:
            for method in methods(data, task):
                if method == "pooled":
                    continue
                sound = runs(data.paths, task, method, sound=True)
                sent = [
                    run.summary["bytes"]["cumulative_total"] / (clients if axis == "per-client" else 1) for run in sound
                ]
                found = about(values(data, task, method))
                expected.append((method, about(sent), found, len(runs(data.paths, task, method)) > len(sound)))
        assert [one.get_label() for one in axes.containers] == [LABELS[method] for method, *_ in expected]
        offered = [(sent["mean"], found["mean"]) for _, sent, found, diverged in expected if not diverged]
        for container, (method, sent, found, diverged) in zip(axes.containers, expected, strict=True):
            (point, _, bars) = container.lines
            assert point.get_ydata() == pytest.approx([found["mean"]])
            *across, up = [bar.get_segments()[0] for bar in bars]
            assert up[:, 1] == pytest.approx([found["mean"] - found["std"], found["mean"] + found["std"]])
            if sent["mean"]:
                assert point.get_xdata() == pytest.approx([sent["mean"]])
                assert across[0][:, 0] == pytest.approx([sent["mean"] - sent["std"], sent["mean"] + sent["std"]])
            else:
                assert not across, f"{method} sends nothing"
                assert point.get_xdata()[0] < axes.get_xlim()[1] / 1000
            member = not diverged and not beaten((sent["mean"], found["mean"]), offered)
            assert (to_hex(point.get_color()) != "#a8a8a8") == member, method
            assert (point.get_marker() == "x") == diverged, method
        (step,) = labelled(axes, "Pareto frontier")
        heights = sorted(value for cost, value in offered if not beaten((cost, value), offered))
        assert sorted(set(step.get_ydata())) == pytest.approx(heights)
        ceilings = [line.get_ydata()[0] for line in labelled(axes, "_ceiling")]
        assert ceilings == pytest.approx([mean(values(data, task, "pooled")) for task in tasks])
        low, high = axes.get_ylim()
        bottoms = [found["mean"] - found["std"] for _, _, found, _ in expected]
        assert -0.02 <= low < min(bottoms)
        assert high > max(ceilings)
        who = "per client" if axis == "per-client" else "all clients"
        assert axes.get_xlabel() == f"Bytes up and down over the run, {who}"
        if axis == "both":
            (top,) = axes.child_axes
            assert top.get_xlabel() == f"per client (of {clients})"
            assert top.get_xlim() == pytest.approx([end / clients for end in axes.get_xlim()])
    assert len(figure.axes[0].containers) == 12
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Skewed", "Even"]


@pytest.mark.parametrize("metric", ["personal", "global"])
def test_curves_and_bands(distinct, metric):
    data = of(distinct(metric, "last"), A)
    rounds, sent = draw(data, "learning-curves").axes
    for method in methods(data, A):
        if method == "base":
            continue
        course = trajectory(runs(data.paths, A, method, sound=True), COLUMN[metric])
        (line,) = labelled(rounds, LABELS[method])
        assert line.get_xdata().tolist() == list(course)
        assert line.get_ydata() == pytest.approx([mean(some) for some, _ in course.values()])
        (line,) = labelled(sent, LABELS[method])
        if method in ("alone", "pooled"):
            assert line.get_ydata() == pytest.approx([mean(course[12][0])] * 2), "a level: where it ends"
            continue
        assert line.get_xdata() == pytest.approx([cost for _, cost in course.values() if cost])
    moving = [trajectory(runs(data.paths, A, method, sound=True), COLUMN[metric]) for method in methods(data, A)[1:]]
    bands = [band for band in rounds.collections if band.get_label() == "_band"]
    for band, course in zip(bands, moving, strict=True):
        (path,) = band.get_paths()
        ends = {round(float(y), 9) for x, y in path.vertices if x == 8}
        accuracies = course[8][0]
        assert ends == {round(mean(accuracies) + sign * stdev(accuracies), 9) for sign in (-1, 1)}
    (crashed,) = labelled(rounds, "Whole (diverged)")
    (run,) = [run for run in runs(data.paths, A, "whole") if run.summary["diverged"]]
    course = run.evaluated(COLUMN[metric])
    assert list(zip(crashed.get_xdata(), crashed.get_ydata(), strict=True)) == [
        (number, accuracy) for number, (accuracy, _) in course.items()
    ]
    (crashed,) = labelled(sent, "Whole (diverged)")
    assert crashed.get_xdata().tolist() == [cost for _, cost in course.values() if cost]
    for axes in (rounds, sent):
        (level,) = labelled(axes, "_base")
        assert level.get_ydata() == pytest.approx([base(data, A)] * 2)
    word = {"personal": "personalised", "global": "global"}[metric]
    assert rounds.get_ylabel() == f"Test accuracy, %\n({word})"
    assert (rounds.get_xlabel(), sent.get_xlabel()) == ("Round", "Cumulative bytes up and down, all clients (log)")
    low, high = sent.get_xlim()
    costs = [cost for course in moving for _, cost in course.values() if cost]
    assert low < min(costs) < max(costs) < high


@pytest.mark.parametrize(
    ("metric", "selection", "column"),
    [
        ("personal", "last", "accuracy_personal"),
        ("personal", "best", "accuracy_personal_best"),
        ("personal", "tail", "accuracy_personal_tail"),
        ("global", "last", "accuracy_global"),
    ],
)
def test_clients(distinct, metric, selection, column):
    data = of(distinct(metric, selection), B)
    figure = draw(data, "fairness")
    (axes,) = figure.axes
    clients = labelled(axes, "_clients")
    everyone = []
    for place, method in enumerate(methods(data, B)):
        seeds = [
            [client[column] for client in run.clients if not client["held_out"]]
            for run in runs(data.paths, B, method, sound=True)
        ]
        assert len(seeds[0]) == 4
        assert sorted(clients[place].get_xdata()) == pytest.approx(sorted(np.ravel(seeds)))
        worst, low, middle, high = np.mean([quantiles(some) for some in seeds], axis=0)
        everyone += list(np.ravel(seeds))
        (line,) = labelled(axes, LABELS[method])
        assert line.get_xdata() == pytest.approx([low, high])
        assert labelled(axes, "_worst")[place].get_xdata() == pytest.approx([worst])
        assert labelled(axes, "_median")[place].get_xdata() == pytest.approx([middle] * 2)
        less = ", n = 3 of 4" if len(seeds) == 3 else ""
        assert words(axes)[place] == " / ".join(f"{100 * v:.0f}" for v in (worst, low, middle, high)) + less
    assert axes.get_xlim()[0] == pytest.approx(min(everyone) - 0.03)
    assert axes.get_xlabel() == "Client's own test accuracy, %"


@pytest.mark.parametrize("selection", ["last", "best", "tail"])
def test_bars_of_members_and_newcomers(distinct, selection):
    data = of(distinct("personal", selection), A, B)
    figure = draw(data, "newcomers")
    for axes, task in zip(figure.axes, (A, B), strict=True):
        pairs = []
        for method in methods(data, task):
            chosen = [run.summary["selections"][selection] for run in runs(data.paths, task, method, sound=True)]
            pairs.append([about(one[group]["mean"] for one in chosen) for group in ("personal", "held_out")])
        bars = [one["mean"] for pair in pairs for one in pair]
        assert [bar.get_width() for bar in axes.patches] == pytest.approx(bars)
        drawn = [tuple(line.get_xdata()) for line in labelled(axes, "_interval")]
        ends = [(max(one["low"], 0), min(one["high"], 1)) for pair in pairs for one in pair]
        assert drawn == [pytest.approx(end) for end in ends]
        differences = [signed(newcomers["mean"] - members["mean"]) for members, newcomers in pairs]
        assert [text.split(",")[0] for text in words(axes)] == differences
        (line,) = labelled(axes, "_base")
        assert line.get_xdata() == pytest.approx([base(data, task)] * 2)
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said[1] == "newcomers after 3 to 5 own epochs (right: difference, points)"


@pytest.mark.parametrize(
    ("metric", "selection", "column"),
    [
        ("personal", "last", "accuracy_personal"),
        ("personal", "best", "accuracy_personal_best"),
        ("personal", "tail", "accuracy_personal_tail"),
        ("global", "last", "accuracy_global"),
    ],
)
def test_heights_of_domains(distinct, metric, selection, column):
    data = of(distinct(metric, selection), A, D)
    figure = draw(data, "domains")
    gains = []
    for axes, task in zip(figure.axes, (A, D), strict=False):
        grid = []
        for method in methods(data, task):
            rows = [run.domains for run in runs(data.paths, task, method, sound=True)]
            own = [[(row[place][column], row[place]["accuracy_base"]) for row in rows] for place in (0, 1)]
            grid.append([(mean(one for one, _ in some), mean(one - less for one, less in some)) for some in own])
        assert words(axes) == [percent(accuracy) for row in grid for accuracy, _ in row]
        gains.append([[gain for _, gain in row] for row in grid])
        assert np.asarray(axes.images[0].get_array()) == pytest.approx(np.array(gains[-1]))
        bold = [place for place, text in enumerate(axes.texts) if text.get_weight() == "bold"]
        best = [max(range(len(grid)), key=lambda row: grid[row][domain][0]) for domain in (0, 1)]
        assert bold == sorted(2 * row + domain for domain, row in enumerate(best))
        assert [label.get_text() for label in axes.get_xticklabels()] == ["art", "photo"]
    limit = max(abs(gain) for some in gains for row in some for gain in row)
    assert figure.axes[0].images[0].get_clim() == pytest.approx((-limit, limit)), "one scale for all tasks"
    dark = [text.get_color() == "white" for text in figure.axes[0].texts]
    assert dark == [abs(gain) > 0.75 * limit for row in gains[0] for gain in row]
    weights = "own weights" if metric == "personal" else "shared weights"
    assert figure.axes[-1].get_ylabel() == f"Gain over the base, points\n({weights})"


@pytest.mark.parametrize(("of_whom", "budget"), [("total", 4e6), ("per-client", 1.5e6)])
def test_accuracy_within_a_budget(distinct, of_whom, budget):
    data = of(distinct("global", "best"), A, B)
    figure = draw(data, "byte-budget", budget=budget, of=of_whom)
    for axes, task, clients in zip(figure.axes, (A, B), (10, 6), strict=True):
        share = clients if of_whom == "per-client" else 1
        drawn = {one.get_label(): one for one in axes.containers}
        for place, method in enumerate(methods(data, task)):
            sound = runs(data.paths, task, method, sound=True)
            accuracies, sent = within(sound, "global_accuracy", budget * share)
            if method == "pooled" or not accuracies:
                assert LABELS[method] not in drawn
                continue
            point, _, bars = drawn[LABELS[method]].lines
            found = about(accuracies)
            assert (point.get_xdata()[0], point.get_ydata()[0]) == (pytest.approx(found["mean"]), place)
            ends = bars[0].get_segments()[0][:, 0]
            assert ends == pytest.approx([found["mean"] - found["std"], found["mean"] + found["std"]])
            stopped = any(run.rounds[-1]["cumulative_bytes"] > budget * share for run in sound)
            assert (point.get_markerfacecolor() != "white") == stopped, method
            beside = [text.get_text() for text in axes.texts if text.xy[1] == place]
            assert beside == [percent(found["mean"]), human_bytes(mean(sent) / share)]
        (line,) = labelled(axes, "_base")
        assert line.get_xdata() == pytest.approx([base(data, task)] * 2)
        who = "average client" if of_whom == "per-client" else "all clients"
        assert axes.get_xlabel() == f"Accuracy at {human_bytes(budget)} ({who}), %"
        ends = percent(mean(within(runs(data.paths, task, "pooled"), "global_accuracy", 1e12)[0]))
        assert f"no bytes counted: all data in one place (ends at {ends} %)" in words(axes)


@pytest.mark.parametrize("target", ["reference", 0.64])
def test_bytes_and_rounds_to_a_target(distinct, target):
    data = of(distinct("personal", "best"), A, D)
    figure = draw(data, "bytes-to-target", target=target)
    for axes, task, title in zip(figure.axes, (A, D), ("Digits", "Numerals"), strict=True):
        wanted = mean(values(data, task, "ref")) - 0.01 if target == "reference" else target
        assert axes.get_title(loc="left") == f"{title} · to {percent(wanted)} %"
        for place, method in enumerate(methods(data, task)):
            number, sent = to_target(runs(data.paths, task, method, sound=True), "test_accuracy_mean", wanted)
            beside = [text.get_text() for text in axes.texts if text.xy[1] == place]
            if method == "pooled":
                ends = percent(mean(values(data, task, method)))
                assert beside == [f"no bytes counted: all data in one place (ends at {ends} %)"]
            elif isnan(number):
                assert beside == [f"never (ends at {percent(mean(values(data, task, method)))} %)"]
            else:
                (point,) = labelled(axes, LABELS[method])
                assert beside == [human_bytes(sent), str(number)]
                if sent:
                    assert (point.get_xdata()[0], point.get_ydata()[0]) == (pytest.approx(sent), place)
        assert axes.get_xlabel() == "Bytes up and down, all clients"


def test_quantiles_of_gates(distinct):
    """Over the clients of all seeds, by block and kind of site."""
    data = of(distinct(), A, B)
    figure = draw(data, "gates")
    for axes, task, count in zip(figure.axes, (A, B), ("8 clients × 3 seeds", "4 clients × 4 seeds"), strict=True):
        gates = [row for run in runs(data.paths, task, "gated") for row in run.gates]
        for place, (site, label) in enumerate(
            (("attention", "attention (output projection)"), ("ffn", "FFN (second layer)"))
        ):
            blocks = [
                [row["value"] for row in gates if (row["site"], row["block"]) == (site, block)] for block in range(6)
            ]
            (line,) = labelled(axes, label)
            assert line.get_xdata().tolist() == [1, 2, 3, 4, 5, 6]
            assert line.get_ydata() == pytest.approx([float(np.quantile(some, 0.5)) for some in blocks])
            for name, low, high in (("_middle80", 0.1, 0.9), ("_middle50", 0.25, 0.75)):
                band = [one for one in axes.collections if one.get_label() == name][place]
                for block, some in enumerate(blocks, 1):
                    ends = {round(float(y), 9) for x, y in band.get_paths()[0].vertices if x == block}
                    assert ends == {round(float(np.quantile(some, q)), 9) for q in (low, high)}
        assert words(axes) == [count]


def test_gates_move(distinct):
    data = of(distinct(), A)
    for axes, column in zip(draw(data, "gate-dynamics").axes, ("gate_drift", "gate_gradient_variance"), strict=True):
        some = [[row[column] for row in run.rounds[1:]] for run in runs(data.paths, A, "gated")]
        (line,) = labelled(axes, "Gated")
        assert line.get_xdata().tolist() == list(range(1, 13))
        assert line.get_ydata() == pytest.approx(np.mean(some, axis=0))
        (band,) = [one for one in axes.collections if one.get_label() == "_range"]
        ends = {float(y) for x, y in band.get_paths()[0].vertices if x == 5}
        assert sorted(ends) == pytest.approx([min(own[4] for own in some), max(own[4] for own in some)])


@pytest.mark.parametrize("sent", ["total", "per-client"])
def test_a_sweep_over_clients(distinct, sent):
    """Two partitions of other sizes on one axis, a panel for each data set and model that has both."""
    data = of(distinct("global", "tail"), A, B)
    accuracy, cost = draw(data, "sweep", x="partition.clients", bytes=sent).axes
    drawn = {one.get_label(): one.lines for one in accuracy.containers}
    for method in methods(data, A):
        point, _, bars = drawn[LABELS[method]]
        found = [about(values(data, task, method)) for task in (B, A)]
        assert point.get_xdata().tolist() == [6, 10]
        assert point.get_ydata() == pytest.approx([one["mean"] for one in found])
        ends = [end for segment in bars[0].get_segments() for end in segment[:, 1]]
        assert ends == pytest.approx([one["mean"] + sign * one["std"] for one in found for sign in (-1, 1)])
        (line,) = labelled(cost, LABELS[method])
        totals = [
            mean(run.summary["bytes"]["cumulative_total"] for run in runs(data.paths, task, method)) for task in (B, A)
        ]
        share = (6, 10) if sent == "per-client" else (1, 1)
        expected = [] if method in ("base", "alone", "pooled") else [a / b for a, b in zip(totals, share, strict=True)]
        assert line.get_ydata() == pytest.approx(expected)
    assert [label.get_text() for label in accuracy.get_xticklabels()] == ["6", "10"]
    assert (accuracy.get_xlabel(), accuracy.get_ylabel()) == ("Clients", "Accuracy, %")
    assert cost.get_ylabel() == f"Bytes over the run, {'per client' if sent == 'per-client' else 'all clients'}"
    (line,) = (labelled(accuracy, "_diverged")[methods(data, A).index("whole")].get_xdata(),)
    assert sorted(line) == [6, 10]
    (level,) = labelled(accuracy, "_base")
    bases = [
        run.summary["base"]["global"] for task in (A, B) for method in RECIPES for run in runs(data.paths, task, method)
    ]
    assert level.get_ydata() == pytest.approx([mean(bases)] * 2)


def test_rungs_of_the_precision_ladder(distinct):
    """Uplink bits that a shared value costs, from what a client of a round sends on average."""
    data = of(distinct("global", "best"), C)
    ladder = draw(data, "precision").axes[0]
    drawn = {one.get_label(): one.lines for one in ladder.containers}
    assert set(drawn) == {"Reference", "Gated", "Whole", "Lost"}
    for method in ("ref", "gated", "whole", "lost"):
        sizes = [run.summary["bytes"]["uplink_per_client_round"] for run in runs(data.paths, C, method)]
        point, _, bars = drawn[LABELS[method]]
        found = about(values(data, C, method))
        assert point.get_xdata() == pytest.approx([8 * mean(sizes) / (RECIPES[method].up // 4)])
        assert point.get_ydata() == pytest.approx([found["mean"]])
        ends = bars[0].get_segments()[0][:, 1]
        assert ends == pytest.approx([found["mean"] - found["std"], found["mean"] + found["std"]])


def test_partitions_are_those_of_the_first_seed(distinct):
    """The smallest number, whatever the order of seeds in the config."""
    data = distinct()
    figure = draw(data, "partitions")
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Digits\nSkewed",
        "Digits\nEven",
        "Numerals\nSkewed",
    ]
    for axes in figure.axes:
        assert words(axes) == ["JS distance 0.56 · 4.2 effective classes\n1,091 to 2,111 samples"]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("Class", "Client")


def spreads(figure):
    """Lengths of what shows a spread over seeds: intervals, bands and error bars."""
    found = []
    for axes in figure.axes:
        found += [np.ptp(line.get_xdata()) for line in labelled(axes, "_interval")]
        bands = [band for band in axes.collections if band.get_label() in ("_band", "_range")]
        found += [np.ptp(path.vertices[:, 1]) for band in bands for path in band.get_paths()]
        bars = [bar for one in axes.containers if hasattr(one, "has_yerr") for bar in one.lines[2]]
        found += [np.ptp(segment) for bar in bars for segment in bar.get_segments() if np.ptp(segment, axis=0).any()]
    return found


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ablation", {}),
        ("byte-budget", {}),
        ("gate-dynamics", {}),
        ("learning-curves", {}),
        ("newcomers", {}),
        ("pareto", {"axis": "total"}),
        ("precision", {}),
        ("sweep", {"x": "partition.clients"}),
    ],
)
def test_two_seeds_have_a_spread_and_one_has_none(distinct, name, options):
    data = of(distinct(), C)
    for seeds in ([1], [1, 2]):
        few = {part: getattr(data, part)[getattr(data, part).seed.isin(seeds)] for part in ("runs", "rounds", "gates")}
        assert bool(spreads(draw(replace(data, **few), name, **options))) == (len(seeds) > 1)
