"""What a config asks for, by name."""

from pathlib import Path

import pytest

from fedbench.config.plan import Plan, from_workflow
from fedbench.config.reading import load
from fedbench.config.spec import resolve
from fedbench.errors import FedbenchError

ROOT = Path(__file__).parents[2]
SMOKE = ROOT / "workflow/configs/smoke.yaml"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan(load([SMOKE], ["seeds=[0, 1]"]))


def test_digests_are_those_of_the_resolved_specs(plan):
    for cell in plan.cells:
        assert plan.run_digest(cell) == resolve(plan.config, cell).digest
    assert len({plan.run_digest(cell) for cell in plan.cells}) == len(plan.cells)


def test_inputs_do_not_depend_on_what_is_run_on_them(plan):
    other = Plan(load([SMOKE], ["seeds=[0, 1]", "training.rounds=9", "methods.fedavg.channel=top-10"]))
    assert plan.data_digest("digits") == other.data_digest("digits")
    assert plan.partition_digest("digits", "dirichlet", 1) == other.partition_digest("digits", "dirichlet", 1)
    assert plan.partition_digest("digits", "dirichlet", 0) != plan.partition_digest("digits", "dirichlet", 1)
    assert plan.base_digest("digits", "tiny-vit") == other.base_digest("digits", "tiny-vit")
    assert plan.base_digest("digits", "tiny-vit") != plan.base_digest("digits", "tiny-resnet")


def test_labels_change_how_an_experiment_is_shown_but_no_run(plan):
    other = Plan(load([SMOKE], ["seeds=[0, 1]", "methods.fedavg.label=Averaging"]))
    assert plan.experiment_digest("communication") != other.experiment_digest("communication")
    assert [plan.run_digest(cell) for cell in plan.cells] == [other.run_digest(cell) for cell in other.cells]


def test_names_that_no_experiment_combines():
    config = load([SMOKE], ["models.spare={backbone: mlp}"])
    with pytest.raises(FedbenchError, match="no experiment of config 'smoke' uses dataset 'digits' with model 'spare'"):
        Plan(config).base_digest("digits", "spare")


def test_values_that_snakemake_leaves_as_text_are_read_again():
    config, assignments = from_workflow([SMOKE], {"seeds": ["4", "5"], "training": {"rounds": "3"}, "name": "other"})
    assert config.seeds == (4, 5)
    assert config.training["rounds"] == 3
    assert config.name == "other"
    assert load([SMOKE], assignments) == config


