"""A federation as mathematics: a start, rounds, an evaluation. No folders, clocks, locks or progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from fedbench.channels.channel import Channel, dense_bytes
from fedbench.channels.make_channel import make_channel
from fedbench.engine.chunk import Chunk
from fedbench.engine.client_store import ClientStore
from fedbench.engine.clients import ClientTrainer
from fedbench.engine.declared import declared_tables, declared_values, rehearse
from fedbench.engine.evaluate import Evaluation, Evaluator
from fedbench.engine.population import Population, draw_held_out
from fedbench.engine.server import RoundResult, Sampler, Server, sample_cohort
from fedbench.engine.state import FederationState
from fedbench.models.make_model import make_model
from fedbench.randomness import stream
from fedbench.registry import METHODS
from fedbench.tree import count, to_device

if TYPE_CHECKING:
    from fedbench.bases.base import Base
    from fedbench.config.spec import RunSpec
    from fedbench.data.store import Store
    from fedbench.methods.method import Method
    from fedbench.partition.partition import Partition
    from fedbench.tree import Tree


@dataclass(frozen=True)
class Compute:
    """What to compute with.

    Attributes
    ----------
    device : where leaves and batches are
    threads : CPU threads of torch, set for the whole process; None leaves them as they are
    chunk : clients trained at once; None takes the task's rule
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    threads: int | None = None
    chunk: int | None = None


class Federation:
    """One method on one set of clients.

    Parameters
    ----------
    spec : what to train and how
    store, partition : the samples and who holds which
    base : what the federation starts from; None is the seeded random start
    compute : what to compute with
    sampler : draws each round's cohort
    channel : makes the channel for messages like a tree; None is the spec's
    method : the method's class; None is the spec's
    stop : asked at every local step; a true answer abandons the round with `StopNow`
    say : called with a line when memory does not suffice and fewer clients are trained at once

    Raises
    ------
    FedbenchError
        If no client is left to train, or the method adds something to the results that it does not declare.

    Examples
    --------
    Two clients with images of their own, without any file:

    >>> import numpy as np
    >>> from fedbench.config.in_code import run_spec
    >>> from fedbench.engine.federation import Federation
    >>> from fedbench.partition.in_memory import from_arrays
    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(0, 2, 200)
    >>> images = (rng.random((200, 8, 8)) / 2 + labels[:, None, None] / 2).astype(np.float32)
    >>> spec = run_spec({"method": "fedavg"}, {"backbone": "mlp"}, clients=2, rounds=5, learning_rate=0.1)
    >>> federation = Federation(spec, *from_arrays(images, labels, clients=[range(50), range(50, 200)]))
    >>> state = federation.init()
    >>> for number in range(1, 6):
    ...     state = federation.round(state, number).state
    >>> bool(federation.evaluate(state).personal.min() > 0.9)
    True
    """

    def __init__(
        self,
        spec: RunSpec,
        store: Store,
        partition: Partition,
        base: Base | None = None,
        compute: Compute = Compute(),
        *,
        sampler: Sampler = sample_cohort,
        channel: Callable[[Tree], Channel] | None = None,
        method: type[Method] | None = None,
        stop: Callable[[], str | None] = lambda: None,
        say: Callable[[str], None] = print,
    ):
        self.spec, self.store, self.partition, self.compute = spec, store, partition, compute
        training, device, self.seed = spec.training, compute.device, spec.seed
        # exact and repeatable arithmetic: TF32 and autotuned kernels would make runs differ
        torch.backends.cudnn.benchmark = False
        if compute.threads is not None:
            torch.set_num_threads(compute.threads)
        classifier = make_model(spec.model, store.shape, store.classes)
        weights = classifier.state_dict() if base is None else base.weights
        classifier.load_state_dict(weights)
        self.one_time_bytes = dense_bytes(weights)
        classifier.to(device).eval()
        self.total_parameters = sum(parameter.numel() for parameter in classifier.parameters())
        method = method or METHODS[spec.method.common.method].target
        self.method = method(spec.method.options, classifier, training, self.seed)
        self.held_out = draw_held_out(self.seed, partition.clients, training.held_out)
        self.population = Population(store, partition, classifier, device, self.method.pooled, self.held_out)
        self.trainer = ClientTrainer(self.method, training, self.population, self.seed, stop)
        self.chunk = Chunk(compute.chunk or self.method.task.chunk(training.batch_size, device), say)
        self.evaluator = Evaluator(self.trainer, self.chunk)
        self._shared = to_device(self.method.init_shared(stream(self.seed, "shared")), device)
        self.channel = make_channel(spec.channel, self._shared) if channel is None else channel(self._shared)
        out = [] if self.method.pooled else self.held_out
        self.server = Server(self.trainer, self.channel, self.chunk, self._private, out, sampler)
        self.private_parameters = count(self._private(0))
        rehearse(self.method, self._shared, ClientStore(self._private, {}).gather([0], device))

    def _private(self, client: int) -> Tree:
        return self.method.init_private(stream(self.seed, "private", client), self._shared)

    @property
    def rounds(self) -> int:
        """How many rounds the spec asks for; 0 where the method never trains."""
        return self.spec.training.rounds if self.method.phases() else 0

    def init(self) -> FederationState:
        """The state before round 1."""
        device = self.compute.device
        server = to_device(self.method.init_server(self._shared), device)
        return FederationState(0, self._shared, server, to_device(self.channel.init_server(), device))

    def round(self, state: FederationState, number: int) -> RoundResult:
        """Run round `number`, counted from 1; the new state is in the result and `state` stays as it is.

        Raises
        ------
        StopNow
            If `stop` said so.
        """
        return self.server.round(state, number)

    def evaluate(self, state: FederationState) -> Evaluation:
        """Accuracies of all clients, held-out ones too; nothing is trained for good.

        Raises
        ------
        StopNow
            If `stop` said so while clients were fine-tuning.
        """
        clients, private = self._personalised(state), self.private(state)
        evaluation = self.evaluator.evaluate(state.shared, private, clients)
        if not clients:
            return evaluation
        found = self.method.private_diagnostics(private.gather(clients, self.compute.device))
        return replace(evaluation, diagnostics=declared_values(self.method, found))

    def private(self, state: FederationState) -> ClientStore:
        """What clients keep to themselves."""
        return self.server.private(state)

    def tables(self, state: FederationState) -> dict[str, tuple[list[str], Any]]:
        """The method's own tables: name -> (columns, rows)."""
        clients = self._personalised(state)
        rows = self.method.rows(clients, self.private(state).gather(clients, self.compute.device)) if clients else {}
        return declared_tables(self.method, rows)

    def _personalised(self, state: FederationState) -> list[int]:
        """Clients that hold something of their own."""
        return sorted(state.seen) if self.private_parameters else []
