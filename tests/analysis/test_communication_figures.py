"""Figures of accuracy per byte: equal budgets, cost to a target, sweeps, the precision ladder."""

from dataclasses import replace
from itertools import combinations
from math import inf, isnan

import pandas as pd
import pytest
from fake_runs import BASE, CLIENTS, RECIPES, ROUNDS, Recipe, make_world, write_runs

from fedbench.analysis.budget import within_budget
from fedbench.analysis.collect import collect
from fedbench.analysis.plot import plot
from fedbench.analysis.resolved import look_up
from fedbench.analysis.tables import TARGET_MARGIN, build
from fedbench.analysis.trajectory import mean_trajectory
from fedbench.config.reading import FIGURE, split_entry
from fedbench.config.spec import Paths
from fedbench.errors import FedbenchError
from fedbench.registry import FIGURES

RESNET = {"resnet": {"backbone": "resnet-gn", "depth": 8, "label": "ResNet"}}


def flite(label, accuracy, **keys):
    return Recipe({"method": "flite", "label": label, **keys}, (accuracy,) * 3, 1280, 1280)


def dirichlet(alpha):
    return {"scheme": "dirichlet", "clients": 5, "alpha": alpha}


def coded(label, accuracy, bits, **keys):
    sent = 1000 * bits // 8
    return Recipe({"method": "fedavg", "label": label, **keys}, (accuracy,) * 3, sent, sent, values=1000)


@pytest.fixture(scope="module")
def data(results):
    world, paths = results
    return collect(world.config, paths).experiment("main")


@pytest.fixture
def made(fresh):
    return lambda **keys: (lambda world, paths: collect(world.config, paths).experiment("main"))(*fresh(**keys))


def draw(data, name, **options):
    figure = FIGURES[name].target(data, split_entry(*FIGURE, {"figure": name, **options}, name).options)
    figure.canvas.draw()
    return figure


def words(axes):
    return [text.get_text() for text in axes.texts]


def legend(figure):
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def at(axes):
    """First point of each labelled container or line."""
    found = {one.get_label(): one.lines[0] for one in axes.containers}
    return {label: (line.get_xdata()[0], line.get_ydata()[0]) for label, line in found.items()}


# ----------------------------------------------------------------------------------------------------- equal budgets


def courses(*seeds):
    rows = [(seed, *row) for seed, rows in enumerate(seeds) for row in rows]
    return pd.DataFrame(rows, columns=["seed", "round", "cumulative_bytes", "accuracy"])


def test_last_evaluation_within_the_budget():
    course = [(0, 0, 0.5), (1, 10, None), (2, 20, 0.6), (3, 30, None), (4, 40, 0.8)]
    for budget, accuracy, sent in ((20, 0.6, 20), (39, 0.6, 20), (40, 0.8, 40), (1000, 0.8, 40)):
        spent = within_budget(courses(course, course), "accuracy", budget)
        assert (spent.accuracy.mean, spent.bytes, spent.accuracy.n) == (accuracy, sent, 2)
        assert spent.stopped == (budget < 40)


def test_within_a_budget_counts_the_last_accuracy_not_the_best():
    """What is best would be chosen by test accuracy. Every seed has its own last evaluation, its bytes and its end."""
    one = [(0, 0, 0.5), (1, 10, 0.71), (2, 20, 0.62), (3, 30, 0.9)]
    other = [(0, 0, 0.5), (1, 14, 0.68), (2, 28, 0.8)]
    spent = within_budget(courses(one, other), "accuracy", 25)
    assert (spent.accuracy.n, spent.accuracy.mean, spent.bytes) == (2, pytest.approx(0.65), 17)
    assert within_budget(courses(one, other), "accuracy", 28).stopped, "one of them goes on"
    assert not within_budget(courses(one, other), "accuracy", 30).stopped
    one[2] = (2, 20, None)
    assert within_budget(courses(one), "accuracy", 25).accuracy.mean == 0.71


def test_a_mean_course_has_the_rounds_that_all_seeds_have_evaluated():
    one = [(0, 0, 0.5), (1, 10, 0.6), (2, 20, None), (3, 40, 0.7)]
    other = [(0, 0, 0.52), (1, 14, 0.61), (2, 30, 0.66)]
    found = mean_trajectory(courses(one, other), "accuracy")
    assert found["round"].tolist() == [0, 1]
    assert found["mean"].tolist() == pytest.approx([0.51, 0.605])
    assert found["std"].tolist() == pytest.approx([0.02 / 2**0.5, 0.01 / 2**0.5])
    assert found["bytes"].tolist() == [0, 12]


