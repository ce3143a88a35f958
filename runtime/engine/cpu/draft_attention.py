"""Attention of the draft steps of EAGLE and STANDALONE on a CPU.

A draft model decodes ``topk`` branches of each request, a token a step. SGLang has a backend of
several steps for most kinds of attention, and none for ``torch_native``; ``hooks.py`` gives its
factory this one. Slots, and what a branch sees of them, are those of SGLang's other backends, so
the drafts are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.runtime_context import attention_backends
from torch import Tensor

from sglang_toolspec.runtime.engine.cpu.attention import CpuTreeAttnBackend, Sight, attention

NAME = "torch_native"


def branch_columns(prefix: int, topk: int, num_steps: int, step: int) -> Tensor:
    """Columns of a request's row that its branches see in draft step ``step``.

    Branch ``b`` writes column ``prefix + b * num_steps + s`` in step ``s``. Returns the prefix, then
    ``step + 1`` columns of each branch: int64 ``[prefix + topk * (step + 1)]``.
    """
    own = prefix + num_steps * torch.arange(topk)[:, None] + torch.arange(step + 1)
    return torch.cat((torch.arange(prefix), own.flatten()))


def branch_attention(
    query: Tensor, key: Tensor, value: Tensor, depth: int, scale: float | None, window: int | None = None
) -> Tensor:
    """Attention of the newest token of each branch.

    Args:
        query: ``[topk, q_heads, head_dim]``.
        key, value: ``[prefix + topk * depth, kv_heads, head_dim]``, as ``branch_columns`` orders them.
        depth: tokens of each branch, the newest included.
        window: SGLang's ``sliding_window_size``: how far back a token sees besides itself.

    Returns ``[topk, q_heads, v_head_dim]``: each branch sees the prefix and its own tokens, as far
    as ``window`` reaches.
    """
    topk = query.shape[0]
    prefix = key.shape[0] - topk * depth
    own = torch.eye(topk, dtype=torch.bool, device=query.device).repeat_interleave(depth, dim=1)
    mask = torch.cat((own.new_ones(topk, prefix), own), dim=1)
    if window is not None:
        position = torch.arange(prefix + depth, device=query.device)
        key_pos = torch.cat((position[:prefix], position[prefix:].repeat(topk)))
        mask &= key_pos >= prefix + depth - 1 - window
    return attention(query, key, value, Sight(mask), scale)


class CpuDraftStepBackend(CpuTreeAttnBackend):
    """The attention of draft step ``step``: ``topk`` queries a request, in the order of its branches."""

    def __init__(self, runner: Any, topk: int, num_steps: int, step: int):
        super().__init__(runner)
        self._topk = topk
        self._num_steps = num_steps
        self._step = step

    def forward_decode(
        self, q: Tensor, k: Tensor, v: Tensor, layer: Any, forward_batch: Any, save_kv_cache: bool = True
    ) -> Tensor:
        if save_kv_cache and k is not None and v is not None:
            # The worker sets the slots of a step after it has planned all of them.
            self.init_forward_metadata(forward_batch)
            location = KVWriteLoc(forward_batch.out_cache_loc, self.swa_out_cache_loc)
            self.token_to_kv_pool.set_kv_buffer(layer, location, k, v)
        queries = q.reshape(-1, self._topk, layer.tp_q_head_num, layer.qk_head_dim)
        output = q.new_empty(*queries.shape[:3], layer.v_head_dim)
        keys = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
        values = self.token_to_kv_pool.get_value_buffer(layer.layer_id)
        reach = layer.sliding_window_size
        window = reach if reach is not None and reach > -1 else None
        requests = zip(forward_batch.req_pool_indices.tolist(), forward_batch.seq_lens.tolist(), strict=True)
        for i, (row, prefix) in enumerate(requests):
            columns = branch_columns(prefix, self._topk, self._num_steps, self._step)
            slots = self.req_to_token_pool.req_to_token[row, columns]
            output[i] = branch_attention(
                queries[i], keys[slots], values[slots], self._step + 1, layer.scaling, window
            )
        return output.view(output.shape[0] * self._topk, -1)


class CpuMultiStepDraftBackend:
    """SGLang's container of the backends of all draft steps: ``attn_backends[step]``."""

    def __init__(self, runner: Any, topk: int, num_steps: int):
        # The last step's tokens are never fed back.
        self.attn_backends = [
            CpuDraftStepBackend(runner, topk, num_steps, step) for step in range(num_steps - 1)
        ]

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Nothing to plan: each step reads what it needs from the batch."""


def decode_backend(original: Callable[[Any], Any], factory: Any) -> Any:
    """Around ``DraftBackendFactory.create_decode_backend``."""
    if not _is_ours(factory, "decode"):
        return original(factory)
    if factory.speculative_num_steps <= 1:
        return None
    backend = CpuMultiStepDraftBackend(
        factory.draft_model_runner, factory.topk, factory.speculative_num_steps
    )
    stamps: list[Any] = [backend, *backend.attn_backends]
    for stamped in stamps:
        stamped.prefill_attention_backend_str = stamped.decode_attention_backend_str = NAME
    return backend


def extend_backend(original: Callable[[Any], Any], factory: Any) -> Any:
    """Around ``DraftBackendFactory.create_draft_extend_backend``.

    ``None`` leaves the draft runner with its own backend, which extends as it prefills.
    """
    return None if _is_ours(factory, "prefill") else original(factory)


def _is_ours(factory: Any, phase: str) -> bool:
    prefill, decode = attention_backends()
    return (factory.draft_attn_backend or (decode if phase == "decode" else prefill)) == NAME
