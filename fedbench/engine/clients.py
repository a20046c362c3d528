"""Local training of many clients at once.

The trainable leaves of a chunk of K clients lie side by side in flat buffers [K, P], one per optimiser
group; an ordinary torch optimiser on those buffers trains K independent clients, because its updates are
elementwise. Clipping, penalties and the number of steps are per client. A client that runs out of batches
leaves the buffers together with its optimiser state. K = 1 is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedbench.engine.batches import Plan, local_steps, make_plan
from fedbench.engine.interrupt import StopNow
from fedbench.errors import FedbenchError
from fedbench.methods.base import Group, LocalResult, Method, Phase
from fedbench.models.task import Batch
from fedbench.tree import Tree, rows

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.config import Training
    from fedbench.engine.population import Population


@dataclass(frozen=True)
class Trained:
    """A chunk's local training: the result for the method, and each client's mean loss [K]."""

    result: LocalResult
    losses: Tensor


class FlatGroup:
    """One optimiser group's leaves of K clients in a buffer [K, P]."""

    def __init__(self, group: Group, names: Sequence[str], local: Tree):
        self.group = group
        self.names = list(names)
        self.shapes = [local[name].shape[1:] for name in self.names]
        self.sizes = [shape.numel() for shape in self.shapes]
        columns = [local[name].reshape(len(local[name]), -1) for name in self.names]
        self.flat = torch.cat(columns, dim=1).requires_grad_()

    def leaves(self) -> Tree:
        """Views of the buffer by leaf name, differentiable."""
        pieces = self.flat.split(self.sizes, dim=1)
        named = zip(self.names, pieces, self.shapes, strict=True)
        return {name: piece.view(-1, *shape) for name, piece, shape in named}


