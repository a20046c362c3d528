"""What methods add to results: declared, in its place, and refused before the first round where it is not."""

from unittest import mock

import pytest
import torch
from support import Watch, make_spec, run_cell

from fedbench.errors import FedbenchError
from fedbench.methods.fedavg import FedAvg
from fedbench.methods.fedsdg import FedSDG


def run_with(patches, folder, digits, ragged, method="fedavg", watch=None, **training):
    """A run whose method has other attributes than usual."""
    target = {"fedavg": FedAvg, "fedsdg": FedSDG}[method]
    with mock.patch.multiple(target, **patches):
        return run_cell(folder, digits, ragged, make_spec(method, rounds=2, **training), watch=watch)


def cosine(self, shared, messages, weights, observed):
    return {"cosine": 0.25 * len(weights)}


def test_a_methods_own_column(tmp_path, digits, ragged):
    patches = {"columns": {"cosine": "of the messages"}, "diagnostics": cosine}
    outcome = run_with(patches, tmp_path, digits, ragged, participation=0.5)
    assert [row["cosine"] for row in outcome.rounds] == ["", "0.75", "0.75"]
    columns = list(outcome.rounds[0])
    assert columns[columns.index("cosine") - 1] == "update_norm"
    assert columns[columns.index("cosine") + 1] == "diverged"


def test_fedsdg_has_its_columns_and_its_table(tmp_path, digits, ragged):
    outcome = run_cell(tmp_path, digits, ragged, make_spec("fedsdg", rounds=1, participation=0.5))
    columns = list(outcome.rounds[0])
    first = columns.index("gate_mean")
    assert columns[first : first + len(FedSDG.columns) + 1] == [*FedSDG.columns, "diverged"]
    assert all(outcome.rounds[1][column] for column in FedSDG.columns)
    table = outcome.numbers()["gates.csv"]
    assert list(table[0]) == ["client", "block", "site", "value"]
    assert {row["client"] for row in table} == set(outcome.rounds[1]["cohort"].split())
    assert "gates.csv" in outcome.summary["files"]


BAD = {
    "undeclared": ({"diagnostics": cosine}, r"column 'cosine' of rounds\.csv is not declared; add it to `columns`"),
    "core": ({"columns": {"lr": "x"}}, r"column 'lr' of rounds\.csv is the engine's own; give it another name"),
    "last": ({"columns": {"diverged": "x"}}, r"column 'diverged' of rounds\.csv is the engine's own"),
    "tensor": (
        {"columns": {"cosine": "x"}, "diagnostics": lambda *_: {"cosine": torch.tensor(1.0)}},
        r"column 'cosine' must be a number or None, not Tensor",
    ),
    "facts": ({"facts": lambda self: {"x": torch.tensor(1.0)}}, r"`facts` cannot be written as JSON"),
    "core table": ({"tables": {"clients.csv": {"x": "x"}}}, r"table 'clients\.csv' is the engine's own"),
    "no table": ({"tables": {"../own": {"x": "x"}}}, r"table '\.\./own' must be a plain file name that ends in \.csv"),
}
BAD_PRIVATE = {
    "evaluated": (
        {"private_diagnostics": lambda *_: {"cosine": 1.0}},
        r"column 'cosine' of rounds\.csv is not declared",
    ),
    "table": ({"rows": lambda *_: {"own.csv": []}}, r"table 'own\.csv' is not declared; add it to `tables`"),
    "table's column": (
        {"rows": lambda *_: {"gates.csv": [{"client": 0, "gate": 1.0}]}},
        r"column 'gate' of gates\.csv is not declared; add it to `tables\['gates\.csv'\]` with its meaning",
    ),
}


@pytest.mark.parametrize(
    ("method", "patches", "message"),
    [("fedavg", *case) for case in BAD.values()] + [("fedsdg", *case) for case in BAD_PRIVATE.values()],
    ids=[*BAD, *BAD_PRIVATE],
)
def test_a_wrong_declaration_ends_before_the_first_round(method, patches, message, tmp_path, digits, ragged):
    watch = Watch()
    with pytest.raises(FedbenchError, match=f"^method {method}: {message}") as error:
        run_with(patches, tmp_path, digits, ragged, method, watch=watch)
    assert "\n" not in str(error.value)
    assert (watch.rounds, watch.looks) == ([], 0)


def test_a_column_that_only_a_later_round_has_ends_that_round(tmp_path, digits, ragged):
    """The rehearsal has one client; what it cannot see is not first found after the last round."""
    watch = Watch()

    def later(self, shared, messages, weights, observed):
        return {"cosine": 1.0} if len(weights) > 1 else {}

    with pytest.raises(FedbenchError, match="column 'cosine'"):
        run_with({"diagnostics": later}, tmp_path, digits, ragged, watch=watch)
    assert watch.rounds == [0]


def test_facts_replace_no_key_of_the_summary(tmp_path, digits, ragged):
    facts = {"digest": "mine", "classes": -1, "mapped": 3}
    summary = run_with({"facts": lambda self: facts}, tmp_path, digits, ragged).summary
    assert summary["facts"] == facts
    assert summary["digest"] == make_spec("fedavg", rounds=2).digest
    assert summary["classes"] == digits.classes