def test_the_base_is_nothing_that_a_budget_bought():
    spent = within_budget(courses([(0, 0, 0.5), (1, 10, 0.6)]), "accuracy", 9)
    assert spent.accuracy.n == 0
    assert isnan(spent.bytes)
    assert spent.stopped
    untouched = within_budget(courses([(0, 0, 0.5)]), "accuracy", 9)
    assert (untouched.accuracy.mean, untouched.bytes, untouched.stopped) == (0.5, 0, False)


def test_byte_budget(data):
    per_round = 2 * 593_296 * CLIENTS
    figure = draw(data, "byte-budget", budget=3.5 * per_round)
    (axes,) = figure.axes
    course = data.rounds[(data.rounds.method == "fedsdg") & (data.rounds["round"] == 3)].test_accuracy_mean
    assert at(axes)["FedSDG"][0] == pytest.approx(course.mean())
    faces = {one.get_label(): one.lines[0].get_markerfacecolor() for one in axes.containers}
    assert faces["FedSDG"] != "white"
    assert faces["Head only"] == faces["Base"] == "white"  # sent less in their whole runs
    assert "FedAvg" not in faces
    assert words(axes).count("none before the budget is spent") == 3
    assert "35.6 MB" in words(axes)
    assert axes.get_xlabel() == "Accuracy at 41.5 MB (all clients), %"


def test_byte_budget_per_client_is_that_of_all_over_their_number(data):
    total = draw(data, "byte-budget", budget=5e7).axes[0]
    average = draw(data, "byte-budget", budget=5e7 / CLIENTS, of="per-client").axes[0]
    assert at(total) == at(average)
    assert "average client" in average.get_xlabel()
    assert "47.5 MB" in words(total)
    assert "4.75 MB" in words(average)


def test_tables_have_the_accuracy_at_the_default_budget(data):
    table = build(data).set_index("method")
    assert (table.budget_bytes == 2e8).all()
    spent = within_budget(data.rounds[data.rounds.method == "fedsdg"], "test_accuracy_mean", 2e8)
    assert table.accuracy_at_budget_mean["fedsdg"] == spent.accuracy.mean < table.accuracy_mean["fedsdg"]
    assert table.accuracy_at_budget_n["fedavg"] == 0


# -------------------------------------------------------------------------------------------------------- to a target


def test_bytes_to_the_reference(data):
    (axes,) = draw(data, "bytes-to-target").axes
    assert axes.get_xscale() == "log"
    table = build(data).set_index("method")
    points = {line.get_label(): line.get_xdata()[0] for line in axes.lines if line.get_marker() != "None"}
    assert points["FedSDG"] == table.bytes_to_target["fedsdg"]
    assert "Head only" not in points
    assert "never (ends at 59.0 %)" in words(axes)
    assert f"to {100 * (0.72 - TARGET_MARGIN):.1f} %" in axes.get_title(loc="left")


def test_bytes_to_a_number(data):
    (axes,) = draw(data, "bytes-to-target", target=0.55).axes
    points = {line.get_label(): line.get_xdata()[0] for line in axes.lines if line.get_marker() != "None"}
    course = data.rounds[data.rounds.method == "head-only"].groupby("round").test_accuracy_mean.mean()
    first = course[course >= 0.55].index[0]
    assert points["Head only"] == first * 2 * 7_720 * CLIENTS
    assert 0 < points["Local only"] < points["Head only"] / 3  # sends nothing: on a strip left of all others
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels[0] == "0"


def test_bytes_to_target_without_a_reference(made):
    data = made(reference=None)
    with pytest.raises(FedbenchError, match=r"set experiments\.main\.reference or give the figure a target"):
        draw(data, "bytes-to-target")
    assert draw(data, "bytes-to-target", target=0.55).axes


def test_a_target_below_the_base_is_reached_in_the_first_round(data):
    """What the untouched base can do is no method's doing."""
    table = build(data, 0.4).set_index("method")
    assert table.bytes_to_target["base"] == 0
    assert table.rounds_to_target["fedsdg"] == 1
    assert table.bytes_to_target["fedsdg"] == 2 * 593_296 * CLIENTS
    assert draw(data, "bytes-to-target", target=0.4).axes[0].get_xscale() == "log"


