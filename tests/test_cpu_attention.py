"""CPU attention against a float64 softmax over exactly the keys that a query may see."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
import torch
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from torch import Tensor

from sglang_toolspec.runtime.engine.cpu.attention import (
    CpuTreeAttnBackend,
    attention,
    extend_sight,
    tree_sight,
)
from tests.attending import HEAD_DIM, Pool, assert_close, attend, random_qkv
from tests.random_trees import mask_of, path_of, random_parents

HEADS = pytest.mark.parametrize(("q_heads", "kv_heads"), [(2, 2), (4, 2), (6, 1)])
PREFIXES = pytest.mark.parametrize("prefix", [0, 1, 5, 17])
WINDOWS = pytest.mark.parametrize("window", [None, 0, 1, 3, 100])


def tree_reference(
    qkv: tuple[Tensor, Tensor, Tensor], parents: list[int], window: int | None, scale: float
) -> Tensor:
    """Each node as the last token of the text prefix + path, which is how plain decoding sees it."""
    query, key, value = qkv
    prefix = len(key) - len(query)
    rows = []
    for node in range(len(query)):
        path = path_of(parents, node) if node < len(parents) else [node]
        text = [*range(prefix), *(prefix + i for i in path)]
        visible = text if window is None else text[-window - 1 :]
        rows.append(attend(query[node], key, value, visible, scale))
    return torch.stack(rows)


def causal_reference(qkv: tuple[Tensor, Tensor, Tensor], window: int | None, scale: float) -> Tensor:
    query, key, value = qkv
    prefix = len(key) - len(query)
    rows = []
    for i in range(len(query)):
        text = list(range(prefix + i + 1))
        visible = text if window is None else text[-window - 1 :]
        rows.append(attend(query[i], key, value, visible, scale))
    return torch.stack(rows)


@HEADS
@PREFIXES
@WINDOWS
def test_a_tree_node_sees_the_prefix_and_its_own_path(
    q_heads: int, kv_heads: int, prefix: int, window: int | None
) -> None:
    rng, nodes, scale = random.Random(prefix), 9, 0.3
    for tree_size in (1, 5, nodes, nodes):
        parents = random_parents(rng, tree_size)
        qkv = random_qkv(nodes, prefix + nodes, q_heads, kv_heads)

        out = attention(*qkv, tree_sight(mask_of(parents, nodes), prefix + nodes, window), scale)

        assert_close(out[:tree_size], tree_reference(qkv, parents, window, scale)[:tree_size])


@PREFIXES
@WINDOWS
def test_a_chain_attends_as_a_causal_extend_does(prefix: int, window: int | None) -> None:
    nodes = 6
    qkv = random_qkv(nodes, prefix + nodes, 4, 2)
    chain = mask_of([-1, *range(nodes - 1)], nodes)

    out = attention(*qkv, tree_sight(chain, prefix + nodes, window), None)

    extend = extend_sight(nodes, prefix + nodes, True, window)
    assert_close(out, attention(*qkv, extend, None).double())


@HEADS
@PREFIXES
@WINDOWS
@pytest.mark.parametrize("rows", [1, 7])
def test_extend_is_causal_softmax_over_the_window(
    q_heads: int, kv_heads: int, prefix: int, window: int | None, rows: int
) -> None:
    qkv = random_qkv(rows, prefix + rows, q_heads, kv_heads)

    out = attention(*qkv, extend_sight(rows, prefix + rows, True, window), None)

    assert_close(out, causal_reference(qkv, window, 1 / math.sqrt(HEAD_DIM)))


def test_an_encoder_layer_sees_every_key() -> None:
    query, key, value = random_qkv(4, 6, 2, 2)

    out = attention(query, key, value, extend_sight(4, 6, causal=False, window=None), 0.5)

    expected = [attend(q, key, value, list(range(6)), 0.5) for q in query]
    assert_close(out, torch.stack(expected))


Requests = list[tuple[Tensor, Tensor, Tensor]]
NODES, Q_HEADS, KV_HEADS, SCALE = 5, 4, 2, 0.3


class Batch(SimpleNamespace):
    """Stands in for a ``ForwardBatch``, which may be weakly referred to."""


def backend_over(slots: int) -> CpuTreeAttnBackend:
    backend = CpuTreeAttnBackend.__new__(CpuTreeAttnBackend)  # a real one needs a model runner
    backend.token_to_kv_pool, backend.use_sliding_window_kv_pool = Pool(slots, KV_HEADS), False
    backend.req_to_token_pool = SimpleNamespace(req_to_token=torch.zeros(10, 20, dtype=torch.int32))
    return backend


def batch_of(
    backend: CpuTreeAttnBackend, requests: Requests, forest: list[list[int]], verify: bool, seed: int
) -> Batch:
    """Puts what is known of ``requests`` before their new tokens into mixed slots."""
    totals = [len(key) for _, key, _ in requests]
    pool_rows = random.Random(seed).sample(range(10), len(requests))
    mixed = torch.randperm(100, generator=torch.Generator().manual_seed(seed))
    slots = mixed.split([*totals, 100 - sum(totals)])
    table, pool = backend.req_to_token_pool.req_to_token, backend.token_to_kv_pool
    for (_, key, value), row, own in zip(requests, pool_rows, slots, strict=False):
        table[row, : len(own)] = own
        pool.key[own[:-NODES]], pool.value[own[:-NODES]] = key[:-NODES], value[:-NODES]
    return Batch(
        encoder_lens=None,
        forward_mode=ForwardMode.TARGET_VERIFY if verify else ForwardMode.EXTEND,
        out_cache_loc=torch.cat([own[-NODES:] for own in slots[: len(requests)]]),
        req_pool_indices=torch.tensor(pool_rows),
        # SGLang counts the new tokens of a prefill, but not the nodes of a verify step.
        seq_lens=torch.tensor([total - NODES * verify for total in totals]),
        extend_seq_lens=torch.tensor([NODES] * len(requests)),
        spec_info=SimpleNamespace(
            draft_token_num=NODES,
            custom_mask=torch.stack([mask_of(tree, NODES) for tree in forest]).flatten(),
        ),
    )


def layer_with(window: int | None, attn_type: AttentionType = AttentionType.DECODER) -> SimpleNamespace:
    return SimpleNamespace(
        is_cross_attention=False, attn_type=attn_type, layer_id=0, sliding_window_size=window,
        tp_q_head_num=Q_HEADS, qk_head_dim=HEAD_DIM, v_head_dim=HEAD_DIM, scaling=SCALE,
    )  # fmt: skip


def extended(backend: CpuTreeAttnBackend, requests: Requests, layer: SimpleNamespace, batch: Batch) -> Tensor:
    new_q, new_k, new_v = (torch.cat([qkv[i][-NODES:] for qkv in requests]) for i in range(3))
    return backend.forward_extend(new_q.flatten(1), new_k, new_v, layer, batch)


def drawn(rng: random.Random, prefixes: list[int]) -> tuple[Requests, list[list[int]]]:
    requests = [random_qkv(NODES, prefix + NODES, Q_HEADS, KV_HEADS) for prefix in prefixes]
    return requests, [random_parents(rng, NODES) for _ in prefixes]


@pytest.mark.parametrize("verify", [True, False], ids=["verify", "prefill"])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_backend_attends_each_request_of_a_batch_over_its_own_slots(size: int, verify: bool) -> None:
    requests, forest = drawn(random.Random(size), [3, 0, 11, 1, 7, 2, 0, 14][:size])
    backend = backend_over(100)
    batch = batch_of(backend, requests, forest, verify, seed=size)
    backend.init_forward_metadata(batch)

    for window in (None, 2, -1):  # as layers of one model that differ
        out = extended(backend, requests, layer_with(window), batch)

        reach = None if window == -1 else window
        expected = [
            tree_reference(qkv, tree, reach, SCALE) if verify else causal_reference(qkv, reach, SCALE)
            for qkv, tree in zip(requests, forest, strict=True)
        ]
        assert_close(out, torch.cat(expected).flatten(1))


@pytest.mark.parametrize("announced", [True, False])
def test_the_next_step_sees_its_own_trees(announced: bool) -> None:
    rng, backend = random.Random(3), backend_over(100)
    for step, prefix in enumerate((2, 9, 9)):
        requests, forest = drawn(rng, [prefix, 4])
        batch = batch_of(backend, requests, forest, True, seed=step)
        if announced or step == 0:
            backend.init_forward_metadata(batch)

        out = extended(backend, requests, layer_with(None), batch)

        expected = [tree_reference(*pair, None, SCALE) for pair in zip(requests, forest, strict=True)]
        assert_close(out, torch.cat(expected).flatten(1))
