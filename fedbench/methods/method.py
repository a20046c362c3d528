"""What a federated method is: which leaves are shared or private, how a client trains, what travels.

A method holds its task and its frozen options and is otherwise pure: its functions map trees to trees, remember
nothing, and know no disk, log, device or clock. Clients' local state is one flat tree, the received shared leaves
and the private ones together; names tell them apart. All functions that take stacked trees treat clients
independently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from fedbench.randomness import stream

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from fedbench.config.entries import Training
    from fedbench.config.spec import RunSpec
    from fedbench.models.classifier import Classifier
    from fedbench.models.task import Task
    from fedbench.tree import Tree


@dataclass(frozen=True)
class Group:
    """Leaves that train together, chosen by name prefix; None takes the run's training option."""

    prefixes: tuple[str, ...]
    learning_rate: float | None = None
    weight_decay: float | None = None
    scheduled: bool = True
    """Whether the round's learning-rate schedule applies."""


@dataclass(frozen=True)
class Phase:
    """One stretch of local training with its own optimiser.

    Attributes
    ----------
    groups : which leaves of the local state train, and at what rates; all others are frozen
    epochs : passes over the client's samples; None takes the run's local epochs or steps
    repeats : optimiser steps on each batch
    view : maps the local state to the task's trainables
    penalty : (local, received) -> [K], added to the losses
    before : maps the local state to leaves to replace before the first batch
    after_batch : maps the local state to leaves to replace after each batch (without gradient)
    clip : global-norm clip per client; None takes the run's
    """

    groups: tuple[Group, ...]
    epochs: int | None = None
    repeats: int = 1
    view: Callable[[Tree], Tree] | None = None
    penalty: Callable[[Tree, Tree], Tensor] | None = None
    before: Callable[[Tree], Tree] | None = None
    after_batch: Callable[[Tree], Tree] | None = None
    clip: float | None = None


@dataclass(frozen=True)
class LocalResult:
    """What K clients' local training started from and led to.

    Attributes
    ----------
    received : stacked shared leaves as the clients received them
    trained : stacked local state afterwards (shared and private leaves)
    steps : Tensor [K], optimiser steps made in the first phase
    learning_rate : the round's rate
    """

    received: Tree
    trained: Tree
    steps: Tensor
    learning_rate: float