def test_bytes_to_target_where_nobody_gets_there(data):
    assert words(draw(data, "bytes-to-target", target=0.99).axes[0]) == [
        "no method that sends bytes reaches the target"
    ]


# -------------------------------------------------------------------------------------------------------------- sweeps


SWEEP = {
    "a": flite("a", 0.60, dimension=64, rank=8),
    "b": flite("b", 0.62, dimension=256, rank=8),
    "c": flite("c", 0.70, dimension=64, rank=32),
    "d": flite("d", 0.71, dimension=256, rank=32),
    "fedavg": RECIPES["fedavg"],
}


def lines(axes):
    return {
        one.get_label(): list(zip(one.lines[0].get_xdata(), one.lines[0].get_ydata(), strict=True))
        for one in axes.containers
    }


def test_sweep_of_methods_has_a_line_for_each_value_of_the_series(made):
    data = made(recipes=SWEEP, models=RESNET, reference=None)
    figure = draw(data, "sweep", x="method.dimension", series=["method.rank"])
    (axes,) = figure.axes
    found = lines(axes)
    assert set(found) == {"rank 8", "rank 32"}
    assert found["rank 32"] == [(64, pytest.approx(0.70)), (256, pytest.approx(0.71))]
    # a method without the key is a level
    level = next(line for line in axes.lines if line.get_label() == "FedAvg")
    assert level.get_ydata()[0] == pytest.approx(0.71)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["64", "256"]
    assert legend(figure) == ["rank 8", "rank 32", "FedAvg"]


def test_sweep_says_what_would_tell_two_methods_apart(made):
    recipes = SWEEP | {"e": flite("e", 0.65, dimension=64, rank=8, match_dimension=32)}
    data = made(recipes=recipes, models=RESNET, reference=None)
    message = r"a and e are both at method\.dimension = 64 of one line; they differ in method\.match_dimension"
    with pytest.raises(FedbenchError, match=message):
        draw(data, "sweep", x="method.dimension", series=["method.rank"])
    keys = ["method.rank", "method.match_dimension"]
    assert "rank 8, match dimension 32" in lines(draw(data, "sweep", x="method.dimension", series=keys).axes[0])


def test_sweep_over_seeds_is_none(made):
    with pytest.raises(FedbenchError, match=r"no run's resolved spec has a value at 'seed'"):
        draw(made(recipes=SWEEP, models=RESNET, reference=None), "sweep", x="seed")


@pytest.mark.parametrize("keys", [{"x": "method.dimensio"}, {"x": "method.dimension", "series": ["method.dimensio"]}])
def test_sweep_of_an_unknown_key(made, keys):
    data = made(recipes=SWEEP, models=RESNET, reference=None)
    with pytest.raises(FedbenchError, match=r"no run's .* 'method\.dimensio'; did you mean 'method\.dimension'"):
        draw(data, "sweep", **keys)


def test_sweep_over_clients_shows_accuracy_and_bytes_in_one_panel_each(made):
    partitions = {f"k{clients}": {"scheme": "iid", "clients": clients} for clients in (16, 4, 8)}
    data = made(recipes={name: RECIPES[name] for name in ("base", "fa-lora")}, partitions=partitions)
    accuracy, sent = draw(data, "sweep", x="partition.clients", bytes="total").axes
    assert [x for x, _ in lines(accuracy)["FA+LoRA"]] == [4, 8, 16]
    line = next(line for line in sent.lines if line.get_label() == "FA+LoRA")
    assert line.get_ydata().tolist() == [2 * 593_296 * ROUNDS * clients for clients in (4, 8, 16)]
    assert sent.get_yscale() == "log"
    average = draw(data, "sweep", x="partition.clients", bytes="per-client").axes[1]
    line = next(line for line in average.lines if line.get_label() == "FA+LoRA")
    assert set(line.get_ydata()) == {2 * 593_296 * ROUNDS}


