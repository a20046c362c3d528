"""What figures contain: scales, labels, who is marked."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from fake_runs import BASE, DIRICHLET, RECIPES, Recipe, never_wrote
from matplotlib.colors import to_hex
from PIL import Image

from fedbench.analysis.collect import collect
from fedbench.analysis.figures._byte_axis import byte_ticks
from fedbench.analysis.figures._rows import fewer_seeds
from fedbench.analysis.figures._style import COLOURS, method_styles
from fedbench.analysis.figures.fairness import client_accuracies, percentiles
from fedbench.analysis.figures.gate_dynamics import COLUMNS
from fedbench.analysis.figures.pareto import ParetoOptions
from fedbench.analysis.figures.partitions import client_order
from fedbench.analysis.plot import plot
from fedbench.analysis.tables import build
from fedbench.config.entries import Experiment, Grid
from fedbench.errors import FedbenchError
from fedbench.registry import FIGURES

EVERY = ("ablation", "fairness", "gate-dynamics", "gates", "learning-curves", "pareto", "partitions")
DOMAINS = {"art": -0.1, "photo": 0.1}


@pytest.fixture(scope="module")
def data(results):
    world, paths = results
    return collect(world.config, paths).experiment("main")


def draw(data, name, options=None):
    return FIGURES[name].target(data, options or FIGURES[name].options())


def texts(figure):
    figure.canvas.draw()
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    return found + [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_all_figures_are_registered():
    assert set(EVERY) <= set(FIGURES)
    assert all(FIGURES[name].summary for name in FIGURES)


def test_listing_figures_imports_nothing_heavy():
    program = (
        "import sys; from fedbench.registry import FIGURES; list(FIGURES); "
        "print([m for m in ('torch', 'matplotlib', 'pandas', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pareto(data):
    figure = draw(data, "pareto")
    axes = figure.axes[0]
    assert axes.get_xscale() == "log"
    assert "Bytes" in axes.get_xlabel()
    found = texts(figure)
    assert set(data.methods.values()) <= set(found)
    assert {"Pareto frontier", "dominated", "some seeds diverged"} <= set(found)
    # methods that send nothing stand left of all others, on a tick of their own
    at = {container.get_label(): container.lines[0].get_xdata()[0] for container in axes.containers}
    free = {at["Base"], at["Local only"]}
    assert len(free) == 1
    assert max(free) < at["Head only"] == 2 * 7_720 * 10 * 20
    axes.figure.canvas.draw()
    labels = dict(zip(axes.get_xticks(), [label.get_text() for label in axes.get_xticklabels()], strict=True))
    assert labels[free.pop()] == "0"
    # the frontier is coloured, the dominated are not
    colours = {container.get_label(): to_hex(container.lines[0].get_color()) for container in axes.containers}
    assert colours["FedSDG"].upper() in COLOURS
    assert colours["FedAvg"] == colours["Base"] == "#a8a8a8"
    frontier = next(line for line in axes.lines if line.get_label() == "Pareto frontier")
    assert np.allclose(sorted(set(frontier.get_ydata())), [0.61, 0.78])


def test_pareto_counts_per_client(data):
    figure = draw(data, "pareto", ParetoOptions(axis="per-client"))
    at = {container.get_label(): container.lines[0].get_xdata()[0] for container in figure.axes[0].containers}
    assert at["Head only"] == 2 * 7_720 * 20
    assert not figure.axes[0].child_axes
    both = draw(data, "pareto").axes[0].child_axes
    assert len(both) == 1
    assert "per client" in both[0].get_xlabel()


def test_pareto_error_bars_are_the_sample_std(data):
    container = next(one for one in draw(data, "pareto").axes[0].containers if one.get_label() == "FedSDG")
    (low, high) = container.lines[2][0].get_segments()[0][:, 1]
    assert (high - low) / 2 == pytest.approx(0.0264575131)


def test_pareto_of_one_method_and_one_seed(fresh):
    world, paths = fresh(recipes={"fa-lora": RECIPES["fa-lora"]}, seeds=(0,))
    figure = draw(collect(world.config, paths).experiment("main"), "pareto")
    assert "FA+LoRA" in texts(figure)


def test_pareto_without_bytes(fresh):
    world, paths = fresh(recipes={"base": RECIPES["base"], "local-only": RECIPES["local-only"]}, reference=None)
    with pytest.raises(FedbenchError, match="no finished run sends bytes"):
        draw(collect(world.config, paths).experiment("main"), "pareto")


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("methods", [("fedsdg",), ("fedsdg", "fa-lora"), ("base", "fedsdg")])
def test_any_figure_can_be_drawn_when_whatever_trained_diverged(fresh, name, methods):
    """A diverged run is a result: it must not keep an experiment's other figures and the report from being made."""
    diverged = {method: replace(RECIPES[method], diverged=frozenset({0, 1})) for method in methods if method != "base"}
    recipes = {method: diverged.get(method, RECIPES[method]) for method in methods}
    world, paths = fresh(recipes=recipes, figures=(name,), seeds=(0, 1), reference=None)
    for gates in paths.root.rglob("gates.csv"):  # a run that diverged in its first round has none
        never_wrote(gates)
    assert all(path.stat().st_size > 1000 for path in plot(world.config, paths))
    if name in ("ablation", "gate-dynamics", "gates", "learning-curves", "pareto"):
        assert "diverged" in " ".join(texts(draw(collect(world.config, paths).experiment("main"), name)))


