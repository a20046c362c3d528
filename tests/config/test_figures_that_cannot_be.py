"""A figure that its experiment can never fill, or a headline that no run has, is found when a config is read."""

import pytest

from fedbench.config import reading
from fedbench.config.plan import Plan
from fedbench.errors import FedbenchError
from fedbench.registry import FIGURES

GRID = {"dataset": "digits", "partition": "even", "model": "vit", "method": ["fedavg", "fedsdg"]}


def plan(figure, grid=None, **more) -> Plan:
    values = {
        "name": "test",
        "seeds": [0, 1],
        "training": {"rounds": 3},
        "datasets": {
            "digits": {"source": "digits"},
            "turned": {"source": "digits", "rotations": [0, 90]},
            "faces": {"source": "image-folder", "path": "faces"},
        },
        "partitions": {
            "even": {"scheme": "iid", "clients": 4},
            "skewed": {"scheme": "dirichlet", "clients": 4, "alpha": 0.5},
            "late": {"scheme": "iid", "clients": 4, "training": {"held_out": 0.25}},
            "bare": {"scheme": "iid", "clients": 4, "validation": 0},
        },
        "models": {"vit": {"backbone": "small-vit"}},
        "methods": {
            "base": {"method": "base"},
            "pooled": {"method": "centralised"},
            "fedavg": {"method": "fedavg"},
            "lora": {"method": "fedavg", "trainable": "lora", "rank": 4},
            "fedsdg": {"method": "fedsdg"},
            "fixed": {"method": "fedsdg", "gate": "fixed"},
        },
        "experiments": {"only": {"title": "Only", "cells": [GRID | (grid or {})], "figures": [figure], **more}},
    }
    return Plan(reading.validate(values))


CANNOT = [
    ("gates", {"method": ["fedavg"]}, "none of its methods has gates; add one"),
    ("gate-dynamics", {"method": ["fixed", "fedavg"]}, "none of its methods has learned gates; add one"),
    ("newcomers", {}, "none of its runs holds clients out; give its partitions training.held_out"),
    ("domains", {}, "its data have one domain; add data of several"),
    ("identifiability", {"method": "fedavg"}, "none of its methods aligns a private branch; add fedsdg"),
    ("precision", {"method": ["base", "pooled"]}, "none of its methods sends anything; add one that does"),
    ("pareto", {"method": ["base", "pooled"]}, "no method on digits with even sends anything; add one that does"),
    ("bytes-to-target", {}, "the experiment has no reference; set experiments.only.reference"),
    ({"figure": "sweep", "x": "method.rnk"}, {}, "no run's resolved spec has a value at 'method.rnk'; did you mean"),
    ({"figure": "sweep", "x": "method.rank", "series": ["channel.bits"]}, {}, "a value at 'channel.bits'"),
    (
        {"figure": "sweep", "x": "training.rounds", "series": ["training.batch_size"]},
        {"method": ["fedavg", "lora"]},
        "fedavg and lora are both at training.rounds = 3 of one line; they differ in method.trainable: add",
    ),
]
CAN = [
    ("gates", {"method": ["fixed"]}),
    ("gate-dynamics", {}),
    ("newcomers", {"partition": ["even", "late"]}),
    ("domains", {"dataset": ["digits", "turned"]}),
    ("domains", {"dataset": "faces"}),
    ("identifiability", {}),
    ("precision", {"method": ["base", "fedavg"]}),
    ("pareto", {"method": ["base", "fedavg"]}),
    ({"figure": "bytes-to-target", "target": 0.5}, {}),
    ({"figure": "sweep", "x": "partition.alpha"}, {"partition": ["even", "skewed"], "method": "fedavg"}),
    *((name, {}) for name in ("ablation", "byte-budget", "fairness", "learning-curves", "partitions")),
]


@pytest.mark.parametrize(("figure", "grid", "reason"), CANNOT, ids=str)
def test_a_figure_that_can_never_be_filled_names_experiment_figure_and_what_is_missing(figure, grid, reason):
    with pytest.raises(FedbenchError) as caught:
        plan(figure, grid)
    name = figure if isinstance(figure, str) else figure["figure"]
    assert str(caught.value).startswith(f"experiment 'only', figure {name!r}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(("figure", "grid"), CAN, ids=str)
def test_a_figure_that_can_be_filled_is_not_refused(figure, grid):
    assert plan(figure, grid).cells


def test_every_figure_is_tried_here():
    tried = {figure if isinstance(figure, str) else figure["figure"] for figure, _ in CAN}
    assert tried == set(FIGURES)


def test_the_best_round_needs_validation_samples():
    with pytest.raises(FedbenchError, match=r"experiments\.only\.selection: 'best' needs .* partitions\.bare"):
        plan("ablation", {"partition": ["even", "bare"]}, selection="best")
    assert plan("ablation", {"partition": ["even", "bare"]}, selection="tail").cells
    assert plan("ablation", selection="best").cells
