"""Making the base: the weights that a federation starts from, in one format whatever their origin.

A base folder has ``base.safetensors`` (every tensor of the classifier, head included) and ``base.json``. Its
origin is one of: central training on all training data or only on the public share, timm's published weights, a
local file, or (no base) a random initialisation, so that every run finds its start in the same place.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbench.config.spec import RunSpec, digest
from fedbench.data.artifact import check_data, check_spec
from fedbench.data.store import PUBLIC, PUBLIC_TEST, TEST, TRAIN, Store
from fedbench.errors import FedbenchError
from fedbench.files import io
from fedbench.files.products import BASE
from fedbench.files.temporary import remove_leftovers
from fedbench.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.models.classifier import Classifier


@dataclass(frozen=True)
class Base:
    """What runs start from.

    Attributes
    ----------
    weights : every tensor of the classifier, by name
    sha256 : of their file, as base.json says it
    """

    weights: dict[str, Tensor]
    sha256: str


def make_base(
    spec: RunSpec,
    store: Store,
    out: Path,
    data_root: Path,
    device: Any = "cpu",
    threads: int = 1,
    progress: Any = None,
    checkpoint: Path | None = None,
) -> None:
    """Make the base of ``spec`` and write it to `out`, whole or not at all.

    Parameters
    ----------
    spec : RunSpec
        Only ``spec.base_spec`` matters.
    store : Store
        The prepared data set.
    out : Path
        Folder for ``base.safetensors`` and ``base.json``.
    data_root : Path
        Where relative weight files are looked for.
    device : torch.device or str
    threads : int
        CPU threads.
    progress : object with start, round and finish, or None
    checkpoint : Path or None
        Folder for the epoch-level checkpoint of central training, removed when the base is written; None keeps none.

    Raises
    ------
    FedbenchError
        If the base's options and the data do not fit together, weights are missing or of another architecture, the
        checkpoint is of another spec, `out` holds anything but an earlier base, or a folder is not writable.
    """
    from fedbench.models.make_model import make_model
    from fedbench.models.weights import save_weights

    BASE.check(out)  # now, not after hours of training
    torch.set_num_threads(threads)
    base = spec.base
    label = f"{spec.cell.dataset}/{spec.cell.model}"
    started = time.perf_counter()
    classifier = make_model(spec.model, store.shape, store.classes, seed=0 if base is None else base.seed)
    if base is None:
        record: dict[str, Any] = {"origin": "random", "head": "new"}
    elif base.kind == "pretrain":
        record = _train(classifier, spec, store, torch.device(device), progress, checkpoint, label)
    else:
        record = _load(classifier, spec, store, data_root, torch.device(device))
    record.setdefault("seconds", time.perf_counter() - started)
    with io.writing_folder(out, BASE) as folder:
        size = save_weights(folder / "base.safetensors", classifier.state_dict())
        values = {
            "spec": spec.base_spec,
            **record,
            "parameters": sum(leaf.numel() for leaf in classifier.parameters()),
            "bytes": size,
            "sha256": hashlib.sha256((folder / "base.safetensors").read_bytes()).hexdigest(),
        }
        io.write_json(folder / "base.json", values)
    if checkpoint is not None:
        _remove_checkpoint(Path(checkpoint))


def _train(
    classifier: Classifier,
    spec: RunSpec,
    store: Store,
    device: Any,
    progress: Any,
    checkpoint: Path | None,
    label: str,
) -> dict[str, Any]:
    """Train centrally; returns the record for base.json."""
    from fedbench.bases.central import CentralTraining, accuracy

    base = spec.base
    samples = training_samples(spec, store)
    if base.warmup_epochs >= base.epochs:
        raise FedbenchError(
            f"bases.{spec.model.common.base}.warmup_epochs: {base.warmup_epochs} leaves nothing of {base.epochs} "
            "epochs; make it smaller"
        )
    identity = digest([spec.base_spec, store.sha256])
    training = CentralTraining(classifier, base, store, samples, device, checkpoint, identity)
    training.run(progress, label)
    return {
        "origin": base.kind,
        "head": "trained",
        "data_sha256": store.sha256,
        "samples": len(samples),
        "train_accuracy": accuracy(classifier, store, samples, device, base.precision),
        **_test_accuracies(classifier, spec, store, device),
        "seconds": training.seconds,
        "epochs": training.history,
    }


def _load(classifier: Classifier, spec: RunSpec, store: Store, data_root: Path, device: Any) -> dict[str, Any]:
    """Take weights made elsewhere; returns the record for base.json, with accuracies if a trained head came along."""
    from fedbench.bases.published import load_file, load_named

    base = spec.base
    if base.kind == "pretrained":
        record = load_named(classifier, spec.model, base, store.shape)
    else:
        record = load_file(classifier, spec.model, base, store.shape, data_root)
    if record["head"] == "file":
        record |= _test_accuracies(classifier, spec, store, device)
    return {"origin": base.kind, **record}


def _test_accuracies(classifier: Classifier, spec: RunSpec, store: Store, device: Any) -> dict[str, float | None]:
    from fedbench.bases.central import accuracy

    splits = {"test_accuracy": TEST, "public_test_accuracy": PUBLIC_TEST}
    return {
        name: accuracy(classifier, store, np.flatnonzero(store.splits == split), device, spec.base.precision)
        for name, split in splits.items()
    }


def training_samples(spec: RunSpec, store: Store) -> np.ndarray:
    """Indices (int64, sorted) of the samples that the base trains on: all training data, or the public share."""
    wanted = (PUBLIC,) if spec.base.data == "public" else (TRAIN, PUBLIC)
    samples = np.flatnonzero(np.isin(store.splits, wanted))
    if len(samples) == 0:
        raise FedbenchError(
            f"bases.{spec.model.common.base}: data set {spec.cell.dataset!r} has no {spec.base.data} samples to train "
            "on; check its 'public' key"
        )
    return samples


def _remove_checkpoint(folder: Path) -> None:
    from fedbench.bases.central import CHECKPOINT

    (folder / CHECKPOINT).unlink(missing_ok=True)
    with suppress(OSError):  # other files lie there: not ours to delete
        remove_leftovers(folder)
        folder.rmdir()


def load_base(path: Path, spec: Mapping[str, Any] | None = None, data_sha256: str | None = None) -> Base:
    """Read a base folder.

    Parameters
    ----------
    path : Path
        A folder with ``base.safetensors`` and ``base.json``.
    spec : mapping or None
        ``RunSpec.base_spec``; where given, the folder must have been made from it.
    data_sha256 : str or None
        ``Store.sha256``; where given, weights that were trained centrally must have been trained on these data.

    Raises
    ------
    FedbenchError
        If the folder is incomplete, damaged, or made from another spec or other data.
    """
    from fedbench.models.weights import read_weights

    path = Path(path)
    facts = io.read_json(path / "base.json", "spec", "sha256")
    check_spec(path, facts["spec"], spec, "fedbench pretrain")
    check_data(path, facts.get("data_sha256"), data_sha256, "fedbench pretrain")
    weights = read_weights(path / "base.safetensors")
    with open(path / "base.safetensors", "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != facts["sha256"]:
            raise FedbenchError(
                f"{path}: weights and their SHA-256 differ; delete this folder and run `fedbench pretrain` again"
            )
    return Base(weights, facts["sha256"])