def test_ablation(data):
    figure = draw(data, "ablation")
    bars, differences = figure.axes
    assert [label.get_text() for label in bars.get_yticklabels()] == list(data.methods.values())
    assert bars.get_xlim()[0] == 0  # bars start at zero
    widths = [patch.get_width() for patch in bars.patches]
    assert widths == pytest.approx([0.5, 0.61, 0.59, 0.72, 0.78, 0.71, 2.0 / 3, 0.665])
    dots = [len(line.get_xdata()) for line in bars.lines if line.get_label() == "_seeds"]
    assert dots == [3, 3, 3, 3, 3, 3, 3, 2]
    found = " ".join(text.get_text() for text in differences.texts)
    assert "reference" in found
    assert "+6.0" in found
    assert "p = " in found
    assert "(1 diverged)" in " ".join(text.get_text() for text in bars.texts)


def test_ablation_without_reference_has_bars_only(fresh):
    world, paths = fresh(reference=None)
    assert len(draw(collect(world.config, paths).experiment("main"), "ablation").axes) == 1


def test_learning_curves(data):
    figure = draw(data, "learning-curves")
    rounds, sent = figure.axes
    assert rounds.get_xscale() == "linear"
    assert sent.get_xscale() == "log"
    assert {"FedSDG", "FedAvg (SGD) (diverged)"} <= set(texts(figure))
    line = next(line for line in rounds.lines if line.get_label() == "FedSDG")
    assert line.get_xdata().tolist() == list(range(21))
    assert line.get_ydata()[-1] == pytest.approx(0.78)
    bands = [band for band in rounds.collections if band.get_label() == "_band"]
    assert bands
    over = next(line for line in sent.lines if line.get_label() == "FedSDG")
    assert over.get_xdata()[-1] == 2 * 593_296 * 10 * 20
    for axes in figure.axes:
        levels = [line for line in axes.lines if np.allclose(line.get_ydata(), BASE)]
        assert [line.get_label() for line in levels] == ["_base"], "the base is one line"
    assert "Base" not in texts(figure)


def test_learning_curves_say_what_round_0_is():
    assert "round 0 is the base, fine-tuned where" in FIGURES["learning-curves"].summary


def test_learning_curves_of_the_base_alone(fresh):
    world, paths = fresh(recipes={"base": RECIPES["base"]}, reference=None)
    figure = draw(collect(world.config, paths).experiment("main"), "learning-curves")
    assert not figure.legends
    assert [line.get_label() for line in figure.axes[0].lines] == ["_base"]


def test_single_seed_curves_have_no_band(fresh):
    world, paths = fresh(seeds=(0,))
    figure = draw(collect(world.config, paths).experiment("main"), "learning-curves")
    assert not [band for axes in figure.axes for band in axes.collections]


