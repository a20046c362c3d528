"""x -> U x for a tall U that exists one chunk of rows at a time, forwards and backwards."""

import torch
from torch import Tensor


class ChunkedProduct(torch.autograd.Function):
    """``x [K, r] -> x U^T [K, P]`` where `chunks()` yields U's rows in order, [rows, r] at a time.

    The gradient, ``g U = sum over chunks of g_chunk U_chunk``, goes over the chunks again instead of keeping them.
    """

    @staticmethod
    def forward(context, x: Tensor, chunks, size: int) -> Tensor:
        context.chunks = chunks
        out = x.new_empty(len(x), size)
        start = 0
        for chunk in chunks():
            out[:, start : start + len(chunk)] = x @ chunk.T
            start += len(chunk)
        return out

    @staticmethod
    def backward(context, gradient: Tensor) -> tuple[Tensor, None, None]:
        total = gradient.new_zeros(len(gradient), 0)
        start = 0
        for chunk in context.chunks():
            part = gradient[:, start : start + len(chunk)] @ chunk
            total = total + part if start else part
            start += len(chunk)
        return total, None, None
