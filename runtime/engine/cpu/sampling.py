"""Verification on a CPU with the target's own distribution.

SGLang takes the argmax on a CPU, whatever the temperature. Here every node of the tree
is given the token that the target would sample after it, by SGLang's own ``Sampler``
and under the exact penalties of that node's path; then the walk of greedy verification
accepts a draft exactly where it equals the sample. Accepted and bonus tokens are thus
samples of the target itself, whatever was drafted.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from sglang.kernels.ops.speculative.spec_tree import verify_tree_greedy_func
from sglang.srt.layers.sampler import apply_custom_logit_processor, create_sampler
from torch import Tensor

_PER_REQUEST = ("temperatures", "top_ps", "top_ks", "min_ps", "sampling_seed")


def sample_as_plain(
    original: Callable[..., Any],
    verify_input: Any,
    batch: Any,
    logits_output: Any,
    grammar_mask: Any | None = None,
    *args: Any,
    **options: Any,
) -> Any:
    """Around ``eagle_sample``: SGLang's own algorithms sample as plain decoding does, too."""
    if batch.forward_mode.is_idle() or options.get("watermark_state") is not None:
        return original(verify_input, batch, logits_output, grammar_mask, *args, **options)
    return sample_tree(_sampler(), verify_input, batch, logits_output.next_token_logits, grammar_mask)


@cache
def _sampler() -> Any:
    return create_sampler()


def sample_tree(
    sampler: Any, verify_input: Any, batch: Any, logits: Tensor, grammar_mask: Any | None
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``sglang.srt.speculative.eagle_utils.eagle_sample``, for the CPU.

    ``logits`` is float ``[batch * nodes, vocab]`` and is changed in place by penalties,
    bias and mask. Returns ``predict`` int32 ``[batch * nodes]``, ``accept_lens`` int32
    ``[batch]`` (bonus included) and ``accept_index`` int32 ``[batch, max_tree_depth]``, ``-1``
    past the accepted path.
    """
    bs, n = len(batch.reqs), verify_input.draft_token_num
    candidates = verify_input.draft_token.reshape(bs, n)
    info = batch.sampling_info
    apply_path_penalties(logits.view(bs, n, -1), batch.reqs, candidates, verify_input.custom_mask)
    if info.logit_bias is not None:
        logits.add_(torch.repeat_interleave(info.logit_bias, n, dim=0))
    if grammar_mask is not None:
        grammar_mask.apply(logits)
    if info.has_custom_logit_processor:
        apply_custom_logit_processor(logits, info, n)
    wanted = _sample_nodes(sampler, logits, info, n, verify_input.positions)
    predict = torch.zeros(bs * n, dtype=torch.int32)
    accept_index = torch.full((bs, verify_input.max_tree_depth), -1, dtype=torch.int32)
    num_correct_drafts = torch.zeros(bs, dtype=torch.int32)
    verify_tree_greedy_func(
        predicts=predict,
        accept_index=accept_index,
        accept_token_num=num_correct_drafts,
        candidates=candidates,
        retrieve_index=verify_input.retrieve_index,
        retrieve_next_token=verify_input.retrieve_next_token,
        retrieve_next_sibling=verify_input.retrieve_next_sibling,
        target_predict=wanted.reshape(bs, n),
        topk=verify_input.tree_topk,
    )
    return predict, num_correct_drafts + 1, accept_index


def _sample_nodes(sampler: Any, logits: Tensor, info: Any, n: int, positions: Tensor) -> Tensor:
    if info.is_all_greedy:
        return logits.argmax(-1)
    per_node = copy.copy(info)
    for name in _PER_REQUEST:
        if (value := getattr(per_node, name)) is not None:
            setattr(per_node, name, torch.repeat_interleave(value, n, dim=0))
    # Applied above, or not offered by SGLang together with speculative decoding.
    per_node.has_custom_logit_processor = False
    per_node.sampling_mask_batch_indices = None
    per_node.grammars = None
    # The sampler turns logits into probabilities in place; logprobs still need them.
    scratch = _Logits(logits.clone())
    return sampler(scratch, per_node, False, [], [], positions)


class _Logits:
    """The one field of SGLang's ``LogitsProcessorOutput`` that the sampler reads."""

    def __init__(self, next_token_logits: Tensor):
        self.next_token_logits = next_token_logits


def apply_path_penalties(logits: Tensor, reqs: list[Any], candidates: Tensor, mask: Tensor) -> None:
    """Penalties as plain decoding would have them at every node.

    SGLang's speculative modes apply one penalty row per request to all of its nodes. Here
    each node counts the reply so far plus the drafts on its own path. ``logits`` is
    ``[batch, nodes, vocab]``, ``mask`` the trees' ancestor masks.
    """
    bs, n, _ = logits.shape
    masks = mask[: bs * n * n].view(bs, n, n)
    for b, req in enumerate(reqs):
        params = req.sampling_params
        counting = params.frequency_penalty or params.presence_penalty or params.repetition_penalty != 1.0
        if not counting and params.min_new_tokens <= len(req.output_ids):
            continue
        stop_ids = _stop_ids(req)
        output = Counter(req.output_ids)
        for node in range(n):
            path = [c for c in masks[b, node].nonzero().flatten().tolist() if c != 0]
            counts = output + Counter(candidates[b, path].tolist())
            if counting and counts:
                _penalise(logits[b, node], counts, params)
            if len(req.output_ids) + len(path) < params.min_new_tokens:
                logits[b, node, stop_ids] = float("-inf")


def _penalise(row: Tensor, counts: Counter[int], params: Any) -> None:
    ids = torch.tensor(list(counts), dtype=torch.int64)
    times = torch.tensor(list(counts.values()), dtype=row.dtype)
    values = row[ids] - params.frequency_penalty * times - params.presence_penalty
    scale = params.repetition_penalty
    row[ids] = torch.where(values < 0, values * scale, values / scale)


def _stop_ids(req: Any) -> list[int]:
    """As SGLang's ``BatchedMinNewTokensPenalizer``."""
    extra = getattr(req.tokenizer, "additional_stop_token_ids", None) or set()
    ids = (req.sampling_params.stop_token_ids or set()) | (req.eos_token_ids or set()) | set(extra)
    return [i for i in (*ids, getattr(req.tokenizer, "eos_token_id", None)) if i is not None]