def test_gates(data):
    figure = draw(data, "gates")
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "FedSDG"
    assert {"attention (output projection)", "FFN (second layer)"} <= set(texts(figure))
    lines = {line.get_label(): line for line in axes.lines}
    attention, ffn = lines["attention (output projection)"], lines["FFN (second layer)"]
    assert attention.get_xdata().tolist() == [1, 2, 3, 4, 5, 6]
    assert (ffn.get_ydata() > attention.get_ydata()).all()


def test_gates_counts_the_clients_of_each_seed(data):
    """Other clients may have taken part in each seed."""
    assert "10 clients × 3 seeds" in texts(draw(data, "gates"))
    moved = data.gates.assign(client=data.gates.client + data.gates.seed)
    assert "10 clients × 3 seeds" in texts(draw(replace(data, gates=moved), "gates"))
    fewer = data.gates[(data.gates.client > 0) | (data.gates.seed > 0)]
    assert "29 clients of 3 seeds" in texts(draw(replace(data, gates=fewer), "gates"))


@pytest.mark.parametrize("level", [0.001, 0.3, 1.0])
def test_gates_are_whole_and_apart_from_the_text(data, level):
    """A few clients whose gates are wide open must not be cut off, nor run under the count of clients."""
    tail = data.gates.block == data.gates.block.max()
    gates = data.gates.assign(value=np.where(tail, level * (0.7 + 0.03 * data.gates.client), 0.01 * level))
    (axes,) = draw(replace(data, gates=gates), "gates").axes
    axes.figure.canvas.draw()
    (count,) = axes.texts
    free = axes.transData.inverted().transform((0, count.get_window_extent().y0))[1]
    bands = [path.vertices[:, 1].max() for band in axes.collections for path in band.get_paths()]
    assert max(bands) == pytest.approx(level * (0.7 + 0.03 * 8.1), rel=0.01)
    assert max(bands) < free


def test_gates_without_gates(fresh):
    world, paths = fresh(recipes={name: RECIPES[name] for name in ("fa-lora", "fedavg")})
    with pytest.raises(FedbenchError, match=r"figure gates: none of its finished runs has a gates\.csv"):
        draw(collect(world.config, paths).experiment("main"), "gates")


def test_fairness(data):
    figure = draw(data, "fairness")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(data.methods.values())
    assert "57 / 58 / 66 / 75, n = 2 of 3" in texts(figure)
    assert "40 / 42 / 50 / 58" in texts(figure), "worst, P10, P50 and P90 of the base"
    middle = next(line for line in axes.lines if line.get_label() == "Base")
    assert middle.get_xdata() == pytest.approx([0.42, 0.58], abs=0.005)
    clients = [line for line in axes.lines if line.get_label() == "_clients"]
    assert [len(line.get_xdata()) for line in clients] == [30, 30, 30, 30, 30, 30, 30, 20], "one run diverged"
    worst = next(line for line in axes.lines if line.get_label() == "_worst")
    assert worst.get_xdata() == pytest.approx([0.4])
    assert axes.get_xlim()[0] < 0.4, "nobody is cut off"


def test_fairness_and_table_mean_the_same_by_percentiles(data):
    """Each seed's own, then the mean: not those of all clients of all seeds together."""
    rows = build(data).set_index("method")
    everyone = client_accuracies(data, data.tasks[0])
    for method, seeds in everyone.items():
        assert percentiles(seeds) == pytest.approx(rows.loc[method, ["worst", "p10", "p50", "p90"]].to_numpy(float))
    assert percentiles(everyone["fedsdg"])[0] == pytest.approx(0.68)
    assert min(map(min, everyone["fedsdg"])) == pytest.approx(0.65), "of the worst seed"
    found = texts(draw(data, "fairness"))
    assert {"68 / 70 / 78 / 86", "worst client (mean over seeds)"} <= set(found)


def test_rows_of_fewer_seeds_say_so():
    assert fewer_seeds([3, 2, 3]) == ["", ", n = 2 of 3", ""]
    assert fewer_seeds([2, 2]) == ["", ""]
    assert fewer_seeds([]) == []


