"""Published numbers: all have a cell in the full config, whose settings are what the paper says, and are seen to be."""

from pathlib import Path

import pytest

from fedbench.config import layers, papers
from fedbench.config import reading as config
from fedbench.config.plan import Plan
from fedbench.config.spec import cells, resolve
from fedbench.errors import FedbenchError

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "workflow/configs/smoke.yaml"


@pytest.fixture(scope="module")
def full():
    return config.load([ROOT / "config.yaml"])


def asked(full, name):
    """The runs of the experiments that show a paper's numbers, by the names that numbers have."""
    return {
        (cell.dataset, cell.partition, cell.model, cell.method): cell
        for experiment, entry in full.experiments.items()
        if entry.paper == name
        for cell in cells(full, experiment)
    }


def key(number):
    return number.dataset, number.partition, number.model, number.method


@pytest.mark.parametrize("name", papers.names())
def test_the_full_config_runs_every_number_as_the_paper_says(full, name):
    runs, paper = asked(full, name), papers.read(name)
    assert len(paper.numbers) > 20
    for number in paper.numbers:
        assert 0 < number.value < 1
        assert paper.deviations(number, resolve(full, runs[key(number)]).full) == [], number
        assert len(paper.declared(number)) > 8
    if paper.seeds is not None:
        assert len(full.seeds) == paper.seeds


@pytest.mark.parametrize(
    ("name", "method", "assignment", "expected"),
    [
        ("fedsdg", "fedsdg", "training.rounds=7", None),
        ("fedsdg", "fedsdg", "models.vit-tiny.training.rounds=7", "training.rounds 7 (paper: 80)"),
        ("fedsdg", "fedsdg", "models.vit-tiny.base=imagenet21k-then-1k", "base.tag augreg_in21k_ft_in1k (paper: augr"),
        ("fedsdg", "fedsdg", "models.vit-tiny.base=null", "base.kind none (paper: pretrained)"),
        ("fedsdg", "fedsdg", "methods.fedsdg.gate_init=0", "method.gate_init 0 (paper: -3)"),
        ("fedsdg", "fedrep", "methods.fedrep.head_epochs=1", "method.head_epochs 1 (paper: 4)"),
        ("fedsdg", "fedsdg", "partitions={p100-dirichlet-0.1: {clients: 20}}", "partition.clients 20 (paper: 100)"),
        (
            "fedsdg",
            "ditto",
            "partitions={p100-dirichlet-0.1: {training: {participation: 0.5}}}",
            "training.participation 0.5 (p",
        ),
        ("flite", "flite", "methods.flite.dimension=32", "method.dimension 32 (paper: 64)"),
        ("flite", "fedavg", "bases.central.data=public", None),
        ("flite", "flite-int8", "channels.int8.bits=4", "channel.bits 4 (paper: 8)"),
    ],
)
def test_departures_are_named(name, method, assignment, expected):
    if assignment.startswith("bases"):  # a base on public data needs a data set that has some
        assignments = [assignment, "datasets.cifar100.public={fraction: 0.5}"]
        expected = "base.data public (paper: all)"
    else:
        assignments = [assignment]
    changed = config.load([ROOT / "config.yaml"], assignments)
    paper, runs = papers.read(name), asked(changed, name)
    number = next(n for n in paper.numbers if n.method == method and n.dataset.startswith("cifar100"))
    found = paper.deviations(number, resolve(changed, runs[key(number)]).full)
    if expected is None:  # overridden by the model's own training
        assert found == []
    else:
        assert any(text.startswith(expected) for text in found), found


def comparisons(full, name):
    """(number, its run's spec) of every number of a paper."""
    runs = asked(full, name)
    return [(number, resolve(full, runs[key(number)]).full) for number in papers.read(name).numbers]


def leaves(spec, path=()):
    for name, value in spec.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name)


def replaced(spec, path, value):
    first, *rest = path
    return {**spec, first: replaced(spec.get(first) or {}, rest, value) if rest else value}


@pytest.mark.parametrize("name", papers.names())
def test_any_other_value_is_a_departure_unless_the_setting_is_free(full, name):
    paper, free = papers.read(name), set()
    for number, spec in comparisons(full, name):
        for path in leaves(spec):
            if not paper.deviations(number, replaced(spec, path, "other")):
                free.add(".".join(path))
    moot = {"method.rank", "method.lora_alpha", "method.gate_value", "training.momentum", "training.betas"}
    assert {path for path in free - moot if not path.startswith("base.")} == {
        *("seed", "model.base", "dataset.download", "dataset.layout"),
        *("training.evaluate_every", "training.held_out_epochs"),
        *(["method.map_seed"] if name == "flite" else []),
    }
    if name == "flite":
        assert {path for path in free if path.startswith("base.")} == {"base.seed", "base.tag", "base.path"}


@pytest.mark.parametrize("name", papers.names())
def test_no_setting_is_free_for_all_that_has_an_effect_on_some(full, name):
    """What is free because a method makes nothing of it is declared for those that do."""
    paper = papers.read(name)
    for number, spec in comparisons(full, name):
        compared = set(paper.declared(number))
        adam = spec["training"]["optimizer"] == "adam"
        assert ("training.betas" if adam else "training.momentum") in compared
        assert "method.rank" in compared or spec["method"].get("trainable", "full") == "full"
        assert ("method.gate_value" in compared) == (spec["method"].get("gate") == "fixed")


