"""Attention for SGLang on a CPU: tree verification, and prefill without padding.

SGLang's ``torch_native`` backend has no tree mask, and pads the queries of an extend
to the whole sequence length. This subclass attends with exactly the rows that are
asked for. It is registered under the same name by ``hooks.py`` when the CPU engine is on.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def tree_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tree_mask: Tensor,
    scale: float | None,
    window: int | None = None,
) -> Tensor:
    """Attention of the nodes of one draft tree.

    Args:
        query: ``[nodes, q_heads, head_dim]``.
        key, value: ``[prefix + nodes, kv_heads, head_dim]``, the nodes last.
        tree_mask: bool ``[nodes, nodes]``, true where column is the row or its ancestor.
        window: SGLang's ``sliding_window_size``: how far back a node sees besides itself.

    Returns ``[nodes, q_heads, v_head_dim]``: each node sees the prefix and its own path
    from the root, as far as ``window`` reaches.
    """
    nodes, total = query.shape[0], key.shape[0]
    prefix = total - nodes
    mask = torch.ones(nodes, total, dtype=torch.bool, device=query.device)
    mask[:, prefix:] = tree_mask
    if window is not None:
        node_pos = prefix + tree_mask.sum(-1) - 1
        key_pos = torch.cat((torch.arange(prefix, device=query.device), node_pos))
        mask &= key_pos >= node_pos[:, None] - window
    return masked_attention(query, key, value, mask, scale)


def extend_attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, causal: bool, window: int | None
) -> Tensor:
    """Attention of the last ``len(query)`` positions of a sequence of ``len(key)``.

    Shapes and ``window`` as in ``tree_attention``.
    """
    rows, total = query.shape[0], key.shape[0]
    if not causal or (rows == 1 and window is None):
        return masked_attention(query, key, value, None, scale)
    if rows == total and window is None:
        return masked_attention(query, key, value, None, scale, is_causal=True)
    q_pos = torch.arange(total - rows, total, device=query.device)[:, None]
    k_pos = torch.arange(total, device=query.device)
    mask = k_pos <= q_pos
    if window is not None:
        mask &= k_pos >= q_pos - window
    return masked_attention(query, key, value, mask, scale)


def masked_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None,
    is_causal: bool = False,
) -> Tensor:  # fmt: skip
    """``[queries, q_heads, v_head_dim]``; ``mask`` is bool ``[queries, keys]``, true where seen."""
    if key.dtype != query.dtype:
        key, value = key.to(query.dtype), value.to(query.dtype)
    out = scaled_dot_product_attention(
        query.movedim(0, 1)[None],
        key.movedim(0, 1)[None],
        value.movedim(0, 1)[None],
        attn_mask=mask,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out[0].movedim(0, 1)


class CpuTreeAttnBackend(TorchNativeAttnBackend):
    """``torch_native`` plus ``TARGET_VERIFY``; decode is inherited unchanged."""

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
        start = 0
        for row, total, rows, tree_mask in self._sequences(forward_batch):
            slots = self.req_to_token_pool.req_to_token[row, :total]
            part = slice(start, start + rows)
            if tree_mask is None:
                output[part] = extend_attention(
                    queries[part], keys[slots], values[slots], layer.scaling, causal, window
                )
            else:
                output[part] = tree_attention(
                    queries[part], keys[slots], values[slots], tree_mask, layer.scaling, window
                )
            start += rows
        return output.view(queries.shape[0], -1)

    @staticmethod
    def _sequences(forward_batch: Any) -> list[tuple[int, int, int, Tensor | None]]:
        """``(pool row, keys, query rows, tree mask)`` of each request; no mask in a prefill."""
        rows = forward_batch.req_pool_indices.tolist()
        seq_lens = forward_batch.seq_lens.tolist()
        if not forward_batch.forward_mode.is_target_verify():
            extends = forward_batch.extend_seq_lens.tolist()
            return [(r, n, e, None) for r, n, e in zip(rows, seq_lens, extends, strict=True)]
        spec = forward_batch.spec_info
        n = spec.draft_token_num
        masks = spec.custom_mask[: len(rows) * n * n].view(len(rows), n, n)
        return [(r, total + n, n, masks[i]) for i, (r, total) in enumerate(zip(rows, seq_lens, strict=True))]