class Method:
    """A federated method; subclasses override what is theirs.

    Parameters
    ----------
    options : the method's own option class
    classifier : the model, with the base's weights
    training : the run's training options
    seed : the run's seed
    """

    pooled = False
    """Train on the union of all clients' data, as one client."""
    communicates = True
    """False for methods whose rows in byte tables are zero by construction."""
    additive = True
    """Whether `aggregate` just adds the mean message, so that a client can do it itself from that mean."""
    columns: ClassVar[Mapping[str, str]] = {}
    """Columns that it adds to rounds.csv, in order, each with its meaning in one line."""
    tables: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Tables of its own beside rounds.csv: the file's name, and its columns as above."""
    followed_leaves: tuple[str, ...] = ()
    """Prefixes of private leaves of one number each, whose gradients are followed for :meth:`observe`."""
    context_images = 0
    """How many of its own training images a client looks at before it is evaluated with its own weights."""

    def __init__(self, options: Any, classifier: Classifier, training: Training, seed: int):
        self.options = options
        self.training = training
        self.seed = seed
        self.task = self.build_task(classifier)

    @staticmethod
    def objection(options: Any, provides: frozenset[str], spec: RunSpec) -> str | None:
        """Why this method cannot run with this model, channel or partition; None if it can.

        Called while a workflow is planned, without torch.

        Parameters
        ----------
        options : the method's options
        provides : what the backbone offers: "lora-sites", "mapped-weights", "norm-affine"
        spec : the whole run
        """
        return None

    def build_task(self, classifier: Classifier) -> Task:
        raise NotImplementedError

    def init_shared(self, rng: np.random.Generator) -> Tree:
        """What the server holds and clients receive (no client axis)."""
        return self.task.init(rng)

    def init_private(self, rng: np.random.Generator, shared: Tree) -> Tree:
        """What one client keeps to itself; {} if nothing.

        Parameters
        ----------
        rng : the client's own
        shared : what :meth:`init_shared` made
        """
        return {}

    @cached_property
    def start(self) -> Tree:
        """Every leaf of the task as all clients begin with it; it follows from the run's seed alone.

        What does not travel (a head that stays, a factor that is frozen) starts here, so that nobody has to send it.
        """
        return self.task.init(stream(self.seed, "shared"))

    def phases(self) -> tuple[Phase, ...]:
        """The stretches of local training of one participation; () if clients never train."""
        raise NotImplementedError

    def newcomer(self, received: Tree, private: Tree) -> Tree:
        """Private leaves that clients without any participation start their training for evaluation from.

        By default `private`, what a first participation starts from; both trees are stacked.
        """
        return private

    def evaluation_phases(self, epochs: int) -> tuple[Phase, ...]:
        """Local training of clients before their personal evaluation; nothing of it is kept.

        By default the method's own phases for so many epochs each, and none for zero epochs.
        """
        return tuple(replace(phase, epochs=epochs) for phase in self.phases()) if epochs else ()

    def finish(self, result: LocalResult) -> tuple[Tree, Tree]:
        """Split a participation's result into (message, private state), both stacked.

        By default the message is the change of every shared leaf and the rest stays.
        """
        message = {name: result.trained[name] - leaf for name, leaf in result.received.items()}
        private = {name: leaf for name, leaf in result.trained.items() if name not in result.received}
        return message, private

    def init_server(self, shared: Tree) -> Tree:
        """State of a server optimiser; {} if there is none."""
        return {}

    def aggregate(self, shared: Tree, mean_message: Tree, server: Tree, share: float) -> tuple[Tree, Tree]:
        """New shared leaves and server state from the cohort's mean message.

        Parameters
        ----------
        share : cohort size / number of clients
        """
        return {name: leaf + mean_message[name] for name, leaf in shared.items()}, server

    def global_weights(self, shared: Tree) -> Tree:
        """The task's trainables of the shared model."""
        return shared

    def personal(self, shared: Tree, private: Tree) -> Tree:
        """The task's trainables that clients evaluate with (both stacked)."""
        return {**shared, **private}

    def context(self, weights: Tree, images: Tensor, mask: Tensor) -> Tree:
        """Further leaves of the personal weights, computed from some of each client's own training images.

        Called where `context_images` is not zero; the images are the same in every round.

        Parameters
        ----------
        weights : what :meth:`personal` gave
        images : Tensor [K, context_images, C, H, W]
        mask : Tensor [K, context_images], bool; False where a client has fewer samples
        """
        return {}

    def observe(self, before: Tree, after: Tree, gradients: Tree) -> Tree:
        """What :meth:`diagnostics` needs to know of K clients' participations, stacked.

        Parameters
        ----------
        before, after : private leaves
        gradients : sums over a participation's steps, penalties included and before clipping, float64: ``steps`` [K],
            ``sum`` and ``squares`` [K, leaves] of the followed leaves; {} where none trains
        """
        return {}

    def diagnostics(self, shared: Tree, messages: Tree, weights: Tensor, observed: Tree) -> dict[str, float]:
        """Declared columns of a trained round.

        Parameters
        ----------
        shared : what the cohort received
        messages : [K, ...]; {} where nothing travels
        weights : Tensor [K], summing to one
        observed : what :meth:`observe` gave, of the whole cohort
        """
        return {}

    def private_diagnostics(self, private: Tree) -> dict[str, float]:
        """Declared columns of an evaluated round, from the private leaves of all clients that have taken part."""
        return {}

    def rows(self, clients: Sequence[int], private: Tree) -> dict[str, list[dict[str, Any]]]:
        """Rows of its declared tables, from the last private leaves of the clients that have taken part."""
        return {}

    def facts(self) -> dict[str, Any]:
        """What summary.json says under ``facts``, and what does not change over rounds."""
        return {}


def lacks(provides: frozenset[str], part: str, reason: str) -> str | None:
    """A objection line if the backbone does not provide `part`."""
    return None if part in provides else reason
