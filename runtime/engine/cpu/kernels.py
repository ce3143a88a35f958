"""The CPU operations that SGLang's speculative path expects and its PyPI wheel lacks.

Plain torch, written from the contracts of the Triton twins that stand beside each
call site (``sglang/kernels/ops/speculative``, ``kvcache/cache_move.py``,
``srt/mem_cache/allocation.py``). This module imports nothing but torch: it is
re-exported under the name ``sgl_kernel`` (see ``standin``), which SGLang imports
very early. Every function works in place on the argument marked *mutable*.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

QLEN_ONLY = 1
"""SGLang's ``TreeMaskMode.QLEN_ONLY``: the mask holds the tree's own columns only."""


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,  # mutable
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write consecutive runs of ``out_cache_loc`` into rows ``[start, end)`` of the pool."""
    taken = 0
    for row, start, end in _rows(req_pool_indices, start_offset, end_offset, pool_len):
        req_to_token[row, start:end] = out_cache_loc[taken : taken + end - start].to(req_to_token.dtype)
        taken += end - start


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,  # mutable
    pool_len: int,
) -> None:
    """Read rows ``[start, end)`` of the pool into consecutive runs of ``out_cache_loc``."""
    written = 0
    for row, start, end in _rows(req_pool_indices, start_offset, end_offset, pool_len):
        out_cache_loc[written : written + end - start] = req_to_token[row, start:end]
        written += end - start


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,  # mutable
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read ``topk * num_steps`` slots after each sequence into ``out_cache_loc``."""
    ends = seq_lens + topk * num_steps
    assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, seq_lens, ends, out_cache_loc, pool_len)


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor,
    out_cache_loc: Tensor,
    accept_out_cache_loc: Tensor,  # mutable
) -> None:
    """Pack the slots of accepted nodes to the front; ``-1`` entries are skipped."""
    index = accept_index.reshape(-1)
    accepted = out_cache_loc[index[index >= 0].long()]
    accept_out_cache_loc[: accepted.numel()] = accepted


def fill_bonus_tokens_cpu(
    accept_tokens: Tensor,
    accept_lens: Tensor,
    bonus_tokens: Tensor,  # mutable
    accept_stride: int,
) -> None:
    """The last accepted token of each request; ``accept_lens`` includes it."""
    rows = torch.arange(accept_lens.numel(), device=accept_lens.device)
    last = rows * accept_stride + accept_lens.long() - 1
    bonus_tokens[: last.numel()] = accept_tokens.reshape(-1)[last].to(bonus_tokens.dtype)


def rotate_input_ids_cpu(
    input_ids: Tensor,  # mutable
    extend_start_loc: Tensor,
    extend_seq_lens: Tensor,
    topk_index: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's ids left by one; the new token goes last or to ``select_index``."""
    new_tokens = topk_index.reshape(-1).tolist()
    for i, (start, length) in enumerate(
        zip(extend_start_loc.tolist(), extend_seq_lens.tolist(), strict=True)
    ):
        if length == 0:
            continue
        input_ids[start : start + length - 1] = input_ids[start + 1 : start + length].clone()
        target = start + length - 1 if select_index is None else int(select_index[i])
        input_ids[target] = new_tokens[i]


