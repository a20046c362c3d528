"""Checkpoints: one file holds everything a run needs to continue bit for bit.

The file's name carries its round and the SHA-256 of its contents, so a damaged file is noticed and the one
before it is used instead. Format: safetensors with the non-tensor state as JSON in the metadata.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from fedbench.engine.record import Record
from fedbench.engine.state import FederationState
from fedbench.errors import FedbenchError
from fedbench.files.io import write_bytes
from fedbench.files.temporary import remove_leftovers
from fedbench.files.traces import CHECKPOINT, checkpoint_name

KEPT = 2  # the newest, and one to fall back to


def _fields(annotation: str) -> list[str]:
    """Fields of the federation's state that are annotated so."""
    return [field.name for field in fields(FederationState) if field.type == annotation]


# A field that is added to either dataclass is in the next checkpoint.
TREES, CLIENT_TREES, CLIENT_VALUES = (_fields(kind) for kind in ("Tree", "dict[int, Tree]", "dict[int, int]"))
STATE_VALUES = [f.name for f in fields(FederationState) if f.name not in (*TREES, *CLIENT_TREES, *CLIENT_VALUES)]
RECORD_VALUES = [field.name for field in fields(Record)]


def save(folder: Path, state: FederationState, record: Record, digest: str) -> Path:
    """Write a checkpoint atomically and drop all but the newest two."""
    from safetensors.torch import save as serialise

    tensors = {f"{part}/{name}": leaf for part in TREES for name, leaf in getattr(state, part).items()}
    for part in CLIENT_TREES:
        for client, tree in getattr(state, part).items():
            tensors.update({f"{part}/{client}/{name}": leaf for name, leaf in tree.items()})
    values = {name: getattr(state, name) for name in [*STATE_VALUES, *CLIENT_VALUES]}
    values |= {name: getattr(record, name) for name in RECORD_VALUES}
    # clone: leaves may share memory (a method that does not train returns its input), which the format rejects
    data = serialise(
        {name: leaf.detach().cpu().clone().contiguous() for name, leaf in tensors.items()},
        {"digest": digest, "values": json.dumps(values), "order": json.dumps(list(tensors))},
    )
    path = folder / checkpoint_name(state.round_number, hashlib.sha256(data).hexdigest())
    write_bytes(path, data)
    for old in _files(folder)[KEPT:]:
        old.unlink(missing_ok=True)
    return path


def _files(folder: Path) -> list[Path]:
    """Checkpoints in the folder, newest first."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if CHECKPOINT.fullmatch(path.name)), reverse=True)


def load(folder: Path, digest: str, say) -> tuple[FederationState, Record] | None:
    """The newest undamaged checkpoint, or None if there is none.

    Parameters
    ----------
    digest : identity of the run's spec and inputs
    say : called with a line for each damaged file that is passed over

    Raises
    ------
    FedbenchError
        If the folder holds checkpoints of another spec, or only damaged ones.
    """
    from safetensors.torch import load as deserialise

    files = _files(folder)
    for path in files:
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != CHECKPOINT.fullmatch(path.name)[2]:
            before = "" if path == files[-1] else "; trying the one before it"
            say(f"checkpoint {path} is damaged (its checksum does not match){before}")
            continue
        metadata = _metadata(data)
        if metadata["digest"] != digest:
            raise FedbenchError(
                f"{folder}: holds a checkpoint of another spec, data set, partition or base; give another --out, "
                "or --overwrite to discard it"
            )
        # The format sorts its tensors; sums over a tree's leaves must go on in the order that they began with.
        tensors = deserialise(data)
        return _restore({name: tensors[name] for name in json.loads(metadata["order"])}, json.loads(metadata["values"]))
    if files:
        raise FedbenchError(f"{folder}: every checkpoint is damaged; give --overwrite to start again from round 0")
    return None


def _metadata(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length])["__metadata__"]


def _restore(tensors: dict[str, torch.Tensor], values: dict[str, Any]) -> tuple[FederationState, Record]:
    trees: dict[str, Any] = {part: {} for part in [*TREES, *CLIENT_TREES]}
    for name, leaf in tensors.items():
        part, rest = name.split("/", 1)
        if part in CLIENT_TREES:
            client, rest = rest.split("/", 1)
            trees[part].setdefault(int(client), {})[rest] = leaf
        else:
            trees[part][rest] = leaf
    for name in CLIENT_VALUES:
        values[name] = {int(client): value for client, value in values[name].items()}
    record = Record(**{name: values.pop(name) for name in RECORD_VALUES})
    return FederationState(**trees, **values), record


def remove(folder: Path) -> None:
    """Delete a run's checkpoints."""
    for path in _files(folder):
        path.unlink(missing_ok=True)
    with suppress(OSError):  # other files lie there: not ours to delete
        remove_leftovers(folder)
        folder.rmdir()