TEXTS = [
    "FedAvg #2",
    "null",
    "10",
    "010",
    "1e3",
    "yes",
    "true",
    "a: b",
    "[x]",
    "{x}",
    "~",
    "x # y",
    "'q'",
    "- a",
    "\U0001f600",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_from_snakemake_is_the_text_of_an_option_that_takes_text(text):
    given = {
        "methods": {"fedavg": {"label": text}, "new": {"method": "fedavg", "label": text}},
        "datasets": {"faces": {"source": "image-folder", "path": text, "size": "010"}},
        "experiments": {"communication": {"title": text, "figures": [{"figure": "sweep", "x": text, "label": text}]}},
        "bases": {"kept": {"kind": "file", "path": text}},
    }
    config, assignments = from_workflow([SMOKE], given)
    assert config.methods["fedavg"].common.label == config.methods["new"].common.label == text
    assert config.datasets["faces"].options.path == config.bases["kept"].path == text
    assert config.datasets["faces"].options.size == 10
    assert config.experiments["communication"].title == text
    assert config.figures("communication")["sweep"].options.label == text
    assert load([SMOKE], assignments) == config


def test_text_from_snakemake_is_a_value_where_an_option_takes_no_text():
    given = {
        "training": {"clip": "null", "learning_rate": "1e-3", "optimizer": "sgd", "betas": ["0.5", "0.9"]},
        "methods": {"fedavg": {"training": {"clip": "2"}}, "fedsdg": {"rank": "3"}},
        "datasets": {"digits": {"public": {"fraction": "null", "classes": ["1", "2"]}}},
        "experiments": {"communication": {"figures": [{"figure": "bytes-to-target", "target": "0.5", "name": "10"}]}},
    }
    config, _ = from_workflow([SMOKE], given)
    assert config.training.items() >= {"clip": None, "learning_rate": 0.001, "betas": [0.5, 0.9]}.items()
    assert config.methods["fedavg"].common.training["clip"] == 2
    assert config.methods["fedsdg"].options.rank == 3
    assert config.datasets["digits"].common.public.classes == [1, 2]
    assert config.figures("communication")["10"].options.target == 0.5
    for given, message in [
        ({"training": "{rounds: 3}"}, "config.training: "),
        ({"methods": "x"}, "config.methods: "),
        ({"name": float("nan")}, "--config name: nan is no value"),
    ]:
        with pytest.raises(FedbenchError, match=message):
            from_workflow([SMOKE], given)


def test_a_target_that_snakemake_takes_for_a_config():
    with pytest.raises(FedbenchError, match=r"seed0/summary\.json: read as a config file, .*; put targets first"):
        from_workflow([SMOKE, "results/smoke/runs/d/p/m/x/seed0/summary.json"], {})


def test_overrides_that_do_not_reach_a_run():
    entry = "methods.fedavg.training={rounds: 5}"
    assignments = ["training.rounds=3", "training={rounds: 4, batch_size: 8}", "seeds=[0]", entry]
    plan = Plan(load([SMOKE], assignments), assignments=assignments)
    runs = {cell.method: plan.unheeded(plan.spec(cell)) for cell in plan.cells}
    place = "digits/dirichlet/tiny-resnet/fedavg/seed0 has methods.fedavg.training.rounds=5, which comes later"
    assert runs["fedavg"] == [f"--set {assignment}: {place}" for assignment in assignments[:2]]
    assert runs["fedsdg"] == []


def test_an_override_of_a_name_with_a_dot_reaches_its_run():
    method = "methods={fedavg-0.5: {method: fedavg, training: {momentum: 0.5}}}"
    grid = "{dataset: digits, partition: dirichlet, model: tiny-resnet, method: [fedavg, fedavg-0.5]}"
    assignments = [method, f"experiments.communication.cells=[{grid}]", "methods.fedavg-0.5.training.rounds=7"]
    assignments += ["training.momentum=0.1", "training.rounds=3"]
    plan = Plan(load([SMOKE], assignments), assignments=assignments)
    spec = plan.spec(next(cell for cell in plan.cells if cell.method == "fedavg-0.5"))
    assert spec.training.rounds == 7
    assert [line.split(":")[0] for line in plan.unheeded(spec)] == [f"--set {text}" for text in assignments[3:]]


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("*/fedsgd/*", "did you mean 'fedsdg'?"),
        ("*/gedsdg/*", "did you mean 'fedsdg'?"),
        ("*/tiny-vot/*", "did you mean 'tiny-vit'?"),
        ("digits/dirichlet/tiny-vit/fedsdg/seed7", "did you mean 'seed"),
        ("*/runs/digits/dirichlet/tiny-vit/fedsgd/*", "did you mean 'fedsdg'?"),
        ("*/tiny-vit/fedavg/*", "`fedbench cells` lists the runs"),
        ("*/zzz/*", "`fedbench cells` lists the runs"),
        ("zzz", "`fedbench cells` lists the runs"),
        ("", "`fedbench cells` lists the runs"),
    ],
)
def test_a_pattern_without_a_match_names_the_part_that_is_wrong(plan, pattern, hint):
    with pytest.raises(FedbenchError) as caught:
        plan.match(pattern)
    assert str(caught.value).startswith(f"no run matches {pattern!r} in config 'smoke'; {hint}")
    assert len(str(caught.value)) < 120


def test_every_config_resolves_completely():
    for path in [ROOT / "config.yaml", *sorted((ROOT / "workflow/configs").glob("*.yaml"))]:
        every = Plan(load([path]))
        digests = {every.run_digest(cell) for cell in every.cells}
        assert len(digests) == len(every.cells), f"{path}: two names for the same run"