def verify_tree_greedy_cpu(
    predicts: Tensor,  # mutable
    accept_index: Tensor,  # mutable
    accept_token_num: Tensor,  # mutable
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk each tree along the target's choices.

    ``candidates``, ``retrive_*`` and ``target_predict`` are ``[batch, nodes]``;
    ``accept_index`` is ``[batch, depth]`` of flat node indices, ``-1`` beyond the
    accepted path; ``accept_token_num`` counts correct drafts, bonus excluded.
    """
    tokens, wanted = candidates.tolist(), target_predict.tolist()
    flat, child, sibling = retrive_index.tolist(), retrive_next_token.tolist(), retrive_next_sibling.tolist()
    max_depth = accept_index.shape[1]
    for b, row in enumerate(flat):
        node, path = 0, [0]
        while len(path) < max_depth:
            candidate = child[b][node]
            while candidate != -1 and tokens[b][candidate] != wanted[b][node]:
                candidate = sibling[b][candidate]
            if candidate == -1:
                break
            node = candidate
            path.append(node)
        for position, accepted in enumerate(path):
            predicts[row[accepted]] = wanted[b][accepted]
            accept_index[b, position] = row[accepted]
        accept_token_num[b] = len(path) - 1


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,  # mutable
    retrive_index: Tensor,  # mutable
    retrive_next_token: Tensor,  # mutable
    retrive_next_sibling: Tensor,  # mutable
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Positions and first-child/next-sibling links of trees given as ancestor masks.

    ``tree_mask`` is flat ``[batch, n, n]``; ``mask[b, i, j]`` marks ``j`` an ancestor
    of ``i`` (or ``i`` itself). Contract of SGLang's ``reconstruct_tree.py``.
    """
    n = draft_token_num
    if batch_size == 0:
        return
    order = torch.arange(n)
    ancestors = tree_mask.reshape(batch_size, n, n).bool() & (order < order[:, None])
    depth = ancestors.sum(-1)
    parent = torch.where(ancestors, order, -1).amax(-1)
    first_child = torch.where(ancestors, order[:, None], n).amin(1)
    same_parent = (parent[:, :, None] == parent[:, None, :]) & (order[:, None] > order)
    next_sibling = torch.where(same_parent, order[:, None], n).amin(1)
    next_sibling = torch.where((parent >= 0) & (next_sibling < n), next_sibling, -1)
    positions[: batch_size * n] = (depth + verified_seq_len[:batch_size, None]).flatten()
    retrive_index[:batch_size] = torch.arange(batch_size * n).view(batch_size, n)
    retrive_next_token[:batch_size] = torch.where(first_child < n, first_child, -1)
    retrive_next_sibling[:batch_size] = next_sibling


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,  # mutable
    positions: Tensor,  # mutable
    retrive_index: Tensor,  # mutable
    retrive_next_token: Tensor,  # mutable
    retrive_next_sibling: Tensor,  # mutable
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """EAGLE's tree from its flattened top-k choices (QLEN_ONLY masks, as on a CPU).

    ``selected_index`` is ``[batch, n - 1]``, the chosen entries of the top-k table;
    entry ``e`` hangs below table row ``e // topk``, whose own entry is
    ``parent_list[row]``; row 0 is the root. Where a child is as likely as its parent, the best
    entries may hold the child alone: it then hangs nowhere and is never accepted.
    """
    if tree_mask_mode != QLEN_ONLY:
        raise ValueError(f"the CPU engine builds QLEN_ONLY tree masks, not mode {tree_mask_mode}")
    n, batch = draft_token_num, verified_seq_len.shape[0]
    selected = selected_index.tolist()
    table = parent_list.tolist()
    mask = torch.eye(n, dtype=torch.bool).repeat(batch, 1, 1)
    for b in range(batch):
        node_of = {entry: i + 1 for i, entry in enumerate(selected[b])}
        for i, entry in enumerate(selected[b], start=1):
            row = entry // topk
            parent = 0 if row == 0 else node_of.get(table[b][row])
            if parent is not None:
                mask[b, i] |= mask[b, parent]
    tree_mask[: mask.numel()] = mask.flatten()
    reconstruct_indices_from_tree_mask(
        mask.flatten(), verified_seq_len, positions, retrive_index, retrive_next_token,
        retrive_next_sibling, batch, n,
    )  # fmt: skip


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Copy rows ``src_loc`` over rows ``tgt_loc`` in every buffer of ``data_ptrs``.

    A buffer is given by its address and its row size in bytes. All sources are read
    before a target is written, since the accepted path may overlap its new place.
    """
    targets, sources = tgt_loc.tolist(), src_loc.tolist()
    moves = [(t, s) for t, s in zip(targets, sources, strict=True) if t != s]
    if not moves:
        return
    rows = max(*targets, *sources) + 1
    target, source = torch.tensor(moves, dtype=torch.int64).unbind(1)
    for address, row_bytes in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (rows * row_bytes)).from_address(address)
        buffer = torch.frombuffer(memory, dtype=torch.uint8).view(rows, row_bytes)
        buffer[target] = buffer[source]


def _rows(indices: Tensor, starts: Tensor, ends: Tensor, pool_len: int) -> list[tuple[int, int, int]]:
    n = indices.numel()
    rows = list(zip(indices.tolist(), starts[:n].tolist(), ends[:n].tolist(), strict=True))
    for row, _, end in rows:
        if end > pool_len:
            raise IndexError(f"row {row} of the request table has {pool_len} slots, not {end}")
    return rows
