"""Plain attention in float64, and what the CPU's attention backends are tested with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

HEAD_DIM = 8


def random_qkv(rows: int, total: int, q_heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows * 1000 + total)
    shapes = (rows, q_heads), (total, kv_heads), (total, kv_heads)
    query, key, value = (torch.randn(*shape, HEAD_DIM, generator=generator) for shape in shapes)
    return query, key, value


def attend(query: Tensor, key: Tensor, value: Tensor, visible: list[int], scale: float) -> Tensor:
    """One query over the keys at ``visible``: ``[q_heads, head_dim]``, in float64."""
    group = query.shape[0] // key.shape[1]
    out = []
    for head in range(query.shape[0]):
        keys, values = key[visible, head // group].double(), value[visible, head // group].double()
        out.append(torch.softmax(keys @ query[head].double() * scale, dim=0) @ values)
    return torch.stack(out)


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)


class Pool:
    """One layer's KV buffers; stores what a forward pass hands over."""

    def __init__(self, slots: int, heads: int):
        self.key, self.value = torch.zeros(2, slots, heads, HEAD_DIM)

    def set_kv_buffer(self, layer: Any, location: Any, key: Tensor, value: Tensor) -> None:
        self.key[location.loc], self.value[location.loc] = key, value

    def get_key_buffer(self, layer_id: int) -> Tensor:
        return self.key

    def get_value_buffer(self, layer_id: int) -> Tensor:
        return self.value
