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
    extend_attention,
    tree_attention,
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

        out = tree_attention(*qkv, mask_of(parents, nodes), scale, window)

        assert_close(out[:tree_size], tree_reference(qkv, parents, window, scale)[:tree_size])


@PREFIXES
@WINDOWS
def test_a_chain_attends_as_a_causal_extend_does(prefix: int, window: int | None) -> None:
    nodes = 6
    qkv = random_qkv(nodes, prefix + nodes, 4, 2)
    chain = mask_of([-1, *range(nodes - 1)], nodes)

    out = tree_attention(*qkv, chain, None, window)

    assert_close(out, extend_attention(*qkv, None, True, window).double())


@HEADS
@PREFIXES
@WINDOWS
@pytest.mark.parametrize("rows", [1, 7])
def test_extend_is_causal_softmax_over_the_window(
    q_heads: int, kv_heads: int, prefix: int, window: int | None, rows: int
) -> None:
    qkv = random_qkv(rows, prefix + rows, q_heads, kv_heads)

    out = extend_attention(*qkv, None, True, window)

    assert_close(out, causal_reference(qkv, window, 1 / math.sqrt(HEAD_DIM)))


def test_an_encoder_layer_sees_every_key() -> None:
    query, key, value = random_qkv(4, 6, 2, 2)

    out = extend_attention(query, key, value, 0.5, causal=False, window=None)

    expected = [attend(q, key, value, list(range(6)), 0.5) for q in query]
    assert_close(out, torch.stack(expected))


@pytest.mark.parametrize("window", [None, -1, 2])
@pytest.mark.parametrize("verify", [True, False], ids=["verify", "prefill"])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_backend_attends_each_request_of_a_batch_over_its_own_slots(
    size: int, window: int | None, verify: bool
) -> None:
    rng, nodes, q_heads, kv_heads, scale = random.Random(size), 5, 4, 2, 0.3
    prefixes, pool_rows = [3, 0, 11, 1, 7, 2, 0, 14][:size], rng.sample(range(10), size)
    totals = [prefix + nodes for prefix in prefixes]
    forest = [random_parents(rng, nodes) for _ in prefixes]
    requests = [random_qkv(nodes, total, q_heads, kv_heads) for total in totals]
    pool, req_to_token = Pool(100, kv_heads), torch.zeros(10, 20, dtype=torch.int32)
    mixed = torch.randperm(100, generator=torch.Generator().manual_seed(1))
    slots = mixed.split([*totals, 100 - sum(totals)])
    for (_, key, value), row, own, prefix in zip(requests, pool_rows, slots, prefixes, strict=False):
        req_to_token[row, : len(own)] = own
        pool.key[own[:prefix]], pool.value[own[:prefix]] = key[:prefix], value[:prefix]
    backend = CpuTreeAttnBackend.__new__(CpuTreeAttnBackend)  # a real one needs a model runner
    backend.token_to_kv_pool, backend.swa_out_cache_loc = pool, None
    backend.req_to_token_pool = SimpleNamespace(req_to_token=req_to_token)
    batch = SimpleNamespace(
        encoder_lens=None,
        forward_mode=ForwardMode.TARGET_VERIFY if verify else ForwardMode.EXTEND,
        out_cache_loc=torch.cat([own[-nodes:] for own in slots[:size]]),
        req_pool_indices=torch.tensor(pool_rows),
        # SGLang counts the new tokens of a prefill, but not the nodes of a verify step.
        seq_lens=torch.tensor(prefixes if verify else totals),
        extend_seq_lens=torch.tensor([nodes] * size),
        spec_info=SimpleNamespace(
            draft_token_num=nodes,
            custom_mask=torch.stack([mask_of(tree, nodes) for tree in forest]).flatten(),
        ),
    )
    layer = SimpleNamespace(
        is_cross_attention=False, attn_type=AttentionType.DECODER, layer_id=0, sliding_window_size=window,
        tp_q_head_num=q_heads, qk_head_dim=HEAD_DIM, v_head_dim=HEAD_DIM, scaling=scale,
    )  # fmt: skip
    new_q, new_k, new_v = (torch.cat([qkv[i][-nodes:] for qkv in requests]) for i in range(3))

    out = backend.forward_extend(new_q.flatten(1), new_k, new_v, layer, batch)

    reach = None if window == -1 else window
    expected = [
        tree_reference(qkv, tree, reach, scale) if verify else causal_reference(qkv, reach, scale)
        for qkv, tree in zip(requests, forest, strict=True)
    ]
    assert_close(out, torch.cat(expected).flatten(1))
