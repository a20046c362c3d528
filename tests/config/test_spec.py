"""Whose settings win, and which identity each key of a config belongs to: tried for every key of every entry."""

import copy
from dataclasses import fields, replace
from itertools import pairwise

import pytest

from fedbench.config import reading as config
from fedbench.config.plan import Plan
from fedbench.config.spec import Cell, digest, resolve
from fedbench.engine.population import draw_held_out
from fedbench.errors import FedbenchError

VALUES = {
    "name": "test",
    "seeds": [3],
    "training": {"rounds": 3},
    "datasets": {"digits": {"source": "digits", "public": {"fraction": 0.2}}},
    "partitions": {"skewed": {"scheme": "domain-dirichlet", "clients": 4, "alpha": 0.5}},
    "bases": {"start": {"kind": "pretrain"}},
    "models": {"vit": {"backbone": "small-vit", "base": "start"}},
    "channels": {"sparse": {"codec": "top-k", "density": 0.1}},
    "methods": {"mine": {"method": "fedsdg", "channel": "sparse"}},
    "experiments": {
        "only": {
            "title": "Only",
            "cells": [{"dataset": "digits", "partition": "skewed", "model": "vit", "method": "mine"}],
        }
    },
}
CELL = Cell("digits", "skewed", "vit", "mine", 3)
# from the general to the particular
LAYERS = {
    "training": (),
    "datasets": ("digits",),
    "partitions": ("skewed",),
    "models": ("vit",),
    "methods": ("mine",),
}


def spec_of(values=VALUES, cell=CELL):
    return resolve(config.validate(values), cell)


@pytest.mark.parametrize(("general", "particular"), list(pairwise(LAYERS)))
def test_of_two_neighbouring_layers_the_particular_one_wins(general, particular):
    values = copy.deepcopy(VALUES)
    for section, batch_size in ((general, 11), (particular, 22)):
        entry = values[section]
        for name in LAYERS[section]:
            entry = entry[name].setdefault("training", {})
        entry["batch_size"] = batch_size
        assert spec_of(values).training.batch_size == batch_size, f"{section} is heard"


def with_field(plugin, part, name):
    """The entry or base with another value of one key, whatever its type; nothing is validated."""
    changed = copy.copy(plugin if part is None else getattr(plugin, part))
    object.__setattr__(changed, name, "another")
    return changed if part is None else replace(plugin, **{part: changed})


def keys():
    """(section, entry or options, key) of all that a run is resolved from."""
    spec = spec_of()
    for section in ("dataset", "partition", "model", "method", "channel"):
        for part in ("common", "options"):
            for field in fields(getattr(getattr(spec, section), part)):
                yield section, part, field.name
    for section in ("base", "training"):
        for field in fields(getattr(spec, section)):
            yield section, None, field.name


# A channel's name, a base's name and labels change no number; `training` is merged into the run's own.
FREE = {("method", "common", "channel"), ("partition", "common", "max_moved")}
INPUTS = {
    "data_spec": {"dataset"},
    "partition_spec": {"dataset", "partition"},
    "base_spec": {"dataset", "model", "base"},
}


@pytest.mark.parametrize(("section", "part", "key"), list(keys()))
def test_every_key_is_in_the_identities_of_what_depends_on_it(section, part, key):
    spec = spec_of()
    other = replace(spec, **{section: with_field(getattr(spec, section), part, key)})
    counts = key != "label" and not (part == "common" and key == "training") and (section, part, key) not in FREE
    assert (other.digest != spec.digest) == counts
    assert (other.seedless_digest != spec.seedless_digest) == counts
    for name, sections in INPUTS.items():
        changed = digest(getattr(other, name)) != digest(getattr(spec, name))
        assert changed == (counts and section in sections), name


def test_the_seed_is_in_the_identities_of_run_and_partition_only():
    spec, other = spec_of(), spec_of(cell=replace(CELL, seed=4))
    assert spec.digest != other.digest
    assert spec.seedless_digest == other.seedless_digest
    assert (spec.full["seed"], other.full["seed"]) == (3, 4), "a summary says it"
    changed = {name for name in INPUTS if getattr(spec, name) != getattr(other, name)}
    assert changed == {"partition_spec"}


def test_names_of_entries_are_in_no_identity():
    values = copy.deepcopy(VALUES)
    values["channels"]["renamed"] = values["channels"].pop("sparse")
    values["methods"] = {"renamed": {"method": "fedsdg", "channel": "renamed"}}
    values["experiments"]["only"]["cells"][0]["method"] = "renamed"
    assert spec_of(values, replace(CELL, method="renamed")).digest == spec_of().digest


