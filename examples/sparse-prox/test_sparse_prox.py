"""The method's own test: one penalty by hand, and what every method has to keep to."""

import sparse_prox
import torch

from fedbench.testing import MethodCase, contract

test_contract = contract(MethodCase("sparse-prox", {"mu": 0.1}))


def test_penalty_is_the_absolute_distance():
    method, _ = MethodCase("sparse-prox", {"mu": 0.1}).make()
    assert isinstance(method, sparse_prox.SparseProx)
    received = {"a": torch.zeros(2, 3), "b": torch.ones(2, 1)}
    local = {"a": torch.tensor([[1.0, -2.0, 0.0], [0.0, 0.0, 0.5]]), "b": torch.tensor([[1.0], [3.0]])}
    (phase,) = method.phases()
    torch.testing.assert_close(phase.penalty(local, received), torch.tensor([0.3, 0.25]))
