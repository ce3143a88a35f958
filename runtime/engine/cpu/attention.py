"""Attention for SGLang on a CPU: tree verification, and prefill without padding.

SGLang's ``torch_native`` backend has no tree mask, and pads the queries of an extend
to the whole sequence length. This subclass attends with exactly the rows that are
asked for. It is registered under the same name by ``hooks.py`` when the CPU engine is on.
What the queries see is worked out once a step, for all layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class Sight(NamedTuple):
    """The keys that queries see: those of ``mask``, bool ``[queries, keys]``; without one all, or with
    ``is_causal`` those up to their own."""

    mask: Tensor | None = None
    is_causal: bool = False


ALL = Sight()


def tree_sight(tree_mask: Tensor, keys: int, window: int | None = None) -> Sight:
    """Of the nodes of one draft tree, the last of ``keys``: each sees the prefix and its own path from the
    root, as far as ``window`` reaches.

    Args:
        tree_mask: bool ``[nodes, nodes]``, true where column is the row or its ancestor.
        window: SGLang's ``sliding_window_size``: how far back a node sees besides itself.
    """
    nodes, device = len(tree_mask), tree_mask.device
    prefix = keys - nodes
    mask = torch.ones(nodes, keys, dtype=torch.bool, device=device)
    mask[:, prefix:] = tree_mask
    if window is not None:
        node_pos = prefix + tree_mask.sum(-1) - 1
        key_pos = torch.cat((torch.arange(prefix, device=device), node_pos))
        mask &= key_pos >= node_pos[:, None] - window
    return Sight(mask)


def extend_sight(rows: int, keys: int, causal: bool, window: int | None, device: Any = None) -> Sight:
    """Of the last ``rows`` positions of a sequence of ``keys``; ``window`` as in ``tree_sight``."""
    if not causal or (rows == 1 and window is None):
        return ALL
    if rows == keys and window is None:
        return Sight(is_causal=True)
    q_pos = torch.arange(keys - rows, keys, device=device)[:, None]
    k_pos = torch.arange(keys, device=device)
    mask = k_pos <= q_pos
    if window is not None:
        mask &= k_pos >= q_pos - window
    return Sight(mask)


def attention(query: Tensor, key: Tensor, value: Tensor, sight: Sight, scale: float | None) -> Tensor:
    """``query`` ``[queries, q_heads, head_dim]``, ``key`` and ``value`` ``[keys, kv_heads, head_dim]``.

    Returns ``[queries, q_heads, v_head_dim]``.
    """
    if key.dtype != query.dtype:
        key, value = key.to(query.dtype), value.to(query.dtype)
    out = scaled_dot_product_attention(
        query.movedim(0, 1)[None],
        key.movedim(0, 1)[None],
        value.movedim(0, 1)[None],
        attn_mask=sight.mask,
        is_causal=sight.is_causal,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out[0].movedim(0, 1)


class _Sequence(NamedTuple):
    """Of one request: its ``rows`` of the queries, the pool's ``slots`` of its keys, int32 ``[keys]``, and
    in a verify step what ``tree_sight`` wants."""

    rows: slice
    slots: Tensor
    tree_mask: Tensor | None

    def sight(self, causal: bool, window: int | None) -> Sight:
        keys = len(self.slots)
        if self.tree_mask is not None:
            return tree_sight(self.tree_mask, keys, window)
        return extend_sight(self.rows.stop - self.rows.start, keys, causal, window, self.slots.device)


class _Plan:
    """What the queries of one batch see, by kind of layer."""

    def __init__(self, sequences: list[_Sequence]):
        self._sequences = sequences
        self._sights: dict[tuple[bool, int | None], list[Sight]] = {}

    def sights(self, causal: bool, window: int | None) -> Iterator[tuple[slice, Tensor, Sight]]:
        """Rows, slots and sight of each request."""
        kind = causal, window
        if kind not in self._sights:
            self._sights[kind] = [sequence.sight(causal, window) for sequence in self._sequences]
        for sequence, sight in zip(self._sequences, self._sights[kind], strict=True):
            yield sequence.rows, sequence.slots, sight


class CpuTreeAttnBackend(TorchNativeAttnBackend):
    """``torch_native`` plus ``TARGET_VERIFY``; decode is inherited unchanged."""

    _planned: tuple[ReferenceType[Any], _Plan] | None = None
    """The batch of the last forward pass, and its plan."""

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Before the layers of each pass."""
        super().init_forward_metadata(forward_batch)
        self._planned = None

    def forward_extend(
        self, q: Tensor, k: Tensor, v: Tensor, layer: Any, forward_batch: Any, save_kv_cache: bool = True
    ) -> Tensor:
        if layer.is_cross_attention or forward_batch.encoder_lens is not None:
            return super().forward_extend(q, k, v, layer, forward_batch, save_kv_cache)
        if save_kv_cache and k is not None and v is not None:
            location = KVWriteLoc(forward_batch.out_cache_loc, self.swa_out_cache_loc)
            self.token_to_kv_pool.set_kv_buffer(layer, location, k, v)

        queries = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        output = q.new_empty(queries.shape[0], layer.tp_q_head_num, layer.v_head_dim)
        keys = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
        values = self.token_to_kv_pool.get_value_buffer(layer.layer_id)
        reach = layer.sliding_window_size
        window = reach if reach is not None and reach > -1 else None
        causal = layer.attn_type != AttentionType.ENCODER_ONLY
        for rows, slots, sight in self._plan(forward_batch).sights(causal, window):
            key, value = keys.index_select(0, slots), values.index_select(0, slots)
            output[rows] = attention(queries[rows], key, value, sight, layer.scaling)
        return output.view(queries.shape[0], -1)

    def _plan(self, forward_batch: Any) -> _Plan:
        if self._planned is not None and self._planned[0]() is forward_batch:
            return self._planned[1]
        plan = _Plan(list(self._sequences(forward_batch)))
        self._planned = ref(forward_batch), plan
        return plan

    def _sequences(self, forward_batch: Any) -> Iterator[_Sequence]:
        pool_rows, seq_lens = forward_batch.req_pool_indices.tolist(), forward_batch.seq_lens.tolist()
        table, start = self.req_to_token_pool.req_to_token, 0
        if not forward_batch.forward_mode.is_target_verify():
            extends = forward_batch.extend_seq_lens.tolist()
            for row, keys, rows in zip(pool_rows, seq_lens, extends, strict=True):
                yield _Sequence(slice(start, start + rows), table[row, :keys], None)
                start += rows
            return
        spec = forward_batch.spec_info
        nodes = spec.draft_token_num
        masks = spec.custom_mask[: len(pool_rows) * nodes * nodes].view(len(pool_rows), nodes, nodes)
        for row, prefix, mask in zip(pool_rows, seq_lens, masks, strict=True):
            yield _Sequence(slice(start, start + nodes), table[row, : prefix + nodes], mask)
            start += nodes
