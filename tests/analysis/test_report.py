"""The report: complete, and nothing in it comes from elsewhere."""

import shutil
from html.parser import HTMLParser

import pytest
from fake_runs import make_world, write_runs

from fedbench.analysis.plot import plot
from fedbench.analysis.report import report
from fedbench.config.spec import Cell, Paths
from fedbench.errors import FedbenchError


class Page(HTMLParser):
    """Collects tags, references and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.images, self.links, self.ids, self.text = [], [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        assert tag not in ("script", "link", "iframe", "object", "embed"), f"<{tag}> would load something"
        if "id" in values:
            self.ids.add(values["id"])
        if tag == "img":
            self.images.append(values)
        elif tag == "a":
            self.links.append(values["href"])
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    world = make_world(figures=("pareto", "gates"), title="Table <1> & more", question="Is x < y?")
    paths = Paths(tmp_path_factory.mktemp("page"))
    write_runs(world, paths)
    plot(world.config, paths)
    path = report(world.config, paths)
    assert path == paths.root / "report.html"
    return Page(path.read_text(encoding="utf-8")), paths


def test_page_is_whole(page):
    parsed, _ = page
    assert parsed.open == []
    text = " ".join(" ".join(parsed.text).split())
    for expected in ("Table <1> & more", "Is x < y?", "FedSDG", "FedAvg & top_1%", "n = 3 seeds per row",
                     "Jensen-Shannon", "0123456789ab", "fedbench train --config CONFIG", "1 run diverged"):  # fmt: skip
        assert expected in text
    assert "missing; the results" not in text


def test_nothing_comes_from_elsewhere(page):
    parsed, paths = page
    assert len(parsed.images) == 3
    assert all(image["src"].startswith("data:image/png;base64,") for image in parsed.images)
    for link in parsed.links:
        assert "//" not in link
        if link.startswith("#"):
            assert link[1:] in parsed.ids
        else:
            assert (paths.root / link).is_file()
    style = (paths.root / "report.html").read_text()
    assert "http:" not in style
    assert "https:" not in style
    assert "@import" not in style
    assert "url(" not in style


def test_images_have_alternative_texts(page):
    parsed, _ = page
    assert all(len(image["alt"]) > 40 for image in parsed.images)
    assert "most accurate is FedSDG with 78.0" in parsed.images[0]["alt"]


def test_same_runs_give_the_same_page(fresh):
    world, paths = fresh(figures=("gates",))
    plot(world.config, paths)
    first = report(world.config, paths).read_bytes()
    assert report(world.config, paths).read_bytes() == first


def test_missing_runs_are_named(fresh):
    world, paths = fresh(figures=("gates",))
    plot(world.config, paths)
    shutil.rmtree(paths.run(Cell("digits", "dirichlet-0.1", "vit", "fedavg", 2)))
    text = report(world.config, paths).read_text()
    assert "1 of 24 runs are missing" in text
    assert "digits/dirichlet-0.1/vit/fedavg/seed2: not run yet" in text


def test_missing_figure_is_one_clear_line(fresh):
    world, paths = fresh(figures=("gates",))
    with pytest.raises(FedbenchError, match="run `fedbench plot --experiment main` first"):
        report(world.config, paths)
