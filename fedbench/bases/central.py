"""Central training of a base model, resumable at every epoch.

Recipe of the FLITE paper: SGD with momentum 0.9, learning rate 0.05 with three epochs of linear warm-up and a
cosine to zero, weight decay 5e-4, batch 128, random crops and flips. The head is of its final kind from the
first step on, so that a frozen head shapes the trunk. Batches and augmentation are keyed by (seed, epoch): an
interrupted and resumed training ends with the same bits (on the CPU) as an uninterrupted one.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedbench.config.entries import BaseEntry
from fedbench.data.store import Store
from fedbench.errors import FedbenchError
from fedbench.models.classifier import Classifier
from fedbench.models.images import ImageReader, crop_flip, draw_crop_flip, normalise, padding
from fedbench.models.optim import cosine, make_optimizer
from fedbench.models.weights import read_metadata, read_weights, save_weights
from fedbench.randomness import stream

CHECKPOINT = "pretrain.safetensors"
# Input values per evaluation batch: 682 RGB images of 32x32 on the CPU, 111 of 224x224 on a GPU.
EVALUATION_VALUES = {"cpu": 2**21, "cuda": 2**24}


class CentralTraining:
    """Trains a classifier on some samples of a store.

    Parameters
    ----------
    classifier : Classifier
        Trained in place, on `device`.
    base : BaseEntry
        Optimiser, schedule, augmentation, precision and seed.
    store : Store
    samples : int64 array
        Indices into the store that are trained on.
    device : torch.device
    checkpoint : Path or None
        Folder of the epoch-level checkpoint; None keeps none.
    identity : str
        Digest of everything that the result depends on; a checkpoint of another identity is refused.
    """

    def __init__(
        self,
        classifier: Classifier,
        base: BaseEntry,
        store: Store,
        samples: np.ndarray,
        device: torch.device,
        checkpoint: Path | None,
        identity: str,
    ):
        self.classifier = classifier.to(device)
        self.base = base
        self.samples = samples
        self.device = device
        self.labels = torch.from_numpy(np.asarray(store.labels)).to(device)
        self.read = ImageReader(store.images, device)
        self.pad = padding(*store.shape[1:])
        self.file = None if checkpoint is None else Path(checkpoint) / CHECKPOINT
        self.identity = identity
        self.steps = math.ceil(len(samples) / base.batch_size)
        self.parameters = {name: leaf for name, leaf in classifier.named_parameters() if leaf.requires_grad}
        self.optimizer = make_optimizer(
            base.optimizer,
            list(self.parameters.values()),
            base.momentum,
            lr=base.learning_rate,
            weight_decay=base.weight_decay,
        )
        self.history: list[dict[str, float]] = []
        self.seconds = 0.0

    def run(self, progress: Any = None, label: str = "base") -> None:
        """Train the epochs that the checkpoint has not done yet.

        Parameters
        ----------
        progress : object with start, round and finish, or None
            Told of every epoch.

        Raises
        ------
        FedbenchError
            If the checkpoint is damaged or of another spec, or the loss is no longer finite.
        """
        self._resume()
        if progress is not None:
            progress.start(self.base.epochs, label, unit="epoch")
        try:
            for epoch in range(len(self.history), self.base.epochs):
                started = time.perf_counter()
                loss = self._epoch(epoch)
                if not math.isfinite(loss):
                    raise FedbenchError(
                        f"{label}: training diverged in epoch {epoch + 1}; lower the base's learning_rate"
                    )
                self.history.append(
                    {"epoch": epoch + 1, "train_loss": loss, "lr": self.optimizer.param_groups[0]["lr"]}
                )
                self.seconds += time.perf_counter() - started
                self._save()
                if progress is not None:
                    progress.round(self.history[-1])
        finally:
            if progress is not None:
                progress.finish()

    def _epoch(self, epoch: int) -> float:
        """One pass over the samples; returns the mean loss."""
        self.classifier.train()
        total = torch.zeros((), device=self.device)  # summed on the device: reading it every step would wait for it
        for step, (images, labels) in enumerate(self._batches(epoch)):
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(self.base, epoch * self.steps + step, self.steps)
            self.optimizer.zero_grad(set_to_none=True)
            with autocast(self.device, self.base.precision):
                logits = self.classifier(images)
            loss = functional.cross_entropy(logits.float(), labels)
            loss.backward()
            self.optimizer.step()
            total += loss.detach() * len(labels)
        return total.item() / len(self.samples)

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = stream(self.base.seed, "pretrain-order", epoch).permutation(self.samples)
        offsets, flips = draw_crop_flip(stream(self.base.seed, "pretrain-augmentation", epoch), len(order), self.pad)
        for start in range(0, len(order), self.base.batch_size):
            chosen = slice(start, start + self.base.batch_size)
            images = self.read(order[chosen])
            if self.base.augmentation == "crop-flip":
                images = crop_flip(
                    images, torch.from_numpy(offsets[chosen]), torch.from_numpy(flips[chosen]), pad=self.pad
                )
            model = self.classifier
            images = normalise(images, model.mean, model.std, model.input_size)
            yield images, self.labels[torch.from_numpy(order[chosen]).to(self.device)]

    def _save(self) -> None:
        if self.file is None:
            return
        tensors = {f"model.{name}": leaf for name, leaf in self.classifier.state_dict().items()}
        for name, leaf in self.parameters.items():
            for key, value in self.optimizer.state[leaf].items():
                if value is not None:  # SGD without momentum keeps a None
                    tensors[f"optimizer.{key}.{name}"] = value
        state = {"identity": self.identity, "history": self.history, "seconds": self.seconds}
        save_weights(self.file, tensors, {"state": json.dumps(state)})

    def _resume(self) -> None:
        if self.file is None or not self.file.exists():
            return
        tensors, state = read_weights(self.file), json.loads(read_metadata(self.file)["state"])
        if state["identity"] != self.identity:
            raise FedbenchError(
                f"{self.file}: this checkpoint belongs to another base or data set; delete it, or go back to its config"
            )
        self.history, self.seconds = state["history"], state["seconds"]
        self.classifier.load_state_dict(
            {name.removeprefix("model."): leaf for name, leaf in tensors.items() if name.startswith("model.")}
        )
        positions = {name: position for position, name in enumerate(self.parameters)}
        moments: dict[int, dict[str, Tensor]] = {}
        for full, value in tensors.items():
            kind, _, rest = full.partition(".")
            if kind == "optimizer":
                key, _, name = rest.partition(".")
                moments.setdefault(positions[name], {})[key] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})


def learning_rate(base: BaseEntry, step: int, steps_per_epoch: int) -> float:
    """Learning rate of a step (counted over all epochs): linear warm-up to the full rate, then a cosine to zero."""
    warmup, total = base.warmup_epochs * steps_per_epoch, base.epochs * steps_per_epoch
    if step < warmup:
        return base.learning_rate * (step + 1) / warmup
    return base.learning_rate * cosine(step - warmup, total - warmup)


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """The context of a forward pass in `precision` ("fp32" or "bf16")."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


@torch.no_grad()
def accuracy(
    classifier: Classifier, store: Store, samples: np.ndarray, device: torch.device, precision: str = "fp32"
) -> float | None:
    """Share of `samples` (indices into the store) that the classifier gets right; None if there are none."""
    if len(samples) == 0:
        return None
    classifier.to(device).eval()
    read = ImageReader(store.images, device)
    height, width = classifier.input_size or store.shape[1:]
    size = max(1, EVALUATION_VALUES[device.type] // (store.shape[0] * height * width))
    correct = 0
    for start in range(0, len(samples), size):
        chosen = samples[start : start + size]
        images = normalise(read(chosen), classifier.mean, classifier.std, classifier.input_size)
        with autocast(device, precision):
            guesses = classifier(images).argmax(1)
        correct += int((guesses.cpu().numpy() == store.labels[chosen]).sum())
    return correct / len(samples)