class ClientTrainer:
    """Runs a method's phases for chunks of clients.

    Parameters
    ----------
    method, training, population : what trains, how, on which data
    seed : the run's seed
    stop : called at every step; a true answer abandons the round
    """

    def __init__(
        self,
        method: Method,
        training: Training,
        population: Population,
        seed: int,
        stop: Callable[[], str | None] = lambda: None,
    ):
        self.method = method
        self.training = training
        self.population = population
        self.seed = seed
        self.stop = stop

    def steps(self, client: int) -> int:
        """Local steps of a client in a phase of the run's own length, for ordering."""
        samples = len(self.population.trainers[client])
        return local_steps(samples, self.training.batch_size, self.training.local_epochs, self.training.local_steps)

    def train(self, clients: Sequence[int], received: Tree, private: Tree, round_number: int, rate: float) -> Trained:
        """One participation of `clients`, who must be ordered by falling number of samples.

        Parameters
        ----------
        received, private : stacked trees [K, ...], in the order of `clients`
        rate : the round's learning-rate factor, in (0, 1]
        """
        local = {**received, **private}
        losses = torch.zeros(len(clients), device=self.population.device)
        first_steps = None
        for number, phase in enumerate(self.method.phases()):
            plan = self._plan(clients, phase, (round_number, number))
            local, losses = self._run_phase(phase, plan, local, received, rate)
            first_steps = plan.steps if first_steps is None else first_steps
        steps = torch.from_numpy(first_steps).to(self.population.device)
        return Trained(LocalResult(received, local, steps, rate * self.training.learning_rate), losses)

    def _plan(self, clients: Sequence[int], phase: Phase, key: tuple[int, int]) -> Plan:
        return make_plan(
            clients,
            [self.population.trainers[client] for client in clients],
            self.training.batch_size,
            phase.epochs or self.training.local_epochs,
            None if phase.epochs else self.training.local_steps,
            self.seed,
            key,
            self.population.pad if self.training.augmentation == "crop-flip" else None,
        )

    def _run_phase(self, phase: Phase, plan: Plan, local: Tree, received: Tree, rate: float) -> tuple[Tree, Tensor]:
        """Train the phase's leaves; returns the local state afterwards and each client's mean loss [K]."""
        clients = len(plan.steps)
        groups = _flat_groups(phase, local)
        optimiser = self._optimiser(groups, rate)
        constant = {name: leaf for name, leaf in local.items() if not any(name in g.names for g in groups)}
        finished: list[Tree] = []  # clients that left, last ones first
        total = torch.zeros(clients, device=self.population.device)
        active = clients
        for step in range(len(plan.active)):
            if self.stop():
                raise StopNow
            if plan.active[step] < active:
                remaining = int(plan.active[step])
                state = {**constant, **_leaves(groups)}
                finished.append({name: leaf.detach()[remaining:active].clone() for name, leaf in state.items()})
                active = remaining
                constant = rows(constant, slice(active))
                received = rows(received, slice(active))
                optimiser = self._shrink(optimiser, groups, active, rate)
            batch = self._batch(plan, step, active)
            for _ in range(phase.repeats):
                losses = self._step(phase, groups, optimiser, constant, received, batch)
            if phase.after_batch is not None:
                with torch.no_grad():
                    state = {**constant, **{name: leaf.detach() for name, leaf in _leaves(groups).items()}}
                    constant = {**constant, **phase.after_batch(state)}
            total[:active] += losses
        state = {name: leaf.detach() for name, leaf in {**constant, **_leaves(groups)}.items()}
        finished.append(state)
        trained = {name: torch.cat([part[name] for part in reversed(finished)]) for name in state}
        return trained, total / torch.from_numpy(plan.steps).to(total)

    def _step(
        self,
        phase: Phase,
        groups: list[FlatGroup],
        optimiser: torch.optim.Optimizer,
        constant: Tree,
        received: Tree,
        batch: Batch,
    ) -> Tensor:
        local = {**constant, **_leaves(groups)}
        with self.autocast():
            losses = self.method.task.losses(phase.view(local) if phase.view else local, batch)
        objective = losses if phase.penalty is None else losses + phase.penalty(local, received)
        optimiser.zero_grad()
        objective.sum().backward()
        clip = phase.clip or self.training.clip
        if clip is not None:
            _clip([group.flat for group in groups], clip)
        optimiser.step()
        return losses.detach()

    def autocast(self):
        """bf16 arithmetic where the run asks for it."""
        if self.training.precision == "bf16":
            return torch.autocast(self.population.device.type, torch.bfloat16)
        return nullcontext()

    def _batch(self, plan: Plan, step: int, active: int) -> Batch:
        width = int(plan.widths[step])
        indices = plan.indices[step, :active, :width]
        mask = plan.mask[step, :active, :width]
        crops = None
        if plan.offsets is not None:
            crops = plan.offsets[step, :active, :width].reshape(-1, 2), plan.flips[step, :active, :width].reshape(-1)
        return Batch(
            self.population.images(indices, crops),
            self.population.labels(indices),
            None if mask.all() else torch.from_numpy(np.ascontiguousarray(mask)).to(self.population.device),
        )

    def _optimiser(self, groups: list[FlatGroup], rate: float) -> torch.optim.Optimizer:
        training = self.training
        parameters = []
        for flat in groups:
            group = flat.group
            learning_rate = training.learning_rate if group.learning_rate is None else group.learning_rate
            parameters.append(
                {
                    "params": [flat.flat],
                    "lr": learning_rate * (rate if group.scheduled else 1.0),
                    "weight_decay": training.weight_decay if group.weight_decay is None else group.weight_decay,
                }
            )
        if training.optimizer == "sgd":
            return torch.optim.SGD(parameters, lr=1.0, momentum=training.momentum, fused=True)
        kind = torch.optim.Adam if training.optimizer == "adam" else torch.optim.AdamW
        return kind(parameters, lr=1.0, betas=training.betas, fused=True)

    def _shrink(
        self, old: torch.optim.Optimizer, groups: list[FlatGroup], active: int, rate: float
    ) -> torch.optim.Optimizer:
        """Keep the first `active` clients: their buffers and their optimiser state."""
        states = [old.state.get(group.flat, {}) for group in groups]
        for group in groups:
            group.flat = group.flat.detach()[:active].clone().requires_grad_()
        new = self._optimiser(groups, rate)
        for group, state in zip(groups, states, strict=True):
            new.state[group.flat] = {
                key: value[:active].clone() if torch.is_tensor(value) and value.dim() == 2 else value
                for key, value in state.items()
            }
        return new


def _flat_groups(phase: Phase, local: Tree) -> list[FlatGroup]:
    """The phase's groups with the leaves that each trains."""
    groups, taken = [], set()
    for group in phase.groups:
        names = [name for name in local if name.startswith(group.prefixes)]
        twice = taken.intersection(names)
        if twice:
            raise FedbenchError(f"leaf {min(twice)!r} is in two optimiser groups of one phase")
        taken.update(names)
        if names:
            groups.append(FlatGroup(group, names, local))
    if not groups:
        raise FedbenchError(f"no leaf matches the phase's groups; the local state has {', '.join(local) or 'none'}")
    return groups


def _leaves(groups: list[FlatGroup]) -> Tree:
    return {name: leaf for group in groups for name, leaf in group.leaves().items()}


def _clip(buffers: list[Tensor], limit: float) -> None:
    """Scale each client's gradient to a global norm of at most `limit`, over all buffers together."""
    gradients = [buffer.grad for buffer in buffers if buffer.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(gradient, dim=1) for gradient in gradients]).square().sum(0).sqrt()
    factor = (limit / (norms + 1e-6)).clamp(max=1.0).unsqueeze(1)
    for gradient in gradients:
        gradient.mul_(factor)
