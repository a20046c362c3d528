"""Local training of many clients at once.

The trainable leaves of a chunk of K clients are stacked as [K, ...]; an ordinary torch optimiser on them
trains K independent clients, because its updates are elementwise. Clipping, penalties and the number of
steps are per client. A client that runs out of batches leaves the stack together with its optimiser state.
K = 1 is the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedbench.engine.batches import BatchPlan, local_steps, make_plan
from fedbench.engine.gradients import GradientSums, clip_each
from fedbench.engine.groups import group_optimizer, grouped
from fedbench.engine.interrupt import StopNow
from fedbench.methods.method import Group, LocalResult, Method, Phase
from fedbench.models.task import Batch
from fedbench.tree import Tree, add, concatenate, rows

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.config.entries import Training
    from fedbench.engine.population import Population


@dataclass(frozen=True)
class Trained:
    """A chunk's local training.

    Attributes
    ----------
    result : what the method makes its message from
    losses : each client's mean loss [K]
    gradients : sums of the followed leaves' gradients; {} where there are none
    """

    result: LocalResult
    losses: Tensor
    gradients: Tree


@dataclass(frozen=True)
class PhasesResult:
    """What one phase, or a participation's phases one after another, made of K clients.

    Attributes
    ----------
    local : stacked local state
    losses : mean loss of the last phase [K]
    steps : steps of the first phase [K]
    gradients : sums of the followed leaves' gradients over all phases
    """

    local: Tree
    losses: Tensor
    steps: Tensor
    gradients: Tree


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
        samples = len(self.population.train_samples[client])
        return local_steps(samples, self.training.batch_size, self.training.local_epochs, self.training.local_steps)

    def train(
        self, clients: Sequence[int], received: Tree, private: Tree, round_number: int, lr_factor: float
    ) -> Trained:
        """One participation of `clients`.

        Parameters
        ----------
        received, private : stacked trees [K, ...], in the order of `clients`
        lr_factor : what the round multiplies learning rates with, in (0, 1]
        """
        phases, trainers = self.method.phases(), self.population.train_samples
        done = self._run_phases(phases, clients, trainers, round_number, received, private, lr_factor)
        result = LocalResult(received, done.local, done.steps, lr_factor * self.training.learning_rate)
        return Trained(result, done.losses, done.gradients)

    def fine_tune(
        self, phases: Sequence[Phase], clients: Sequence[int], received: Tree, private: Tree
    ) -> tuple[Tree, Tree]:
        """What `clients` make of their weights just for evaluation; nothing of it is kept.

        The draws do not depend on the round, so that evaluating more often changes nothing.

        Returns
        -------
        (shared, private) leaves, stacked, as :meth:`Method.personal` takes them
        """
        train = self.population.train
        local = self._run_phases(phases, clients, train, "evaluation", received, private, 1.0).local
        return {name: local[name] for name in received}, {name: local[name] for name in private}

    def _run_phases(
        self,
        phases: Sequence[Phase],
        clients: Sequence[int],
        samples: Sequence[np.ndarray],
        key: int | str,
        received: Tree,
        private: Tree,
        lr_factor: float,
    ) -> PhasesResult:
        """Train all phases."""
        device, local = self.population.device, {**received, **private}
        # A phase may count epochs where the run counts steps, so that its clients leave the stack at different times.
        order = sorted(range(len(clients)), key=lambda position: -len(samples[clients[position]]))
        back = None
        if order != list(range(len(clients))):
            index = torch.tensor(order, device=device)
            received, local, back = rows(received, index), rows(local, index), torch.argsort(index)
        clients = [clients[position] for position in order]
        done = None
        for number, phase in enumerate(phases):
            plan = self._plan(clients, samples, phase, (key, number))
            new = self._run_phase(phase, plan, local if done is None else done.local, received, lr_factor)
            if done is not None:
                gradients = add(done.gradients, new.gradients) if done.gradients else new.gradients
                new = replace(new, steps=done.steps, gradients=gradients)
            done = new
        if back is None:
            return done
        return PhasesResult(rows(done.local, back), done.losses[back], done.steps[back], rows(done.gradients, back))

    def _plan(
        self, clients: Sequence[int], samples: Sequence[np.ndarray], phase: Phase, key: tuple[int | str, int]
    ) -> BatchPlan:
        return make_plan(
            clients,
            [samples[client] for client in clients],
            self.training.batch_size,
            phase.epochs or self.training.local_epochs,
            None if phase.epochs else self.training.local_steps,
            self.seed,
            key,
            self.population.pad if self.training.augmentation == "crop-flip" else None,
        )

    def _run_phase(self, phase: Phase, plan: BatchPlan, local: Tree, received: Tree, lr_factor: float) -> PhasesResult:
        """Train the phase's leaves."""
        clients = len(plan.steps)
        if phase.before is not None:
            local = {**local, **phase.before(local)}
        groups = grouped(phase, local)
        names = [name for _, members in groups for name in members]
        leaves = {name: local[name].clone(memory_format=torch.contiguous_format).requires_grad_() for name in names}
        constant = {name: leaf for name, leaf in local.items() if name not in leaves}
        optimizer = group_optimizer(self.training, groups, leaves, lr_factor)
        finished: list[Tree] = []  # clients that left, last ones first
        total = torch.zeros(clients, device=self.population.device)
        followed = [name for name in names if name.startswith(self.method.followed_leaves)]
        gradients = GradientSums(followed, clients, self.population.device)
        active = clients
        for step in range(len(plan.active)):
            if self.stop():
                raise StopNow
            if plan.active[step] < active:
                remaining = int(plan.active[step])
                state = {**constant, **leaves}
                finished.append({name: leaf.detach()[remaining:active].clone() for name, leaf in state.items()})
                active = remaining
                constant, received = rows(constant, slice(active)), rows(received, slice(active))
                kept = {name: leaf.detach()[:active].clone().requires_grad_() for name, leaf in leaves.items()}
                optimizer = self._shrink(optimizer, groups, leaves, kept, lr_factor)
                leaves = kept
            batch = self._batch(plan, step, active)
            for _ in range(phase.repeats):
                losses = self._step(phase, leaves, optimizer, constant, received, batch, gradients)
            if phase.after_batch is not None:
                with torch.no_grad():
                    constant = {**constant, **phase.after_batch({**constant, **_detached(leaves)})}
            total[:active] += losses
        state = {**constant, **_detached(leaves)}
        finished.append({name: state[name] for name in local})
        steps = torch.from_numpy(plan.steps).to(total.device)
        return PhasesResult(concatenate(reversed(finished)), total / steps.to(total), steps, gradients.tree())

    def _step(
        self,
        phase: Phase,
        leaves: Tree,
        optimizer: torch.optim.Optimizer,
        constant: Tree,
        received: Tree,
        batch: Batch,
        gradients: GradientSums,
    ) -> Tensor:
        local = {**constant, **leaves}
        with self.autocast():
            losses = self.method.task.losses(phase.view(local) if phase.view else local, batch)
        objective = losses if phase.penalty is None else losses + phase.penalty(local, received)
        optimizer.zero_grad()
        objective.sum().backward()
        gradients.add(leaves)
        clip = phase.clip or self.training.clip
        if clip is not None:
            clip_each(leaves.values(), clip)
        optimizer.step()
        return losses.detach()

    def autocast(self):
        """bf16 arithmetic where the run asks for it."""
        if self.training.precision == "bf16":
            return torch.autocast(self.population.device.type, torch.bfloat16)
        return nullcontext()

    def _batch(self, plan: BatchPlan, step: int, active: int) -> Batch:
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

    def _shrink(
        self,
        old: torch.optim.Optimizer,
        groups: list[tuple[Group, list[str]]],
        leaves: Tree,
        kept: Tree,
        lr_factor: float,
    ) -> torch.optim.Optimizer:
        """An optimiser for the clients that go on, with their part of the old one's state."""
        new = group_optimizer(self.training, groups, kept, lr_factor)
        for name, leaf in leaves.items():
            active = len(kept[name])
            new.state[kept[name]] = {
                # moments have the leaf's shape; the step count is one number, the same for all clients
                key: value[:active].clone() if torch.is_tensor(value) and value.shape == leaf.shape else value
                for key, value in old.state.get(leaf, {}).items()
            }
        return new


def _detached(leaves: Tree) -> Tree:
    return {name: leaf.detach() for name, leaf in leaves.items()}