@pytest.mark.parametrize("name", papers.names())
@pytest.mark.parametrize("section", ["dataset", "partition", "model", "method", "channel", "training"])
def test_an_option_that_nobody_placed_is_a_departure(full, name, section):
    for number, spec in comparisons(full, name):
        found = papers.read(name).deviations(number, replaced(spec, (section, "novel"), 3))
        assert found == [f"{section}.novel 3 (unknown to this comparison)"]


@pytest.mark.parametrize(
    ("assignments", "method", "expected"),
    [
        (["models.vit-tiny.image_size=64"], "fedsdg", ["model.image_size 64 (paper: 224)"]),
        (["models.vit-tiny.image_size=224"], "fedsdg", []),
        (["datasets.tiny-imagenet.path=other"], "fedsdg", ["dataset.path other (config.yaml: tiny-imagenet-200)"]),
        (["datasets.tiny-imagenet.public={fraction: 0.3}"], "ditto", ["dataset.public fraction 0.3 (paper: none)"]),
        (["methods.fa-lora.trainable=full"], "fa-lora", ["method.trainable full (paper: lora)"]),
        (["methods.fedavg-adam.trainable=head"], "fedavg-adam", ["method.trainable head (paper: full)"]),
        (["methods.feddpa.inference=fixed"], "feddpa", ["method.inference fixed (paper: instance)"]),
        (["training.aggregation=samples"], "local-only", ["training.aggregation samples (paper: uniform)"]),
        (["training.precision=bf16"], "fedrep", ["training.precision bf16 (config.yaml: fp32)"]),
        (["training.betas=[0.5, 0.5]"], "fedsdg", ["training.betas 0.5, 0.5 (paper: 0.9, 0.999)"]),
        (["training.betas=[0.5, 0.5]"], "fedavg-adam", ["training.betas 0.5, 0.5 (config.yaml: 0.9, 0.999)"]),
        (["training.betas=[0.5, 0.5]"], "fedavg-sgd", []),
        (["training.local_steps=1"], "fedsdg", ["training.local_steps 1 (paper: none)"]),
        (
            ["methods.ditto.training={clip: 0.001, local_steps: 1}"],
            "ditto",
            ["training.local_steps 1 (paper: none)", "training.clip 0.001 (config.yaml: none)"],
        ),
        (["models.vit-tiny.base=null"], "fedsdg", ["base.kind none (paper: pretrained)"]),
        (["methods.fedsdg.channel=int8"], "fedsdg", ["channel.codec affine (paper: dense)"]),
    ],
)
def test_departures_of_the_main_table(assignments, method, expected):
    changed, paper = config.load([ROOT / "config.yaml"], assignments), papers.read("fedsdg")
    runs = asked(changed, "fedsdg")
    cell = ("tiny-imagenet", "p100-dirichlet-0.1", "vit-tiny", method)
    for number in paper.numbers:
        if key(number) == cell:
            assert paper.deviations(number, resolve(changed, runs[cell]).full) == expected


def test_data_of_another_source_under_the_papers_name_are_told(full):
    values = layers.read(ROOT / "config.yaml")
    values["datasets"]["office-home"] = {"source": "digits"}
    values["partitions"]["p100-domain-dirichlet-0.1"]["scheme"] = "dirichlet"
    changed, paper = config.validate(values), papers.read("fedsdg")
    number = next(n for n in paper.numbers if n.dataset == "office-home" and n.method == "fedsdg")
    assert paper.deviations(number, resolve(changed, asked(changed, "fedsdg")[key(number)]).full) == [
        "dataset.source digits (config.yaml: image-folder)",
        "partition.scheme dirichlet (paper: domain-dirichlet)",
    ]


def test_equal_numbers_of_several_tables_are_one():
    numbers = [number for number in papers.read("fedsdg").numbers if number.method == "fedsdg"]
    (shown,) = [n for n in papers.merged(numbers) if n.dataset == "tiny-imagenet" and n.partition.endswith("-0.1")]
    assert shown.table == "main, gate ablation, alignment ablation"
    assert (shown.value, shown.std) == pytest.approx((0.8063, 0.0057))
    flite = [n for n in papers.read("flite").numbers if (n.method, n.dataset) == ("flite", "cifar100")]
    assert [n.value for n in papers.merged(flite)] == pytest.approx([0.7467, 0.7474, 0.7472, 0.7472]), "as they differ"


def test_a_misspelt_paper_is_one_clear_line():
    with pytest.raises(FedbenchError, match=r"communication\.paper: unknown paper 'flight'; did you mean 'flite'\?"):
        config.load([SMOKE], ["experiments.communication.paper=flight"])


def test_a_paper_without_a_number_for_any_cell_is_refused():
    with pytest.raises(FedbenchError, match=r"experiments\.communication\.paper: 'flite' has no number for any of its"):
        config.load([SMOKE], ["experiments.communication.paper=flite"])


def test_tables_depend_on_the_papers_file(full, monkeypatch):
    plan = Plan(full)
    before = {name: plan.table_digest(name) for name in plan.experiments}
    monkeypatch.setattr(papers, "digest", lambda name: "edited")
    changed = {name for name in plan.experiments if plan.table_digest(name) != before[name]}
    assert changed == {name for name, entry in full.experiments.items() if entry.paper}
