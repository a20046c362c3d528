"""What a method adds to a run's results, held to what it declares: all of it before the first round, then each round.

A declaration that is found wrong when the results are written has cost the whole run.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench.engine import results
from fedbench.errors import FedbenchError
from fedbench.lazy import torch
from fedbench.methods.method import LocalResult
from fedbench.registry import METHODS
from fedbench.tree import expand

if TYPE_CHECKING:
    from fedbench.methods.method import Method
    from fedbench.tree import Tree

NUMBER = (int, float, np.integer, np.floating)


def check_declarations(method: Method) -> None:
    """Refuse columns and tables that are the engine's own, and names that cannot be a table's.

    Raises
    ------
    FedbenchError
        Naming the method and the column or table.
    """
    core = {*results.ROUND_COLUMNS, *results.LAST_ROUND_COLUMNS}
    for column in method.columns:
        if column in core:
            _refuse(method, f"column {column!r} of rounds.csv is the engine's own; give it another name in `columns`")
    for table in method.tables:
        if table in results.TABLES:
            _refuse(method, f"table {table!r} is the engine's own; give it another name in `tables`")
        if PurePath(table).name != table or PurePath(table).suffix != ".csv" or table.startswith("."):
            _refuse(method, f"table {table!r} must be a plain file name that ends in .csv")


def rehearse(method: Method, shared: Tree, private: Tree) -> None:
    """Ask the method for everything that it adds to results, after a participation in which nothing moved.

    Parameters
    ----------
    shared : what the server holds
    private : what one client keeps, stacked [1, ...]

    Raises
    ------
    FedbenchError
        Naming the method and what it did not declare.
    """
    check_declarations(method)
    try:
        json.dumps(method.facts())
    except (TypeError, ValueError) as error:
        _refuse(method, f"`facts` cannot be written as JSON ({error})")
    if not method.phases():
        return
    received = expand(shared, 1)
    device = next((leaf.device for leaf in {**received, **private}.values()), None)
    result = LocalResult(received, {**received, **private}, torch.ones(1, device=device), method.training.learning_rate)
    message, kept = method.finish(result)
    observed = method.observe(private, kept, _no_gradients(method, private))
    weights = torch.ones(1, dtype=torch.float64, device=device)
    declared_values(method, method.diagnostics(shared, message, weights, observed))
    if private:
        declared_values(method, method.private_diagnostics(kept))
        declared_tables(method, method.rows([0], kept))


def _no_gradients(method: Method, private: Tree) -> Tree:
    """The sums of one step without a gradient; {} where no leaf is followed."""
    names = [name for name in private if name.startswith(method.followed_leaves)]
    if not names:
        return {}
    zeros = torch.zeros(1, len(names), dtype=torch.float64, device=private[names[0]].device)
    return {"steps": zeros.new_ones(1), "sum": zeros, "squares": zeros}


def declared_values(method: Method, values: Mapping[str, Any]) -> dict[str, Any]:
    """`values`, which are columns of rounds.csv that the method declares, and numbers."""
    _require(method, values, method.columns, "rounds.csv", "`columns`")
    for column, value in values.items():
        if value is not None and not isinstance(value, NUMBER):
            _refuse(method, f"column {column!r} must be a number or None, not {type(value).__name__}")
    return {column: None if value is None else _plain(value) for column, value in values.items()}


def declared_tables(
    method: Method, rows: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, tuple[list[str], Sequence[Mapping[str, Any]]]]:
    """Name -> (columns, rows) of the method's own tables, which it declares."""
    for table, own in rows.items():
        if table not in method.tables:
            _refuse(method, f"table {table!r} is not declared; add it to `tables` with its columns")
        for row in own:
            _require(method, row, method.tables[table], table, f"`tables[{table!r}]`")
    return {table: (list(method.tables[table]), own) for table, own in rows.items()}


def _require(method: Method, found: Collection[str], declared: Collection[str], table: str, where: str) -> None:
    for column in found:
        if column not in declared:
            _refuse(method, f"column {column!r} of {table} is not declared; add it to {where} with its meaning")


def _plain(value: Any) -> int | float:
    return value.item() if isinstance(value, np.generic) else value


def _refuse(method: Method, reason: str) -> None:
    name = next((entry.name for entry in METHODS.values() if entry.target is type(method)), type(method).__name__)
    raise FedbenchError(f"method {name}: {reason}")
