"""A run's folder: rounds.csv, clients.csv, domains.csv, the method's tables and summary.json (see docs/results.md)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench.engine.record import TAIL
from fedbench.errors import FedbenchError
from fedbench.files.io import read_sealed, write_csv, write_sealed, writing_errors
from fedbench.files.temporary import NEW, remove_leftovers, temporary_folder

if TYPE_CHECKING:
    from fedbench.data.store import Store
    from fedbench.engine.evaluate import Evaluation
    from fedbench.engine.record import Record
    from fedbench.engine.state import FederationState
    from fedbench.partition.partition import Partition

    Table = tuple[Sequence[str], Sequence[Mapping[str, Any]]]  # columns, rows

ROUND_COLUMNS = [
    *("round", "cohort", "train_loss", "lr"),
    *("uplink_bytes", "downlink_bytes", "uplink_bytes_per_client", "downlink_bytes_per_client", "cumulative_bytes"),
    *("val_accuracy", "test_accuracy_mean", "test_accuracy_std", "test_accuracy_p10", "test_accuracy_p50"),
    *("test_accuracy_p90", "test_accuracy_worst", "held_out_accuracy_mean", "held_out_accuracy_worst"),
    *("global_accuracy", "global_loss", "update_norm"),
]
LAST_ROUND_COLUMNS = ["diverged", "seconds_train", "seconds_eval"]  # behind the method's own
CLIENT_COLUMNS = [
    *("client", "name", "domain", "n_train", "n_val", "n_test", "participations", "held_out"),
    *("accuracy_personal", "accuracy_personal_best", "accuracy_personal_tail", "accuracy_global", "accuracy_base"),
]
DOMAIN_COLUMNS = [
    *("domain", "clients", "n_test"),
    *("accuracy_personal", "accuracy_personal_best", "accuracy_personal_tail", "accuracy_global", "accuracy_base"),
]
TABLES = ("rounds.csv", "clients.csv", "domains.csv")
SUMMARY = "summary.json"


def spread(accuracies: Sequence[float]) -> dict[str, float]:
    """Mean, population std, 10th, 50th and 90th percentile and worst of the clients' accuracies."""
    values = np.asarray(accuracies, np.float64)
    p10, p50, p90 = np.percentile(values, [10, 50, 90])
    numbers = {"mean": values.mean(), "std": values.std(), "p10": p10, "p50": p50, "p90": p90, "worst": values.min()}
    return {name: float(value) for name, value in numbers.items()}