@pytest.mark.parametrize("clients", [2, 3, 4, 5])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.7, 0.9])
def test_held_out_clients_are_counted_as_the_run_draws_them(clients, share):
    """Refused while planning exactly where the run would be left without a client."""
    values = copy.deepcopy(VALUES)
    values["partitions"]["skewed"]["clients"] = clients
    values["training"]["held_out"] = share
    if max(1, round(share * clients)) < clients:
        assert len(draw_held_out(0, clients, share)) == max(1, round(share * clients))
        assert spec_of(values).training.held_out == share
    else:
        for attempt in (lambda: spec_of(values), lambda: draw_held_out(0, clients, share)):
            with pytest.raises(FedbenchError, match="leaves none to train"):
                attempt()


def test_what_an_experiment_shows_is_in_its_identities():
    plan = Plan(config.validate(VALUES))
    entry = VALUES["experiments"]["only"]
    for key, value in (("title", "Other"), ("metric", "global"), ("selection", "best"), ("reference", "mine")):
        values = {**VALUES, "experiments": {"only": {**entry, key: value}}}
        other = Plan(config.validate(values))
        assert other.experiment_digest("only") != plan.experiment_digest("only"), key
        assert other.table_digest("only") != plan.table_digest("only"), key
        assert other.run_digest(CELL) == plan.run_digest(CELL), key
    for section, name in (("datasets", "digits"), ("partitions", "skewed"), ("models", "vit"), ("channels", "sparse")):
        values = copy.deepcopy(VALUES)
        values[section][name]["label"] = "A label"
        assert Plan(config.validate(values)).experiment_digest("only") != plan.experiment_digest("only"), section


def test_an_unheeded_override_names_the_entry_that_wins():
    values = copy.deepcopy(VALUES)
    for section, rounds in (("datasets", 4), ("partitions", 5), ("models", 6)):
        values[section][LAYERS[section][0]]["training"] = {"rounds": rounds}
    plan = Plan(config.validate(values), assignments=["training.rounds=9"])
    spec = plan.spec(CELL)
    assert spec.training.rounds == 6
    (line,) = plan.unheeded(spec)
    assert line.endswith("has models.vit.training.rounds=6, which comes later")


def test_an_input_is_that_of_a_run_which_uses_it():
    values = copy.deepcopy(VALUES)
    values["models"]["mlp"] = {"backbone": "mlp"}
    values["methods"]["other"] = {"method": "fedavg"}
    values["experiments"]["only"]["cells"].append(
        {"dataset": "digits", "partition": "skewed", "model": "mlp", "method": "other"}
    )
    plan, other = Plan(config.validate(values)), replace(CELL, model="mlp", method="other")
    assert plan.base_digest("digits", "mlp") == digest(spec_of(values, other).base_spec)
    assert plan.base_digest("digits", "vit") == digest(spec_of().base_spec)


def test_matching_keeps_to_one_experiment():
    values = copy.deepcopy(VALUES)
    values["methods"]["other"] = {"method": "fedavg"}
    grid = {**VALUES["experiments"]["only"]["cells"][0], "method": "other"}
    values["experiments"]["second"] = {"title": "Second", "cells": [grid]}
    plan = Plan(config.validate(values))
    assert [cell.method for cell in plan.match(None)] == ["mine", "other"]
    assert [cell.method for cell in plan.match(None, "second")] == ["other"]
    assert [cell.method for cell in plan.match("*/vit/*", "second")] == ["other"]
    assert [cell.method for cell in plan.match("results/runs/*/mine/*")] == ["mine"], "a target's whole name will do"


def test_a_base_of_public_samples_needs_some():
    values = copy.deepcopy(VALUES)
    values["bases"]["start"]["data"] = "public"
    assert spec_of(values).base.data == "public"
    del values["datasets"]["digits"]["public"]
    with pytest.raises(FedbenchError, match=r"trains on a public share, but .* has no 'public' key"):
        spec_of(values)
    values["bases"]["start"]["data"] = "all"
    spec_of(values)


@pytest.mark.parametrize(
    ("part", "identities"),
    [
        ("dataset", {"data_spec", "partition_spec", "base_spec", "full"}),
        ("partition", {"partition_spec", "full"}),
        ("model", {"base_spec", "full"}),
        ("method", {"full"}),
        ("channel", {"full"}),
    ],
)
def test_the_source_of_a_plugin_from_outside_is_in_the_identities_of_what_depends_on_it(part, identities):
    spec = spec_of()
    other = replace(spec, **{part: replace(getattr(spec, part), source_sha256="0" * 64)})
    every = ("data_spec", "partition_spec", "base_spec", "full")
    assert {name for name in every if getattr(spec, name) != getattr(other, name)} == identities
