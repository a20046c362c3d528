"""Names in results are text, whatever else they look like."""

from dataclasses import replace

import pytest
from fake_runs import RECIPES

from fedbench.analysis.collect import collect

NAMES = ("NA", "EU", "None", "null", "nan", "1", "01", "True", "")


def test_domains_keep_their_names(fresh):
    offsets = {name: number / 100 for number, name in enumerate(NAMES)}
    recipes = {name: replace(RECIPES[name], domains=offsets) for name in ("base", "fa-lora")}
    world, paths = fresh(recipes=recipes, seeds=(0,))
    domains = collect(world.config, paths).experiment("main").domains
    assert tuple(domains.domain.drop_duplicates()) == NAMES
    assert domains.accuracy_personal.notna().all()
    assert domains.accuracy_personal.dtype == float


@pytest.mark.parametrize("names", [("1", "2"), ("01", "1"), ("null", "nan")])
def test_a_column_of_names_that_all_look_alike(fresh, names):
    recipes = {"base": replace(RECIPES["base"], domains=dict.fromkeys(names, 0.1))}
    world, paths = fresh(recipes=recipes, seeds=(0,))
    assert tuple(collect(world.config, paths).frames["domains"].domain.drop_duplicates()) == names
