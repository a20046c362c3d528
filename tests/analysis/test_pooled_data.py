"""Training on all data in one place sends no messages, and is not cheap for that."""

import pytest
from fake_runs import RECIPES, Recipe

from fedbench.analysis.collect import collect
from fedbench.analysis.figures.byte_budget import draw as draw_byte_budget
from fedbench.analysis.figures.bytes_to_target import draw as draw_bytes_to_target
from fedbench.analysis.figures.pareto import draw as draw_pareto
from fedbench.analysis.layout import lay_out
from fedbench.analysis.report import _findings
from fedbench.analysis.tables import build

CENTRALISED = Recipe({"method": "centralised", "label": "Centralised"}, (0.9, 0.9, 0.9))


@pytest.fixture
def data(fresh):
    few = {name: RECIPES[name] for name in ("base", "fa-lora", "fedsdg")}
    world, paths = fresh(recipes=few | {"centralised": CENTRALISED})
    return collect(world.config, paths).experiment("main")


def test_it_has_no_bytes_and_no_place_on_the_frontier(data):
    rows = build(data).set_index("method")
    assert rows.loc["centralised", ["bytes_total", "bytes_per_client", "bytes_to_target"]].isna().all()
    assert rows.loc["base", "bytes_total"] == 0
    assert rows.frontier.to_dict() == {"base": True, "fa-lora": False, "fedsdg": True, "centralised": False}
    shown = lay_out(data, build(data))
    line = dict(zip(shown.columns, (cell.text for cell in shown.groups[0].rows[3]), strict=True))
    assert (line["Method"], line["Total"], line["To target"]) == ("Centralised", "", "")


def test_the_pareto_figure_has_a_line_for_it(data):
    axes = (figure := draw_pareto(data)).axes[0]
    (line,) = [line for line in axes.lines if line.get_label() == "_ceiling"]
    assert set(line.get_ydata()) == {0.9}
    assert axes.get_ylim()[1] > 0.9
    assert "Centralised" in [text.get_text() for text in figure.legends[0].get_texts()]
    assert "Centralised" not in [text.get_text() for text in axes.texts]


def test_a_budget_of_bytes_buys_none_of_it(data):
    (axes,) = draw_byte_budget(data).axes
    assert "no bytes counted: all data in one place (ends at 90.0 %)" in [text.get_text() for text in axes.texts]
    assert build(data).set_index("method").accuracy_at_budget_mean.isna()["centralised"]


def test_the_report_does_not_call_it_free(fresh):
    world, paths = fresh(recipes={"centralised": CENTRALISED}, reference=None)
    data = collect(world.config, paths).experiment("main")
    (text,) = _findings(data, data.tasks[0], build(data))
    assert text.endswith("most accurate is Centralised with 90.0 ± 0.0 % (+40.0 points over the base).")


def test_it_reaches_a_target_at_no_number_of_bytes(data):
    (axes,) = draw_bytes_to_target(data).axes
    assert "no bytes counted: all data in one place (ends at 90.0 %)" in [text.get_text() for text in axes.texts]