def test_fairness_leaves_out_held_out_clients(data):
    clients = data.clients.assign(held_out=(data.clients.client == 0).astype(int))
    (axes,) = draw(replace(data, clients=clients), "fairness").axes
    base = next(line for line in axes.lines if line.get_label() == "_clients")
    assert len(base.get_xdata()) == 9 * 3
    assert min(base.get_xdata()) > 0.4, "the worst was held out"


def test_gate_dynamics(data):
    drift, variance = draw(data, "gate-dynamics").axes
    assert drift.get_yscale() == variance.get_yscale() == "log"
    (line,) = [line for line in drift.lines if line.get_label() == "FedSDG"]
    assert line.get_xdata().tolist() == list(range(1, 21))
    assert line.get_ydata()[[0, 9]] == pytest.approx([0.306, 0.0306]), "of 0.3, 0.306 and 0.312"
    (band,) = [band for band in drift.collections if band.get_label() == "_range"]
    heights = {round(y * x, 6) for x, y in band.get_paths()[0].vertices}
    assert heights == {0.3, 0.312}, "from the smallest to the largest"
    (line,) = [line for line in variance.lines if line.get_label() == "FedSDG"]
    assert line.get_ydata()[9] == pytest.approx(0.306e-6)
    assert (drift.get_ylabel(), variance.get_ylabel()) == tuple(COLUMNS.values())


def test_gate_dynamics_tells_lines_apart_without_colour(fresh):
    other = replace(RECIPES["fedsdg"], entry={"method": "fedsdg", "label": "From 0", "gate_init": 0.0})
    recipes = {"a": RECIPES["fedsdg"], "b": other}
    world, paths = fresh(recipes=recipes, reference=None, seeds=(0,))
    for axes in draw(collect(world.config, paths).experiment("main"), "gate-dynamics").axes:
        markers = [line.get_marker() for line in axes.lines]
        assert len(set(markers)) == 2
        assert "None" not in markers


def test_gate_dynamics_without_learned_gates(fresh):
    world, paths = fresh(recipes={name: RECIPES[name] for name in ("fa-lora", "fedavg")})
    with pytest.raises(FedbenchError, match="figure gate-dynamics: none of its finished runs followed learned gates"):
        draw(collect(world.config, paths).experiment("main"), "gate-dynamics")


def test_newcomers(fresh):
    recipes = {name: replace(RECIPES[name], newcomers=-0.1) for name in ("fa-lora", "fedsdg", "fedavg-sgd")}
    world, paths = fresh(recipes={**recipes, "base": RECIPES["base"]})
    figure = draw(collect(world.config, paths).experiment("main"), "newcomers")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["FA+LoRA", "FedSDG", "FedAvg (SGD)"]
    widths = [patch.get_width() for patch in axes.patches]
    assert widths == pytest.approx([0.72, 0.62, 0.78, 0.68, 0.665, 0.565])
    assert [text for text in texts(figure) if text.startswith("−10.0")] == ["−10.0", "−10.0", "−10.0, n = 2 of 3"]


@pytest.mark.parametrize(
    ("training", "text"),
    [
        ({"held_out": 0.2, "held_out_epochs": 5}, "after 5 own epochs"),
        ({"held_out": 0.2, "fine_tune_epochs": 1}, "after 1 own epoch"),
        ({"held_out": 0.2}, "without own training"),
    ],
)
def test_newcomers_says_how_long_they_trained(fresh, training, text):
    recipes = {"fa-lora": replace(RECIPES["fa-lora"], newcomers=-0.1)}
    world, paths = fresh(recipes=recipes, partitions={"dirichlet-0.1": {**DIRICHLET, "training": training}}, seeds=(0,))
    figure = draw(collect(world.config, paths).experiment("main"), "newcomers")
    assert f"newcomers {text} (right: difference, points)" in texts(figure)


def test_newcomers_without_held_out_clients(data):
    with pytest.raises(FedbenchError, match=r"figure newcomers: .* holds clients out"):
        draw(data, "newcomers")


