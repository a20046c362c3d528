"""PowerSGD: low-rank factors of every matrix, in an exchange of two steps.

Vogels et al., "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization" (NeurIPS 2019),
algorithm 1, with error feedback and warm start. For a matrix M_k [n, m] (message plus residual of client k):

    up    P_k = M_k Q          server: P = orthonormal(mean P_k)
    down  P
    up    Q_k = M_k^T P        server: mean Q_k is the next round's Q
    everyone decodes P (mean Q_k)^T, and client k keeps M_k - P Q_k^T

Each client's residual is against its own Q_k, so that nothing of its message is lost or sent twice when cohorts change.
Another reading, PyTorch's, is to subtract P (mean Q_k)^T; where all clients take part in every round the means agree.

Convolutions are matrices [out, in * kh * kw]. Tensors of one dimension, and those whose factors would be no
smaller, are sent whole. Q starts as a Gaussian that both ends draw from the tensor's name.

Bytes (float32). Up: P_k, Q_k and whole tensors. Down within a round: Q, which its clients need before they begin (but
in the first round), and P. So a client of the last round holds P already and is sent Q for the next exchange; all that
is left of that round's change are the whole tensors. A client that missed rounds gets the dense state and Q.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.channels._values import require_finite
from fedbench.channels.channel import Channel, Delivery, Streams, dense_bytes
from fedbench.errors import FedbenchError
from fedbench.lazy import torch
from fedbench.options import PositiveInt, options
from fedbench.randomness import stream
from fedbench.registry import CHANNELS
from fedbench.tree import weighted_mean

if TYPE_CHECKING:
    from torch import Tensor

    from fedbench.tree import Tree

ROUNDS = "rounds"


@options
class PowerSGDOptions:
    """Size of the factors."""

    rank: PositiveInt = 2
    """Columns of the two factors that stand for a matrix; more cost more bytes and lose less (r)."""


@CHANNELS.register("powersgd", PowerSGDOptions)
class PowerSGD(Channel):
    """Low-rank factors of every matrix, warm-started and with error feedback of its own."""

    options: PowerSGDOptions

    @staticmethod
    def objection(options: PowerSGDOptions, error_feedback: bool) -> str | None:
        return "powersgd has its own error feedback; drop error_feedback" if error_feedback else None

    @property
    def factored(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of the leaves that are sent as factors."""
        shapes = {
            name: (len(leaf), leaf[0].numel()) for name, leaf in self.template.items() if leaf.dim() > 1 and len(leaf)
        }
        return {name: (n, m) for name, (n, m) in shapes.items() if self.options.rank * (n + m) < n * m}

    def init_memory(self) -> Tree:
        return {name: torch.zeros(self.template[name].shape) for name in self.factored}

    def init_server(self) -> Tree:
        right = {
            f"right.{name}": torch.from_numpy(
                stream(0, "powersgd", name).standard_normal((m, self.options.rank), "float32")
            )
            for name, (_, m) in self.factored.items()
        }
        return {ROUNDS: torch.zeros((), dtype=torch.int64), **right}

    def uplink(
        self, messages: Tree, weights: Tensor, memory: Tree, server: Tree, streams: Streams
    ) -> tuple[Delivery, Tree]:
        require_finite(messages, "powersgd")
        factored, clients = self.factored, len(weights)
        whole = {name: leaf for name, leaf in messages.items() if name not in factored}
        mean, residual = weighted_mean(whole, weights), {}
        new_server = {ROUNDS: server[ROUNDS] + 1}
        up, first, second = dense_bytes(whole) // clients, 0, 0
        for name, (rows, columns) in factored.items():
            wanted = (messages[name] + memory[name]).reshape(clients, rows, columns)
            projected = _mean(wanted @ server[f"right.{name}"], weights)
            _require_representable(name, wanted, projected)
            left = orthonormal(projected)
            right = wanted.mT @ left  # [K, columns, rank], each client's own
            mean_right = _mean(right, weights)
            mean[name] = (left @ mean_right.T).view(self.template[name].shape)
            residual[name] = (wanted - left @ right.mT).view(messages[name].shape)
            _require_representable(name, mean_right, mean[name], residual[name])
            new_server[f"right.{name}"] = mean_right
            first += dense_bytes({"": left})
            second += dense_bytes({"": mean_right})
        down = first + (second if int(server[ROUNDS]) else 0)
        delivery = Delivery(
            {name: mean[name] for name in messages},
            residual,
            [up + first + second] * clients,
            [down] * clients,
            dense_bytes(whole) // clients,
        )
        return delivery, new_server


def orthonormal(matrix: Tensor) -> Tensor:
    """An orthonormal basis [n, r] of the columns of a matrix, r <= n; arbitrary directions where they are dependent.

    QR in float64: one column is then simply normalised, and dependent columns do no harm.
    """
    return torch.linalg.qr(matrix.double()).Q.to(matrix.dtype)


def _require_representable(name: str, *values: Tensor) -> None:
    if not all(value.isfinite().all() for value in values):
        raise FedbenchError(
            f"channel powersgd: message leaf {name!r} is so large that its factors exceed float32; "
            "lower the learning rate"
        )


def _mean(stacked: Tensor, weights: Tensor) -> Tensor:
    return torch.tensordot(weights.to(stacked), stacked, dims=1)
