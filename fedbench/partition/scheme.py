"""Drawing an assignment of training samples to clients, and repairing clients that came out too small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbench.errors import FedbenchError
from fedbench.randomness import stream

# Draws before repair: enough for mild skew to come out right by chance, few enough to stay fast.
DRAWS = 10


@dataclass(frozen=True)
class Pool:
    """The training samples that a scheme hands out.

    Attributes
    ----------
    labels, domains : int64 [n]
    groups : int64 [n], natural client of each sample, or None
    class_names, domain_names : tuple of str; public classes and domains are named too but have no samples here
    where : the config entry, for messages
    group_names : tuple of str, the natural clients' names, by the numbers in `groups`
    """

    labels: np.ndarray
    domains: np.ndarray
    groups: np.ndarray | None
    class_names: tuple[str, ...]
    domain_names: tuple[str, ...]
    where: str
    group_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    def require_domains(self) -> np.ndarray:
        """The domains that have samples; an error where the data set has only one."""
        if len(self.domain_names) < 2:
            raise FedbenchError(
                f"{self.where}: this scheme needs a data set with domains, but this one has a single domain; "
                "use a data set with domains or another scheme, for example dirichlet"
            )
        return np.unique(self.domains)


@dataclass
class Draw:
    """One assignment, with what a repair must respect.

    Attributes
    ----------
    clients : int64 [n], the client of each sample
    domains : int64 [K], the domain that each client is bound to, or None
    classes : bool [K, C], the classes that each client may hold, or None
    names : tuple of K str, the clients' names where samples belong to them by nature and cannot move; else None
    """

    clients: np.ndarray
    domains: np.ndarray | None = None
    classes: np.ndarray | None = None
    names: tuple[str, ...] | None = None

    @property
    def movable(self) -> bool:
        """Whether a repair may move samples."""
        return self.names is None

    def admits(self, pool: Pool, client: int) -> np.ndarray:
        """Which samples of the pool this client may hold, bool [n]."""
        mask = np.ones(len(pool), dtype=bool)
        if self.domains is not None:
            mask &= pool.domains == self.domains[client]
        if self.classes is not None:
            mask &= self.classes[client][pool.labels]
        return mask


# A scheme: (its options, the pool, number of clients, generator) -> an assignment of every sample of the pool.
Scheme = Callable[[Any, Pool, int, np.random.Generator], Draw]


def draw(
    scheme: Scheme, options: Any, pool: Pool, clients: int, least: int, seed: int, name: str, max_moved: float = 1.0
) -> tuple[Draw, int, int]:
    """Draw until every client has `least` samples, at most DRAWS times; then repair the best draw.

    Parameters
    ----------
    max_moved : share of the pool that repair may move

    Returns
    -------
    the draw, how many draws were made, how many samples the repair moved

    Raises
    ------
    FedbenchError
        Naming the constraint, if there are too few samples, no admissible sample is left to move, or too many moved.
    """
    if clients > len(pool):
        raise FedbenchError(
            f"{pool.where}.clients: {clients} clients but {len(pool)} training samples; ask for fewer clients"
        )
    if clients * least > len(pool):
        raise FedbenchError(
            f"{pool.where}.min_samples: {clients} clients with at least {least} each need {clients * least} training "
            f"samples, but there are {len(pool)}; lower 'min_samples' or 'clients'"
        )
    best, best_size = None, -1
    for number in range(1, DRAWS + 1):
        candidate = scheme(options, pool, clients, stream(seed, "partition", name, number))
        smallest = int(np.bincount(candidate.clients, minlength=clients).min())
        if smallest >= least:
            return candidate, number, 0
        if smallest > best_size:
            best, best_size = candidate, smallest
        if not candidate.movable:
            break  # nothing random about it
    moved = repair(best, pool, clients, least, stream(seed, "partition-repair", name))
    if moved > max_moved * len(pool):
        raise FedbenchError(
            f"{pool.where}.max_moved: giving each of {clients} clients {least} samples (min_samples) moves {moved:,} "
            f"of {len(pool):,} training samples ({moved / len(pool):.1%}), more than {max_moved:.1%}: no longer what "
            f"{name!r} says; lower 'clients' or 'min_samples', choose milder skew, or raise 'max_moved'"
        )
    return best, number, moved


def repair(draw: Draw, pool: Pool, clients: int, least: int, rng: np.random.Generator) -> int:
    """Move single samples from the largest clients to those below `least`, in place; returns how many moved.

    A sample moves only where the scheme admits it (same domain, allowed class), and no donor falls below `least`. Every
    move fills one missing place, so there are at most ``clients * least`` of them.
    """
    sizes = np.bincount(draw.clients, minlength=clients)
    moved = 0
    for client in np.flatnonzero(sizes < least):
        if draw.names is not None:
            raise FedbenchError(
                f"{pool.where}.min_samples: natural client {draw.names[client]} has {sizes[client]} training samples, "
                f"fewer than {least}; lower 'min_samples' (at least 2) or remove that client from the data"
            )
        admitted = draw.admits(pool, client)
        while sizes[client] < least:
            available = admitted & (sizes > least)[draw.clients]
            donors = np.bincount(draw.clients[available], minlength=clients) > 0
            if not donors.any():
                raise FedbenchError(
                    f"{pool.where}.min_samples: client {client} has {sizes[client]} training samples and no other "
                    f"client can give it one within the scheme's limits; lower 'min_samples' ({least}) or 'clients'"
                )
            donor = int(np.argmax(np.where(donors, sizes, -1)))
            sample = rng.choice(np.flatnonzero(available & (draw.clients == donor)))
            draw.clients[sample] = client
            sizes[donor] -= 1
            sizes[client] += 1
            moved += 1
    return moved
