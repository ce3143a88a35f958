"""Draft steps on a CPU: each branch sees the text and its own tokens, and nothing of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from sglang_toolspec.runtime.engine.cpu import draft_attention
from sglang_toolspec.runtime.engine.cpu.draft_attention import (
    CpuDraftStepBackend,
    branch_attention,
    branch_columns,
    decode_backend,
    extend_backend,
)
from tests.attending import HEAD_DIM, Pool, assert_close, attend, random_qkv

SHAPES = pytest.mark.parametrize(("topk", "depth"), [(1, 1), (1, 3), (4, 1), (4, 3)])
WINDOWS = pytest.mark.parametrize("window", [None, 0, 2, 100])


def branch_reference(
    qkv: tuple[Tensor, Tensor, Tensor], depth: int, window: int | None, scale: float
) -> Tensor:
    """Each branch as plain decoding of the prefix and the branch's tokens would see it."""
    query, key, value = qkv
    prefix = len(key) - len(query) * depth
    rows = []
    for branch in range(len(query)):
        first = prefix + branch * depth
        text = [*range(prefix), *range(first, first + depth)]
        visible = text if window is None else text[-window - 1 :]
        rows.append(attend(query[branch], key, value, visible, scale))
    return torch.stack(rows)


@SHAPES
@WINDOWS
@pytest.mark.parametrize("prefix", [0, 1, 9])
def test_a_branch_sees_the_prefix_and_itself(topk: int, depth: int, window: int | None, prefix: int) -> None:
    qkv = random_qkv(topk, prefix + topk * depth, 4, 2)

    out = branch_attention(*qkv, depth, 0.3, window)

    assert_close(out, branch_reference(qkv, depth, window, 0.3))


def test_columns_are_where_the_worker_writes_each_branch() -> None:
    """``per_step_draft_out_cache_loc``: ``[topk, num_steps]`` slots after the sequence, branch by branch."""
    assert branch_columns(5, topk=2, num_steps=3, step=1).tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 9]


def step_backend(pool: Pool, req_to_token: Tensor, topk: int, num_steps: int, step: int) -> Any:
    backend = CpuDraftStepBackend.__new__(CpuDraftStepBackend)  # a real one needs a model runner
    backend.token_to_kv_pool, backend.use_sliding_window_kv_pool = pool, False
    backend.req_to_token_pool = SimpleNamespace(req_to_token=req_to_token)
    backend._topk, backend._num_steps, backend._step = topk, num_steps, step
    return backend


@pytest.mark.parametrize("topk", [1, 3])
@pytest.mark.parametrize("window", [None, -1, 1])
def test_steps_write_their_slots_and_read_those_of_their_branch(topk: int, window: int | None) -> None:
    num_steps, q_heads, kv_heads, scale = 3, 4, 2, 0.3
    prefixes, pool_rows = [4, 0, 7], [2, 0, 1]
    own = [prefix + topk * num_steps for prefix in prefixes]
    slots = torch.randperm(80, generator=torch.Generator().manual_seed(1)).split([*own, 80 - sum(own)])
    requests = [random_qkv(topk, prefix + topk * (num_steps - 1), q_heads, kv_heads) for prefix in prefixes]
    pool, req_to_token = Pool(80, kv_heads), torch.zeros(3, 20, dtype=torch.int32)
    for (_, key, value), row, mine, prefix in zip(requests, pool_rows, slots, prefixes, strict=False):
        req_to_token[row, : len(mine)] = mine
        pool.key[mine[:prefix]], pool.value[mine[:prefix]] = key[:prefix], value[:prefix]
    layer = SimpleNamespace(
        layer_id=0, sliding_window_size=window, tp_q_head_num=q_heads, qk_head_dim=HEAD_DIM,
        v_head_dim=HEAD_DIM, scaling=scale,
    )  # fmt: skip

    for step in range(num_steps - 1):
        backend = step_backend(pool, req_to_token, topk, num_steps, step)
        new = [
            [prefix + branch * (num_steps - 1) + step for branch in range(topk)] for prefix in prefixes
        ]  # of each request's key and value
        written = [
            mine[prefix + branch * num_steps + step]
            for mine, prefix in zip(slots, prefixes, strict=False)
            for branch in range(topk)
        ]
        batch = SimpleNamespace(
            out_cache_loc=torch.stack(written),
            req_pool_indices=torch.tensor(pool_rows),
            seq_lens=torch.tensor(prefixes),
        )
        q = torch.cat([query for query, _, _ in requests])
        k, v = (torch.cat([r[i][rows] for r, rows in zip(requests, new, strict=True)]) for i in (1, 2))

        out = backend.forward_decode(q.flatten(1), k, v, layer, batch)

        expected = []
        for (query, key, value), prefix in zip(requests, prefixes, strict=True):
            seen = branch_columns(prefix, topk, num_steps - 1, step)
            qkv = query, key[seen], value[seen]
            expected.append(branch_reference(qkv, step + 1, None if window == -1 else window, scale))
        assert_close(out, torch.cat(expected).flatten(1))


@pytest.mark.parametrize("make", [decode_backend, extend_backend])
def test_backends_of_other_attention_are_sglangs_own(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    monkeypatch.setattr(draft_attention, "attention_backends", lambda: ("torch_native", "torch_native"))
    factory = SimpleNamespace(draft_attn_backend="triton")

    assert make(lambda factory: "SGLang's", factory) == "SGLang's"


def test_a_single_step_needs_no_draft_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_attention, "attention_backends", lambda: ("torch_native", "torch_native"))
    factory = SimpleNamespace(draft_attn_backend=None, speculative_num_steps=1)

    assert decode_backend(lambda factory: pytest.fail("SGLang's own was asked"), factory) is None
