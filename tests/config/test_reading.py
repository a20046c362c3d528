"""Configs: what is accepted, and that every mistake is one line with its place and the way out."""

import copy

import pytest

from fedbench.config import layers
from fedbench.config import reading as config
from fedbench.config.entries import BaseEntry, Training
from fedbench.config.schema import schema
from fedbench.config.spec import Cell, cells, find_cell, resolve
from fedbench.errors import FedbenchError
from fedbench.options import names, parse
from fedbench.registry import CHANNELS, METHODS

VALID = {
    "name": "test",
    "seeds": [0, 1],
    "training": {"rounds": 3, "learning_rate": 0.1},
    "datasets": {"digits": {"source": "digits"}},
    "partitions": {"skewed": {"scheme": "dirichlet", "clients": 4, "alpha": 0.5, "training": {"learning_rate": 0.2}}},
    "models": {
        "vit": {"backbone": "small-vit", "training": {"learning_rate": 0.3, "batch_size": 7}},
        "mlp": {"backbone": "mlp"},
    },
    "methods": {
        "fedsdg": {"method": "fedsdg", "alignment": "none", "training": {"learning_rate": 0.4}},
        "fedavg": {"method": "fedavg"},
        "other": {"method": "fedavg"},
    },
    "experiments": {
        "first": {
            "title": "First",
            "cells": [{"dataset": "digits", "partition": "skewed", "model": "vit", "method": ["fedsdg", "fedavg"]}],
        },
        "second": {
            "title": "Second",
            "seeds": [1, 2],
            "cells": [{"dataset": "digits", "partition": "skewed", "model": "vit", "method": "fedavg"}],
        },
    },
}


def changed(path, value):
    values = copy.deepcopy(VALID)
    *parents, last = path.split(".")
    inner = values
    for key in parents:
        inner = inner[key]
    inner[last] = value
    return values