@pytest.mark.parametrize("metric", ["personal", "global"])
def test_domains(fresh, metric):
    recipes = {name: replace(RECIPES[name], domains=DOMAINS) for name in ("base", "fa-lora", "fedsdg", "fedavg-sgd")}
    world, paths = fresh(recipes=recipes, metric=metric)
    figure = draw(collect(world.config, paths).experiment("main"), "domains")
    axes, bar = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == list(DOMAINS)
    assert axes.get_yticklabels()[-1].get_text() == "FedAvg (SGD), n = 2 of 3"
    shift = 0.0 if metric == "personal" else -0.05
    means = {"base": 0.5, "fa-lora": 0.72 + shift, "fedsdg": 0.78 + shift, "fedavg-sgd": 0.665 + shift}
    shown = [text.get_text() for text in axes.texts]
    assert shown == [f"{100 * (mean + offset):.1f}" for mean in means.values() for offset in DOMAINS.values()]
    gains = np.asarray(axes.images[0].get_array())
    assert gains[:, 0] == pytest.approx([mean - 0.5 for mean in means.values()])
    assert [text.get_text() for text in axes.texts if text.get_weight() == "bold"] == shown[4:6], "the best of each"
    assert "Gain over the base" in bar.get_ylabel()


def test_domains_shows_only_tasks_that_have_some(fresh):
    recipes = {name: replace(RECIPES[name], domains=DOMAINS) for name in ("base", "fa-lora")}
    world, paths = fresh(recipes=recipes, partitions={"dirichlet-0.1": "Dirichlet 0.1", "iid": "IID"})
    for path in paths.root.glob("runs/digits/iid/**/domains.csv"):
        never_wrote(path)
    axes, _ = draw(collect(world.config, paths).experiment("main"), "domains").axes
    assert axes.get_title(loc="left") == "Dirichlet 0.1"


def test_domains_without_domains(data):
    with pytest.raises(FedbenchError, match=r"figure domains: none of its finished runs has a domains\.csv"):
        draw(data, "domains")


