"""What repair moved is said wherever a partition is shown, and refused where it is too much."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedbench.config.reading import parse_entry
from fedbench.config.spec import digest, plain
from fedbench.data.store import Store
from fedbench.errors import FedbenchError
from fedbench.partition._picture import picture
from fedbench.partition.partition import repair_text
from fedbench.registry import PARTITION_SCHEMES

# one class, which alpha near zero gives to a single client: nine more need 20 samples each, 180 of 1,200 (15 %)
SKEWED = {"scheme": "dirichlet", "clients": 10, "alpha": 1e-12, "min_samples": 20}


@pytest.fixture
def store(make_store) -> Store:
    return make_store(classes=1, domains=1)


def test_more_than_the_limit_is_refused(make, store):
    with pytest.raises(
        FedbenchError, match=r"mine\.max_moved: .*moves 180 of 1,200 training samples \(15\.0%\), more"
    ) as no:
        make(store, **SKEWED)
    assert "more than 10.0%" in str(no.value)
    with pytest.raises(FedbenchError, match=r"more than 14\.9%"):
        make(store, **SKEWED, max_moved=0.149)
    assert make(store, **SKEWED, max_moved=0.15).meta["moved_by_repair"] == 180


def test_the_limit_decides_whether_not_which(make, store):
    entries = [parse_entry("partitions", "mine", {**SKEWED, "max_moved": limit}) for limit in (0.15, 1.0)]
    assert digest(plain(entries[0])) == digest(plain(entries[1]))
    assert make(store, **SKEWED, max_moved=0.15).sha256 == make(store, **SKEWED, max_moved=1.0).sha256


def test_what_is_said_by_hand():
    counts = [[3, 4], [5, 1000]]
    assert (
        repair_text({"moved_by_repair": 253, "counts": counts}) == "repair moved 253 of 1,012 training samples (25.0%)"
    )
    assert repair_text({"moved_by_repair": 0, "counts": counts}) == ""


@pytest.mark.parametrize(("limits", "expected"), [({"max_moved": 0.15}, True), ({"alpha": 1e9}, False)])
def test_the_picture_says_it(make, store, monkeypatch, limits, expected):
    titles = []
    monkeypatch.setattr(Figure, "suptitle", lambda self, text, **style: titles.append(text))
    picture(make(store, **{**SKEWED, **limits}))
    assert ("repair moved 180 of 1,200 training samples (15.0%)" in titles[0]) == expected
    assert ("repair" in titles[0]) == expected


@pytest.mark.parametrize("scheme", sorted(PARTITION_SCHEMES))
def test_plain_partitions_need_no_repair(make, make_store, scheme):
    """At the demo's sizes the default limit is far away."""
    alpha = {"alpha": 0.3} if "dirichlet" in scheme else {}
    partition = make(make_store(groups=8), scheme=scheme, clients=8, **alpha)
    assert partition.meta["moved_by_repair"] <= 0.02 * np.sum(partition.meta["counts"])