def cell(model="vit", method="fedsdg", seed=0):
    return Cell("digits", "skewed", model, method, seed)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("training.lerning_rate", 0.1, r"config\.training\.lerning_rate: unknown key; did you mean 'learning_rate'\?"),
        ("methods.fedsdg.alignmnt", "base", r"methods\.fedsdg\.alignmnt: unknown key; did you mean 'alignment'\?"),
        ("methods.fedsdg.training.clipp", 1, r"methods\.fedsdg\.training\.clipp: unknown key; did you mean 'clip'\?"),
        ("methods.fedsdg.method", "fedsgd", r"unknown method 'fedsgd'; did you mean 'fedsdg'\?"),
        ("methods.fedsdg.alignment", "bas", r"methods\.fedsdg\.alignment: input should be 'base', 'global'"),
        ("methods.fedsdg.rank", "8", r"methods\.fedsdg\.rank: .*integer \(got '8'\)"),
        ("methods.fedsdg.rank", 0, r"methods\.fedsdg\.rank: .*greater than or equal to 1"),
        ("methods.fedsdg.channel", "dens", r"unknown channel 'dens'; did you mean 'dense'\?"),
        ("partitions.skewed.alpha", 0, r"partitions\.skewed\.alpha: .*greater than 0"),
        ("partitions.skewed.alpha", -1, r"partitions\.skewed\.alpha: .*greater than 0"),
        ("partitions.skewed.clients", 2.5, r"partitions\.skewed\.clients: .*integer"),
        ("partitions.skewed.clients", True, r"partitions\.skewed\.clients: .*integer"),
        ("partitions.skewed.validation", True, r"partitions\.skewed\.validation: a number, not true or false"),
        ("datasets.digits.sorce", 1, r"datasets\.digits\.sorce: unknown key; did you mean 'source'\?"),
        ("datasets.digits.public", {"fraction": 0.5, "classes": [1]}, "exactly one of fraction, classes, domains"),
        ("models.vit.base", "central", r"models\.vit\.base: unknown base 'central'"),
        ("experiments.first.cells", [{"dataset": "digits"}], r"experiments\.first\.cells\.0\.partition: .*required"),
        ("experiments.first.reference", "fedavgg", r"unknown method 'fedavgg'; did you mean 'fedavg'\?"),
        ("experiments.first.figures", ["paretto"], r"unknown figure 'paretto'; did you mean 'pareto'\?"),
        ("experiments.first.figures", [{"figure": "paretto"}], r"figures\.0\.figure: unknown figure 'paretto'"),
        ("experiments.first.figures", [{"name": "x"}], r"first\.figures\.0\.figure: this key is required"),
        ("experiments.first.figures", [{"figure": "pareto", "axes": 1}], r"figures\.0\.axes: .* did you mean 'axis'\?"),
        ("experiments.first.figures", [{"figure": "pareto", "axis": "x"}], r"figures\.0\.axis: input should be 'both'"),
        ("experiments.first.figures", [{"figure": "pareto", "name": "a/b"}], r"figures\.0\.name: a name has letters "),
        ("experiments.first.figures", ["pareto", {"figure": "pareto", "axis": "total"}], r"second figure named"),
        ("experiments.first.figures", [3], r"experiments\.first\.figures\.0: "),
        ("experiments.first.reference", "other", r"first\.reference: 'other' is in none of its cells"),
        ("experiments.first.cells", [], r"experiments\.first\.cells: .*at least 1"),
        ("experiments.first.seeds", [], r"experiments\.first\.seeds: .*at least 1"),
        ("seeds", [], r"config\.seeds: .*at least 1"),
        ("results", "", r"config\.results: "),
        ("results", "a{b}", r"config\.results: "),
        ("results", "a b", r"config\.results: a folder.s name may have letters, digits and the characters \. / _ "),
        ("results", "~/a", r"config\.results: "),
        ("results", "a'$(b)", r"config\.results: "),
        ("channels", 3, r"config\.channels: input should be keys and values"),
        ("channels", "x", r"config\.channels: input should be keys and values"),
        ("channels", [], r"config\.channels: input should be keys and values"),
        ("channels", None, r"config\.channels: input should be keys and values"),
        (
            "channels",
            {"dense": {"codec": "dense", "dtype": "fp16"}},
            r"channels\.dense: .*another name",
        ),
        ("nam", "x", r"config\.nam: unknown key; did you mean 'name'\?"),
        ("datasets", {"a b": {"source": "digits"}}, r"config\.datasets\.a b: a name has letters a to z and digits"),
        *(
            (f"{path}", text, rf"{path.replace('.', '[.]')}: text {message}")
            for path in ("methods.fedsdg.label", "experiments.first.title")
            for text, message in [
                *((blank, "that can be seen") for blank in ("", "  ", "\u00a0\u3000")),
                *((f"a{letter}b", "in one line") for letter in "\n\t\x00\x1b\x85\u2028\u202e"),
            ]
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_its_place(path, value, message):
    with pytest.raises(FedbenchError, match=message) as caught:
        config.validate(changed(path, value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["results/x", "/srv/user.name/r_1", "../üben", "a=b,c:d@e%f"])
def test_usual_names_of_folders_are_accepted(name):
    assert str(config.validate(changed("results", name)).results) == name


def test_messages_about_large_configs_stay_short():
    values = changed("datasets", [{"source": "digits"}] * 500)
    with pytest.raises(FedbenchError, match=r"config\.datasets: input should be keys and values") as caught:
        config.validate(values)
    assert len(str(caught.value)) < 400
    settings = config.validate(changed("seeds", list(range(500))))
    with pytest.raises(FedbenchError, match=r"no run named .*; `fedbench cells` lists the runs$"):
        find_cell(settings, Cell("?", "?", "?", "?", 0))


@pytest.mark.parametrize("axis", ["dataset", "partition", "model", "method"])
def test_a_grid_without_a_run_is_a_mistake(axis):
    grid = {**VALID["experiments"]["first"]["cells"][0], axis: []}
    with pytest.raises(FedbenchError, match=rf"experiments\.first\.cells\.0\.{axis}: .*at least one {axis}"):
        config.validate(changed("experiments.first.cells", [grid]))


def test_training_options_merge_from_the_general_to_the_particular():
    settings = config.validate(VALID)
    assert resolve(settings, cell()).training.learning_rate == 0.4
    assert resolve(settings, cell(method="fedavg")).training.learning_rate == 0.3
    assert resolve(settings, cell("mlp", "fedavg")).training.learning_rate == 0.2
    assert resolve(settings, cell()).training.batch_size == 7


def test_a_run_that_two_experiments_ask_for_is_one_cell():
    settings = config.validate(VALID)
    assert cells(settings) == [
        cell(method=m, seed=s) for s, m in [(0, "fedsdg"), (0, "fedavg"), (1, "fedsdg"), (1, "fedavg"), (2, "fedavg")]
    ]
    assert cells(settings, "second") == [cell(method="fedavg", seed=s) for s in (1, 2)]


def test_a_method_that_does_not_fit_says_why_at_planning_time():
    with pytest.raises(FedbenchError, match="needs LoRA sites, but model mlp has none; use a ViT"):
        resolve(config.validate(VALID), cell("mlp"))


def test_an_unknown_cell_names_the_nearest():
    with pytest.raises(FedbenchError, match="did you mean 'digits/skewed/vit/fedsdg/seed0'"):
        find_cell(config.validate(VALID), Cell("digits", "skewed", "vit", "fedsgd", 0))


def test_only_what_changes_numbers_changes_identities():
    digests = [
        resolve(config.validate(values), cell()).digest
        for values in (
            VALID,
            changed("methods.fedsdg.label", "A label"),
            changed("methods.new", {"method": "base"}),
            changed("seeds", [0, 5]),
            changed("methods.fedsdg.rank", 9),
            changed("training.rounds", 4),
        )
    ]
    assert digests[0] == digests[1] == digests[2] == digests[3]
    assert len(set(digests)) == 3


def test_training_options_do_not_change_data_partition_or_base():
    before = resolve(config.validate(VALID), cell())
    after = resolve(config.validate(changed("training.rounds", 4)), cell())
    assert before.full != after.full
    assert before.data_spec == after.data_spec
    assert before.partition_spec == after.partition_spec
    assert before.base_spec == after.base_spec


def test_yaml_exponents_are_numbers_and_duplicate_keys_errors(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("a: 1e-3\nb: 5e4\nc: 1.5e-3\n")
    assert layers.read(path) == {"a": 0.001, "b": 50000.0, "c": 0.0015}
    path.write_text("a: 1\nb: 2\na: 3\n")
    with pytest.raises(FedbenchError, match=r"line 3: .*the key 'a' is given twice"):
        layers.read(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("010", 10), ("-010", -10), ("0o10", 8), ("0x1F", 31), ("1:30", "1:30"), ("190:20:30", "190:20:30")),
        *(("1_000", "1_000"), ("0b11", "0b11"), ("yes", "yes"), ("No", "No"), ("on", "on"), ("OFF", "OFF"), ("y", "y")),
        *(("true", True), ("False", False), ("TRUE", True), ("tRue", "tRue"), ("null", None), ("~", None), ("=", "=")),
        *(("+5", 5), (".5", 0.5), ("1.", 1.0), ("-1E+2", -100.0), ("٣", "٣"), ("2020-01-01", "2020-01-01")),
    ],
)
def test_values_are_read_as_yaml_1_2_reads_them(tmp_path, text, value):
    path = tmp_path / "c.yaml"
    path.write_text(f"a: {text}\nb: [{text}]\nc: '{text}'\n", encoding="utf-8")
    expected = {"a": value, "b": [value], "c": text}
    for found in (layers.read(path), layers.override({}, [f"a={text}", f"b=[{text}]", f"c='{text}'"])):
        assert found == expected
        assert type(found["a"]) is type(value)


def test_what_yaml_1_1_would_have_taken_for_a_number_or_a_truth_is_a_mistake(tmp_path):
    for path, text, message in [
        ("training.rounds", "1:30", r"rounds: .*integer \(got '1:30'\)"),
        ("methods.fedavg.channel", "yes", r"unknown channel 'yes'"),
        ("training.rounds", "1_000", r"rounds: .*\(got '1_000'\)"),
    ]:
        with pytest.raises(FedbenchError, match=message):
            resolve(config.validate(layers.override(VALID, [f"{path}={text}"])), cell(method="fedavg"))


def test_a_hash_begins_no_comment_in_an_override():
    values = layers.override(VALID, ["methods.fedavg.label=FedAvg #2", 'methods.other.label="a" # b', "training=#"])
    assert values["methods"]["fedavg"]["label"] == "FedAvg #2"
    assert values["methods"]["other"]["label"] == "a"
    assert values["training"] == "#"


def test_an_override_is_the_same_text_in_every_locale():
    typed = "methods.fedavg.label=FedAvg é 漢"
    as_bytes = typed.encode().decode("ascii", "surrogateescape")  # how Python reads it where the locale is C
    assert layers.override(VALID, [as_bytes])["methods"]["fedavg"]["label"] == "FedAvg é 漢"
    with pytest.raises(FedbenchError, match=r"--set methods\.fedavg\.label=.*: not UTF-8 text"):
        layers.override(VALID, ["methods.fedavg.label=\udcff"])


BROKEN = [
    *("a: [1", "a: {", "- 1\n- 2\n", "\tx: 1", "a: *b", "", "a: 1: 2", "a: &x [*x]", "a: " + "[" * 3000 + "]" * 3000),
    *("[1]: a", "{a: b}: c", "a: {[1]: b}", "a: {b: 1, b: 2}", "<<: 3"),
    *("a: !!int x", "a: !!float x", "a: !!bool x", "a: " + "9" * 5000),
    *("a: !!set {b}", "a: !!binary aGk=", "a: !!timestamp x", "a: !!omap [b: 1]", "!!python/name:os.system x"),
    *('a: "\\0"', '"\\0": a', 'a: "\\ud800"', "\0"),
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_broken_yaml_is_one_line_that_names_its_place(tmp_path, text):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(FedbenchError, match=r"broken\.yaml") as caught:
        layers.read(path)
    assert "\n" not in str(caught.value)
    if text not in ("", "- 1\n- 2\n"):  # fine as values, but not as whole files
        with pytest.raises(FedbenchError, match=r"--set a\.b=") as caught:
            layers.override(VALID, [f"a.b={text}"])
        assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_name_the_file(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_bytes("name: x".encode("utf-16"))
    with pytest.raises(FedbenchError, match=r"broken\.yaml: not UTF-8"):
        layers.read(path)


def test_keys_are_text_as_written_and_dates_are_text(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("3: a\nno: b\n~: c\n2020-01-01: 2020-02-02\n")
    assert layers.read(path) == {"3": "a", "no": "b", "~": "c", "2020-01-01": "2020-02-02"}


def test_merged_keys_may_be_overridden_at_any_depth(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("a: &a {rate: 1}\nm: {b: &b {<<: *a, rate: 2}}\nc: {<<: *b, rank: 1}\n")
    assert layers.read(path) == {"a": {"rate": 1}, "m": {"b": {"rate": 2}}, "c": {"rate": 2, "rank": 1}}


def test_overrides_reach_nested_keys_and_are_validated():
    values = layers.override(VALID, ["training.rounds=9", "methods.fedsdg.alignment=floor"])
    spec = resolve(config.validate(values), cell())
    assert (spec.training.rounds, spec.method.options.alignment) == (9, "floor")
    with pytest.raises(FedbenchError, match="expected key=value"):
        layers.override(VALID, ["training.rounds"])
    with pytest.raises(FedbenchError, match=r"config\.training\.round: unknown key"):
        config.validate(layers.override(VALID, ["training.round=9"]))


DOTTED = {"a": {"b": 1, "b-0.5": {"c": 1, "c.d": {"e": 1}}, "b-0.5.1": {"c": 1}}, "x.y": 1}


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("a.b", ["a", "b"]),
        ("a.b-0.5.c", ["a", "b-0.5", "c"]),
        ("a.b-0.5.1.c", ["a", "b-0.5.1", "c"]),
        ("a.b-0.5.c.d.e", ["a", "b-0.5", "c.d", "e"]),
        ("a.b-0.5.new", ["a", "b-0.5", "new"]),
        ("a.b-0.5", ["a", "b-0.5"]),
        ("x.y", ["x.y"]),
        ("a.new.c", ["a", "new", "c"]),
        ("a.b.new", ["a", "b", "new"]),
        ("new", ["new"]),
    ],
)
def test_overrides_go_by_the_longest_name_that_exists(path, steps):
    expected = 9
    for step in reversed(steps):
        expected = {step: expected}
    assert layers.override(DOTTED, [f"{path}=9"]) == layers.merge(DOTTED, expected)


@pytest.mark.parametrize("path", ["a.b-0.6.c", "a.b-0.6", "a.b-0.5.2.c"])
def test_a_misspelt_name_with_a_dot_is_not_cut_at_it(path):
    name = path.removesuffix(".c")
    with pytest.raises(FedbenchError, match=rf"--set {path}=1: nothing is named '{name}'; did you mean 'b-0\.5"):
        layers.override(DOTTED, [f"{path}=1"])


def test_a_name_with_a_dot_that_an_earlier_override_has_brought_exists():
    values = layers.override(DOTTED, ["a={n-1.5: {c: 1}}", "a.n-1.5.c=2"])
    assert values["a"]["n-1.5"] == {"c": 2}


def test_what_one_would_never_forget_is_a_mistake():
    """A momentum (or decay) of one diverges or stands still, for all of the benchmark's optimisers and codecs."""
    found = 0
    entries = [entry for registry in (METHODS, CHANNELS) for entry in registry.values()]
    for options, values in [(Training, {"rounds": 1}), (BaseEntry, {"kind": "pretrain"})] + [
        (entry.options, {}) for entry in entries
    ]:
        for name in names(options):
            if name.endswith("momentum"):
                wrong = [1.0]
            elif name.endswith("betas"):
                wrong = [[1.0, 0.9], [0.9, 1.0]]
            else:
                continue
            found += 1
            for value in wrong:
                with pytest.raises(FedbenchError, match=rf"here\.{name}.*: input should be less than 1 \(got 1"):
                    parse(options, {**values, name: value}, "here")
    assert found >= 8


def test_schema_has_the_bounds_of_numbers():
    text = str(schema())
    assert "'exclusiveMinimum': 0" in text
    assert "'gt'" not in text


def test_an_override_that_changes_nothing_is_a_mistake():
    with pytest.raises(FedbenchError, match=r"--set methods=\{\}: mappings are merged"):
        layers.override({"methods": {"a": 1}}, ["methods={}"])