def test_identifiability(fresh):
    recipes = {
        name: replace(RECIPES["fedsdg"], entry={"method": "fedsdg", "label": name, **options})
        for name, options in {
            "fixed": {"gate": "fixed", "gate_value": 0.5},
            "aligned": {},
            "unaligned": {"alignment": "none"},
            "again": {"gate_init": 0.0},
        }.items()
    }
    world, paths = fresh(recipes={**recipes, "fa-lora": RECIPES["fa-lora"]}, seeds=(0,))
    figure = draw(collect(world.config, paths).experiment("main"), "identifiability")
    output, gate, slope = figure.axes
    assert "random weights" in figure.get_suptitle(), "said in the picture itself"
    assert "a gate's maximum" in texts(figure)

    def course(axes, name):
        (line,) = [line for line in axes.lines if line.get_label() == name]
        return np.array(line.get_xdata()), np.array(line.get_ydata())

    shown = {line.get_label() for line in output.lines}
    assert not shown & {"again", "fixed"}, "one of each kind, with a learned gate"
    scales, moved = course(output, "unaligned")
    assert (scales[0], scales[-1]) == pytest.approx((0.1, 10))
    assert moved[[0, -1]].min() > 0.1
    assert course(output, "aligned")[1].max() < 2e-3
    np.testing.assert_allclose(course(gate, "unaligned")[1], 0.3 / scales, rtol=1e-6)
    np.testing.assert_allclose(course(gate, "aligned")[1], 0.3, rtol=5e-3)
    steep = course(slope, "unaligned")[1]
    assert (np.diff(steep) > 0).all()
    assert steep[-1] > 5 * steep[len(steep) // 2]
    np.testing.assert_allclose(course(slope, "aligned")[1], 1, rtol=0.02)  # epsilon in the root is what is left of c


def test_identifiability_needs_a_private_branch(fresh):
    world, paths = fresh(recipes={"fa-lora": RECIPES["fa-lora"]}, seeds=(0,))
    with pytest.raises(FedbenchError, match="none of its methods aligns a private branch"):
        draw(collect(world.config, paths).experiment("main"), "identifiability")


def test_partitions(data):
    figure = draw(data, "partitions")
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "Dirichlet 0.1"
    assert "JS distance 0.51" in " ".join(texts(figure))


def test_client_order_makes_a_diagonal():
    counts = np.array([[0, 0, 9], [9, 0, 0], [0, 9, 0]])
    assert client_order(counts).tolist() == [1, 2, 0]


def test_facets_per_task(fresh):
    world, paths = fresh(partitions={"dirichlet-0.1": "Dirichlet 0.1", "iid": "IID"})
    data = collect(world.config, paths).experiment("main")
    for name in EVERY:
        titles = [axes.get_title(loc="left") for axes in draw(data, name).axes]
        assert any("IID" in title for title in titles), name
        assert any("Dirichlet 0.1" in title for title in titles), name


def test_each_method_has_one_look(results):
    styles = method_styles(results[0].config)
    assert len({style.colour for style in styles.values()}) == len(RECIPES)
    many = {f"m{i}": Recipe({"method": "fedavg"}, (0.7, 0.7, 0.7), 1, 1) for i in range(14)}
    from fake_runs import make_world

    looks = method_styles(make_world(many, reference=None).config).values()
    assert len({(look.colour, look.marker) for look in looks}) == 14


@pytest.mark.parametrize(("low", "high"), [(1e3, 1e9), (2e3, 9e3), (5e5, 5e6), (1, 1e15)])
def test_byte_ticks(low, high):
    ticks = byte_ticks(low, high)
    assert 2 <= len(ticks) <= 6
    assert all(low <= tick <= high for tick in ticks)


def test_plot_writes_png_and_pdf(fresh):
    world, paths = fresh(figures=("pareto", "gates"))
    files = plot(world.config, paths, "main")
    folder = paths.root / "figures" / "main"
    assert files == [folder / "pareto.png", folder / "pareto.pdf", folder / "gates.png", folder / "gates.pdf"]
    with Image.open(files[0]) as image:
        assert image.width > 900
    assert files[1].read_bytes().startswith(b"%PDF")
    again = {file: file.read_bytes() for file in files}
    assert plot(world.config, paths, "main", "gates") == files[2:]
    assert all(file.read_bytes() == content for file, content in again.items())


def test_plot_reads_only_the_experiment_that_it_draws(fresh):
    world, paths = fresh(figures=("pareto",))
    grid = Grid(dataset="digits", partition="dirichlet-0.1", model="vit", method=["fedavg"])
    world.config.experiments["other"] = Experiment(title="Other", cells=[grid], seeds=[0], figures=["pareto"])
    for path in paths.root.glob("runs/**/fedsdg/**/summary.json"):
        path.write_text("{")
    assert len(plot(world.config, paths, "other")) == 2
    with pytest.raises(FedbenchError, match="not valid JSON"):
        plot(world.config, paths, "main")


def test_plot_of_what_is_there_passes_over_experiments_without_a_run(fresh):
    world, paths = fresh(figures=("ablation",))
    grid = Grid(dataset="digits", partition="dirichlet-0.1", model="vit", method=["fedavg"])
    later = Experiment(title="Later", cells=[grid], seeds=[8, 9], figures=["ablation"])
    config = replace(world.config, experiments={"later": later, **world.config.experiments})
    lines = []
    files = plot(config, paths, require_all=False, log=lines.append)
    assert [file.parent.name for file in files] == ["main", "main"]
    assert lines == ["later: left out: 2 of 2 runs (2 not run yet)"]
    for arguments in ({"experiment": "later", "require_all": False}, {"require_all": True}):
        with pytest.raises(FedbenchError, match=r"no finished run of config 'fake'; the first is .*/seed8"):
            plot(config, paths, **arguments)


def test_letters_that_no_font_has_are_said_once(fresh, monkeypatch):
    from fedbench.files import picture

    world, paths = fresh(figures=("ablation", "fairness"), title="漢 and 字")
    monkeypatch.setattr(picture, "_fallbacks", lambda letters: ((), frozenset(letters & set("漢字"))))
    lines = []
    plot(world.config, paths, log=lines.append)
    (line,) = lines
    assert line.startswith("no installed font has '字漢': pictures show boxes there; ")


def test_plot_of_an_unknown_name(results):
    world, paths = results
    with pytest.raises(FedbenchError, match="did you mean 'main'"):
        plot(world.config, paths, "mian")
    with pytest.raises(FedbenchError, match="has no figure 'pareto'"):
        plot(world.config, paths, "main", "pareto")
