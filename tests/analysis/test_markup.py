"""Labels in tables are text: no pipe, link, tag, mathematics or command in them means anything."""

import re

import pytest
from fake_runs import RECIPES, make_world, write_runs

from fedbench.analysis.collect import collect
from fedbench.analysis.layout import escape_markdown, lay_out, to_latex, to_markdown
from fedbench.analysis.tables import build
from fedbench.config.spec import Paths
from fedbench.files import picture

LABELS = ["a|b", "[e](f)", "<b>x</b>", "*s* _t_ `u`", "$x^2$ & y", "\\input{x} #1 ~~z~~", "&lt; %", "[t] * 100 %"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The table of an experiment whose methods, title and reference have such labels."""
    names = list(RECIPES)[: len(LABELS)]
    recipes = {
        name: type(RECIPES[name])({**RECIPES[name].entry, "label": label}, RECIPES[name].accuracy, 4_000, 4_000)
        for name, label in zip(names, LABELS, strict=True)
    }
    world = make_world(recipes, title="A | [t](u) <i>", reference=names[0], seeds=(0, 1, 2))
    paths = Paths(tmp_path_factory.mktemp("markup"))
    write_runs(world, paths)
    data = collect(world.config, paths).experiment("main")
    return lay_out(data, build(data))


def unescaped(text: str) -> str:
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", text)


def test_a_markdown_table_has_its_columns_and_its_labels(shown):
    lines = [line for line in to_markdown(shown).splitlines() if line.startswith("|")]
    rows = [[cell.strip().strip("*") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert {len(row) for row in rows} == {len(shown.columns)}
    assert [unescaped(name) for name in rows[0]] == shown.columns
    assert {unescaped(row[0]).strip("*") for row in rows[2:]} >= {label for label in LABELS if "*" not in label}


@pytest.mark.parametrize("label", LABELS)
def test_markdown_means_nothing_in_a_label(label):
    text = escape_markdown(label)
    assert unescaped(text) == label
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", text)
    assert not re.search(r"[|*_`$~]|\[[^\]]*\]\(|<[A-Za-z/]|&[#A-Za-z]", bare)


def test_intervals_stay_readable_in_markdown():
    assert escape_markdown("−1.0 [−2.0, 0.5]") == "−1.0 [−2.0, 0.5]"
    assert escape_markdown("<0.001") == "<0.001"


def test_a_latex_table_has_its_columns_and_no_foreign_command(shown):
    text = to_latex(shown, "main")
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(shown.columns)}
    assert not any(row.startswith(("[", "*")) for row in rows)
    assert r"\input" not in text
    assert not re.search(r"(?<!\\)#", body)


def test_another_font_steps_in_for_letters_that_the_first_lacks(monkeypatch):
    from matplotlib import rcParams
    from matplotlib.font_manager import FontEntry, fontManager

    has = {"one.ttf": frozenset("ab"), "two.ttf": frozenset("漢字"), "three.ttf": frozenset("漢")}
    fonts = [FontEntry(fname=name, name=name[:-4], style="normal", weight=400) for name in ("three.ttf", "two.ttf")]
    monkeypatch.setattr(fontManager, "ttflist", [*fontManager.ttflist, *fonts])
    monkeypatch.setattr(picture, "_letters", lambda path: has.get(path, frozenset("ab")))
    picture._fallbacks.cache_clear()
    try:
        with picture.drawing(names=["a漢", "字"]):
            assert rcParams["font.family"] == ["DejaVu Sans", "two"]
        with picture.drawing(names=["ab"]):
            assert rcParams["font.family"] == ["DejaVu Sans"]
        assert "'\u2603'" in picture.missing_letters(["漢\u2603"])
    finally:
        picture._fallbacks.cache_clear()