def test_iid_stands_behind_the_largest_alpha(made):
    partitions = {"iid": {"scheme": "iid", "clients": 5}, "skewed": dirichlet(0.1), "half": dirichlet(0.5)}
    data = made(partitions=partitions)
    (axes,) = draw(data, "sweep", x="partition.alpha").axes
    places = [x for x, _ in lines(axes)["FedSDG"]]
    assert places[:2] == [0.1, 0.5]
    assert places[2] > 0.5
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.1", "0.5", "IID"]
    breaks = next(line for line in axes.lines if line.get_label() == "_break")
    assert breaks.get_xdata()[0] < axes.transAxes.inverted().transform(axes.transData.transform((places[2], BASE)))[0]
    assert "some seeds diverged" in legend(axes.figure)
    assert look_up({"partition": {"scheme": "iid"}}, "partition.alpha") == inf


def test_sweep_keeps_other_tasks_apart(made):
    partitions = {"skewed": dirichlet(0.1), "half": dirichlet(0.5)}
    models = {"vit": {"backbone": "small-vit", "label": "ViT"}, "deep": {"backbone": "small-vit", "label": "Deep"}}
    data = made(partitions=partitions, models=models)
    titles = [axes.get_title(loc="left") for axes in draw(data, "sweep", x="partition.alpha").axes]
    assert titles == ["ViT", "Deep"]


def test_sweep_over_words_and_over_what_has_no_logarithm(made):
    recipes = {
        "a": coded("a", 0.6, 32), "b": coded("b", 0.7, 16, channel="fp16"),
        "p": replace(RECIPES["fedsdg"], entry={"method": "fedsdg", "label": "p", "gate": "fixed", "gate_value": 0.0}),
        "q": replace(RECIPES["fedsdg"], entry={"method": "fedsdg", "label": "q", "gate": "fixed", "gate_value": 0.5}),
    }  # fmt: skip
    data = made(recipes=recipes, reference=None)
    (axes,) = draw(data, "sweep", x="channel.dtype", series=["method.method", "method.gate_value"]).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["fp32", "fp16"]
    gates = {"x": "method.gate_value", "series": ["method.gate"]}
    with pytest.raises(
        FedbenchError, match=r"method\.gate_value: .*0 has no logarithm; set the figure's scale: linear"
    ):
        draw(data, "sweep", **gates)
    assert [x for x, _ in lines(draw(data, "sweep", scale="linear", **gates).axes[0])["gate fixed"]] == [0.0, 0.5]


# ----------------------------------------------------------------------------------------------------------- precision


def test_precision_keeps_the_readings_of_one_width_apart(made):
    recipes = {
        "full": coded("FedAvg", 0.75, 32),
        "half": coded("FedAvg fp16", 0.75, 16, channel="fp16"),
        "int8": coded("FedAvg int8", 0.74, 8, channel="int8"),
        "int4": coded("FedAvg int4", 0.70, 4, channel="int4"),
        "weights": coded("FedAvg int4 of weights", 0.1, 4, channel="int4-weights"),
        "channel": coded("FedAvg int4 per channel", 0.72, 4, channel="int4-channel"),
        "prox": Recipe({"method": "fedprox", "label": "FedProx"}, (0.73,) * 3, 4000, 4000, values=1000),
        "base": RECIPES["base"],
    }
    figure = draw(made(recipes=recipes, reference=None), "precision")
    ladder, close = figure.axes
    found = {one.get_label(): one.lines[0] for one in ladder.containers}
    update = found["FedAvg, affine (range tensor, of update)"]
    assert update.get_xdata() == pytest.approx([4, 8], rel=0.15)
    assert list(update.get_ydata()) == pytest.approx([0.70, 0.74])
    fours = [line.get_xdata()[0] for label, line in found.items() if label.startswith("FedAvg, affine")]
    assert len(set(fours)) == 3  # three readings of int4, side by side
    assert found["FedAvg"].get_xdata() == pytest.approx([32])
    # every coding's line ends at its own family's float32 messages
    ends = {
        (line.get_xdata()[-1], round(line.get_ydata()[-1], 6)) for line in ladder.lines if line.get_label() == "_line"
    }
    assert ends == {(32, 0.75)}
    assert {"FedAvg, float32", "FedProx, float32", "fp16", "affine (range channel, of update)"} <= set(legend(figure))
    assert close.get_ylim()[0] == pytest.approx(0.70)


def test_precision_of_what_sends_nothing(made):
    data = made(recipes={name: RECIPES[name] for name in ("base", "local-only")}, reference=None)
    with pytest.raises(FedbenchError, match="figure precision: no finished run sends shared values"):
        draw(data, "precision")