def split(accuracies: Sequence[float], held_out: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """(values of the federation's clients, values of those held out of it)."""
    values = np.asarray(accuracies, np.float64)
    return np.delete(values, list(held_out)), values[list(held_out)]


def evaluation_columns(evaluation: Evaluation) -> dict[str, float | None]:
    """The columns of rounds.csv that an evaluation fills."""
    validation, _ = split(evaluation.validation, evaluation.held_out)
    validation = validation[~np.isnan(validation)]
    personal, held_out = split(evaluation.personal, evaluation.held_out)
    apart = spread(held_out) if len(held_out) else {}
    return {
        "val_accuracy": float(validation.mean()) if len(validation) else None,
        **{f"test_accuracy_{name}": value for name, value in spread(personal).items()},
        **{f"held_out_accuracy_{name}": apart[name] for name in ("mean", "worst") if apart},
        "global_accuracy": evaluation.global_accuracy,
        "global_loss": evaluation.global_loss,
        **evaluation.diagnostics,
    }


def selections(record: Record) -> dict[str, Any]:
    """Last round, best round by validation accuracy, and mean of the last evaluated rounds."""
    evaluated = record.evaluated
    trained = [row for row in evaluated if row["round"] > 0] or evaluated
    tail = trained[-TAIL:]
    chosen = {"last": [trained[-1]], "tail": tail}
    if "best" in record.accuracies:
        chosen["best"] = [max(trained, key=lambda row: (row["val_accuracy"], -row["round"]))]
    vectors = {**record.accuracies, "tail": np.mean(record.tail, axis=0)}
    parts = {name: split(vectors[name], record.held_out) for name in chosen}
    return {
        name: {
            "rounds": [row["round"] for row in rows],
            "personal": spread(parts[name][0]),
            "held_out": spread(parts[name][1]) if record.held_out else None,
            "global": float(np.mean([row["global_accuracy"] for row in rows])),
            "val": None if rows[0]["val_accuracy"] is None else float(np.mean([row["val_accuracy"] for row in rows])),
        }
        for name, rows in chosen.items()
    }


def client_rows(
    record: Record, participations: Mapping[int, int], store: Store, partition: Partition
) -> list[dict[str, Any]]:
    """One row per client; only clients that the data name have a name."""
    columns, names = _columns(record.accuracies, record.tail), partition.meta.get("client_names")
    return [
        {
            "client": client,
            "name": None if names is None else names[client],
            "domain": store.domain_names[partition.client_domains[client]],
            "n_train": len(partition.train[client]),
            "n_val": len(partition.validation[client]),
            "n_test": len(partition.test[client]),
            "participations": participations.get(client, 0),
            "held_out": int(client in record.held_out),
            **{name: values[client] for name, values in columns.items()},
        }
        for client in range(partition.clients)
    ]


def domain_rows(record: Record, store: Store, partition: Partition) -> list[dict[str, Any]]:
    """One row per domain that the federation's clients have test samples of; none where there is but one domain."""
    if len(store.domain_names) < 2:
        return []
    columns = _columns(record.domains, record.domain_tail)
    members = [part for client, part in enumerate(partition.test) if client not in record.held_out]
    counts = [np.bincount(store.domains[part], minlength=len(store.domain_names)) for part in members]
    return [
        {
            "domain": name,
            "clients": sum(int(own[domain] > 0) for own in counts),
            "n_test": sum(int(own[domain]) for own in counts),
            **{column: values[domain] for column, values in columns.items()},
        }
        for domain, name in enumerate(store.domain_names)
        if any(own[domain] for own in counts)
    ]


def _columns(kept: dict[str, list[float]], tail: list[list[float]]) -> dict[str, list[float | None]]:
    """What clients.csv and domains.csv say of accuracies, each a vector over clients or domains."""
    return {
        "accuracy_personal": kept["last"],
        "accuracy_personal_best": kept.get("best", [None] * len(kept["last"])),
        "accuracy_personal_tail": np.mean(tail, axis=0).tolist(),
        "accuracy_global": kept["global"],
        "accuracy_base": kept["base"],
    }


def tables(
    state: FederationState, record: Record, store: Store, partition: Partition, columns: Iterable[str]
) -> dict[str, Table]:
    """The tables that every run has, by their files' names.

    Parameters
    ----------
    columns : what the method adds to rounds.csv
    """
    return {
        "rounds.csv": ([*ROUND_COLUMNS, *columns, *LAST_ROUND_COLUMNS], record.rows),
        "clients.csv": (CLIENT_COLUMNS, client_rows(record, state.participations, store, partition)),
        "domains.csv": (DOMAIN_COLUMNS, domain_rows(record, store, partition)),
    }


def write_results(out: Path, tables: Mapping[str, Table], summary: dict[str, Any]) -> None:
    """Write the folder; summary.json goes first and comes last, so that its presence means the run is complete.

    It is sealed, and has the SHA-256 of each table under ``files``: a table without rows (domains.csv where there is
    but one) is not written. Everything is written aside first, so that results of before stay until the new ones are
    whole.

    Parameters
    ----------
    tables : file -> (columns, rows)
    """
    with writing_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        remove_leftovers(out, (*tables, SUMMARY))
    with writing_errors(out), temporary_folder(out / "results", ()) as place:
        aside = place / NEW
        files = {name: write_csv(aside / name, header, rows) for name, (header, rows) in tables.items() if rows}
        write_sealed(aside / SUMMARY, summary | {"files": files})
        earlier = _tables_of(out)
        (out / SUMMARY).unlink(missing_ok=True)
        for name in earlier - set(files):  # another run's, which this one overwrites
            (out / name).unlink(missing_ok=True)
        for name in [*files, SUMMARY]:
            os.replace(aside / name, out / name)


def _tables_of(out: Path) -> set[str]:
    """The tables that the folder's summary.json knows of; what no sound summary names is not ours to remove."""
    try:
        return set(read_sealed(out / SUMMARY)["files"])
    except FedbenchError:
        return set()
