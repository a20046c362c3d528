"""Natural clients go by their names: in messages, in partition.json, in its picture and in clients.csv."""

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes

from fedbench.engine.record import Record
from fedbench.engine.results import CLIENT_COLUMNS, client_rows
from fedbench.errors import FedbenchError
from fedbench.partition._picture import picture
from fedbench.partition.make_partition import write
from fedbench.partition.partition import load_partition

NATURAL = {"scheme": "natural", "clients": 3}
NAMES = ["1", "2", "10"]


@pytest.fixture
def store(make_store):
    store = make_store(groups=3)
    store.meta["source"] = {"clients": NAMES}
    return store


def test_messages_say_names(make, store):
    last = np.flatnonzero((store.groups == 2) & (store.splits == 0))
    store.groups[last[3:]] = 0
    with pytest.raises(FedbenchError, match="natural client 10 has 3 training samples, fewer than 10"):
        make(store, **NATURAL)
    store.groups[store.splits == 1] = 0
    with pytest.raises(FedbenchError, match="natural client 2 has no test sample"):
        make(store, **NATURAL, min_samples=2)
    store.groups[np.flatnonzero(store.splits == 1)[0]] = 2
    store.groups[last] = 0
    with pytest.raises(FedbenchError, match="natural client 10 has test samples but no training samples"):
        make(store, **{**NATURAL, "clients": 2})


def test_domains_without_training_samples_are_named(make, make_store):
    store = make_store()
    store.domains[(store.splits == 0) & (store.domains == 3)] = 0
    with pytest.raises(FedbenchError, match="domain 'domain3' has test samples but no training samples"):
        make(store, scheme="domain", clients=6)


def test_names_are_kept_and_reach_clients_csv(make, make_store, store, tmp_path):
    write(make(store, **NATURAL), tmp_path / "p")
    partition = load_partition(tmp_path / "p")
    assert partition.meta["client_names"] == NAMES
    accuracies = {"last": [0.1, 0.2, 0.3], "global": [0.1] * 3, "base": [0.0] * 3}
    record = Record(accuracies=accuracies, tail=[accuracies["last"]])
    rows = client_rows(record, {}, store, partition)
    assert [(row["client"], row["name"]) for row in rows] == [(0, "1"), (1, "2"), (2, "10")]
    assert list(rows[0])[: len(CLIENT_COLUMNS)] == CLIENT_COLUMNS
    unnamed = client_rows(record, {}, store, make(make_store(), scheme="iid", clients=3))
    assert [row["name"] for row in unnamed] == [None] * 3


@pytest.fixture
def drawn(monkeypatch):
    """Texts of the partition's axes, and of the legend, as they are drawn."""
    found = []
    whole = matplotlib.text.Text.draw

    def draw(self, renderer, *more):
        found.append((self.get_text(), self.get_parse_math()))
        return whole(self, renderer, *more)

    monkeypatch.setattr(matplotlib.text.Text, "draw", draw)
    return found


HOSTILE = ["$\\frac{$", "$a$", "_hidden", "caf\udce9", "tab\tand\nline"]
SHOWN = {"$\\frac{$", "$a$", "_hidden", "caf\ufffd", "tab\ufffdand\ufffdline"}


@pytest.mark.parametrize("kind", ["class_names", "domain_names", "client_names"])
def test_names_in_the_picture_are_text(make, make_store, drawn, kind):
    store = make_store(classes=5, domains=5, groups=5, train=600)
    scheme = "domain" if kind == "domain_names" else "natural"
    partition = make(store, scheme=scheme, clients=5)
    partition.meta[kind] = HOSTILE
    assert picture(partition).startswith(b"\x89PNG")
    texts = dict(drawn)
    assert texts.keys() >= SHOWN
    assert not any(texts[name] for name in SHOWN)


def test_ticks_are_names_in_the_order_of_the_picture(make, store, monkeypatch):
    ticks = []
    whole = Axes.set_xticks
    monkeypatch.setattr(Axes, "set_xticks", lambda self, *a, **style: (ticks.append(a[1]), whole(self, *a, **style)))
    picture(make(store, **NATURAL))
    assert sorted(ticks[0]) == sorted(NAMES)