# -------------------------------------------------------------------------------------------------------------- pareto


def many(count, prefix="m", sent=1000):
    spread = [0.6 + 0.002 * i for i in range(count)]
    return {
        f"{prefix}{i}": Recipe({"method": "fedavg", "label": f"A method named {i}"}, (a, a + 0.004, a), sent, sent)
        for i, a in enumerate(spread)
    }


def test_pareto_labels_of_many_methods_do_not_cover_each_other(made):
    data = made(recipes=many(15) | many(4, "x", 10), reference=None)
    figure = draw(data, "pareto")
    (axes,) = [axes for axes in figure.axes if axes.texts]
    renderer = figure.canvas.get_renderer()
    boxes = {text.get_text(): text.get_window_extent(renderer) for text in axes.texts}
    assert len(boxes) == 19
    frame = axes.get_window_extent(renderer)
    for (one, a), (other, b) in combinations(boxes.items(), 2):
        width, height = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(width, height) < 2, (one, other)
    assert all(box.x1 < frame.x1 + 20 for box in boxes.values())
    # the frontier is named in place, the others by number, and the key has all of them
    assert "A method named 14 (m14)" in boxes or "A method named 14" in boxes
    assert "1" in boxes
    assert any(text.startswith("1  ") for text in legend(figure))


def test_pareto_of_few_methods_names_them_all(made):
    figure = draw(made(recipes=many(5), reference=None), "pareto")
    assert {f"A method named {i}" for i in range(5)} <= {text for axes in figure.axes for text in words(axes)}


def test_pareto_has_one_panel_for_all_models_of_a_partition(made):
    models = {"vit": {"backbone": "small-vit", "label": "ViT"}, "deep": {"backbone": "small-vit", "label": "Deep"}}
    partitions = {"dirichlet-0.1": "Dirichlet 0.1", "iid": "IID"}
    recipes = {name: RECIPES[name] for name in ("head-only", "fa-lora", "fedsdg")}
    figure = draw(made(recipes=recipes, models=models, partitions=partitions), "pareto")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Dirichlet 0.1", "IID"]
    assert all(len(axes.containers) == 6 for axes in figure.axes)
    assert {"ViT", "Deep"} <= set(legend(figure))
    fills = {one.lines[0].get_fillstyle() for one in figure.axes[0].containers}
    assert fills == {"full", "none"}


# -------------------------------------------------------------------------------------------------------------- layout


@pytest.mark.parametrize("name", ["ablation", "learning-curves"])
def test_long_figures_put_two_tasks_side_by_side(made, name):
    partitions = {f"p{i}": f"Partition {i}" for i in range(7)}
    data = made(recipes={key: RECIPES[key] for key in ("fa-lora", "fedsdg", "fedavg")}, partitions=partitions)
    figure = draw(data, name)
    assert len(figure.axes) == 14
    width, height = figure.get_size_inches()
    assert height < 12
    assert width > 10
    titled = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in titled] == list(partitions.values())
    first, second = (axes.get_position() for axes in titled[:2])
    assert first.y0 == pytest.approx(second.y0)
    assert sum(bool(axes.get_xlabel()) for axes in figure.axes) == 4  # below the last task of either column


@pytest.mark.parametrize("name", ["byte-budget", "bytes-to-target", "precision"])
def test_diverged_runs_keep_no_figure_from_being_drawn(tmp_path, name):
    recipes = {"fedavg": replace(RECIPES["fedavg"], diverged=frozenset({0, 1, 2})), "fa-lora": RECIPES["fa-lora"]}
    for reference in recipes:
        world = make_world(recipes, figures=(name,), reference=reference)
        paths = Paths(tmp_path / reference)
        write_runs(world, paths)
        assert all(path.stat().st_size > 1000 for path in plot(world.config, paths))


def test_one_kind_of_figure_twice_under_two_names(tmp_path):
    figures = ("byte-budget", {"figure": "byte-budget", "name": "small-budget", "budget": 1e6})
    world = make_world(figures=figures)
    paths = Paths(tmp_path)
    write_runs(world, paths)
    files = plot(world.config, paths)
    assert [file.name for file in files[::2]] == ["byte-budget.png", "small-budget.png"]
    assert files[0].read_bytes() != files[2].read_bytes()
    assert plot(world.config, paths, "main", "small-budget") == files[2:]
