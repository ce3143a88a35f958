"""The speculative worker: draft trees in, SGLang's verify, committed tokens out.

Follows SGLang's ``NGRAMWorker`` (0.5.23) step by step: it shares its verify input, its
KV compaction and its result, so every branch of the scheduler that knows NGRAM fits.
What differs: trees come from sessions, and on a CPU the tree is as wide as it needs to
be in each step and sampling is exact.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import torch
from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_func
from sglang.srt.layers.logprob_processor import compute_spec_logprobs
from sglang.srt.managers.scheduler import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.observability.req_time_stats import set_time_batch
from sglang.srt.runtime_context import get_device, get_schedule, get_serving, get_spec
from sglang.srt.speculative.base_spec_worker import BaseSpecWorker
from sglang.srt.speculative.eagle_utils import eagle_sample
from sglang.srt.speculative.ngram_info import NgramVerifyInput
from sglang.srt.speculative.spec_utils import (
    GrammarTree,
    build_grammar_vocab_mask,
    move_accept_tokens_to_target_kvcache,
    record_stream_for_v2_verify,
)
from torch import Tensor

from sglang_toolspec.runtime.attribution import Attribution
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.engine.candidates import Pending, accepted_candidates
from sglang_toolspec.runtime.engine.drafting import SessionFactory
from sglang_toolspec.runtime.engine.metrics import server_metrics
from sglang_toolspec.runtime.engine.pack import PackedTrees, pack
from sglang_toolspec.runtime.engine.past import server_history
from sglang_toolspec.runtime.engine.prompt_vectors import PromptVectors
from sglang_toolspec.runtime.engine.recording import record_file
from sglang_toolspec.runtime.engine.report import Report
from sglang_toolspec.runtime.engine.sessions import SessionTable
from sglang_toolspec.runtime.session import Faults
from sglang_toolspec.runtime.tokens import TokenCodec
from sglang_toolspec.runtime.width import StepCosts

logger = logging.getLogger(__name__)


class ToolSpecWorker(BaseSpecWorker):
    """Constructed by SGLang's scheduler through ``algorithm.ToolSpecAlgorithm``."""

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any):
        super().__init__()
        self._target_worker = target_worker
        self.model_runner = target_worker.model_runner
        self.device = get_device().device
        self.draft_token_num: int = get_spec().speculative_num_draft_tokens
        self._on_cpu = str(self.device) == "cpu"
        config = Config.from_env()
        self._fixed_width = not self._on_cpu or config.fixed_width or config.recipe == "paper"
        self._recycles = "recycling" in config.used_sources
        self._overlap = not get_schedule().disable_overlap_schedule
        self.faults = Faults(_report_fault)
        self._vectors = PromptVectors()
        self._candidates: Pending | None = None
        """Of the last step, not noted yet."""
        codec, parser = self._codec(), get_serving().tool_call_parser
        width, model = self.draft_token_num, server_args.model_path
        records = record_file(config, codec, model, parser, width, self.faults)
        history = server_history(config, codec, model)
        self._factory = SessionFactory(codec, parser, self.faults, config, self._vectors.of, records, history)
        self.sessions = SessionTable(self._factory, self.faults, self._ended)
        self.report = Report(self.sessions, self.faults, config.log, server_metrics())
        self.costs = StepCosts()
        self._steps = self._proposed = 0
        self._drafting_ns = 0

    def stats(self) -> dict[str, Any]:
        """Counters since start; ``verify_steps`` and ``drafting_us_per_step`` are of whole batches."""
        return {
            "sessions": len(self.sessions),
            "verify_steps": self._steps,
            "proposed_drafts": self._proposed,
            "drafting_us_per_step": round(self._drafting_ns / 1000 / max(1, self._steps), 1),
            "step_ms": {rows: round(1000 * s, 1) for rows, s in self.costs.measured},
            "faults": dict(self.faults.counts),
            "replies": self.report.replies(),
            **self._factory.stats(),
        }

    def _codec(self) -> TokenCodec | None:
        """``None``, and with it no schema drafts, where there is no tokenizer we can read."""
        tokenizer = self._target_worker.tokenizer
        if tokenizer is None:
            logger.warning("toolspec: no schema drafts, the server has no tokenizer (--skip-tokenizer-init)")
            return None
        config = self.model_runner.model_config
        stop_ids = {*(config.hf_eos_token_id or ()), tokenizer.eos_token_id} - {None}
        try:
            return TokenCodec(tokenizer, config.vocab_size, stop_ids)
        except Exception as error:  # a tokenizer we cannot read costs the drafts, not the server
            self.faults.note("tokenizer", error)
            return None

    @property
    def draft_worker(self) -> None:
        """There is no draft model."""
        return None

    def alloc_memory_pool(self, **kwargs: Any) -> None:
        # The target's pools do not exist yet when __init__ runs.
        self.req_to_token_pool, self.token_to_kv_pool_allocator = self._target_worker.get_memory_pool()

    def clear_cache_pool(self) -> None:
        self.sessions.clear()

    def note_request_finished(self, *, rid: str, natural_stop: bool) -> None:
        if not self._overlap:  # else those that wait are of a later step, which still runs
            self._note_candidates()
        self.sessions.finished(rid)

    def _ended(self, rid: str, part: Attribution, finished: bool) -> None:
        self.report.ended(rid, part, finished)

    def forward_batch_generation(
        self, batch: Any, on_publish: Any = None, pp_proxy_tensors: Any = None
    ) -> GenerationBatchResult:
        stream = torch.get_device_module(self.device).current_stream()
        record_stream_for_v2_verify(batch, None, stream)
        if batch.forward_mode.is_decode():
            return self._decode(batch, on_publish, pp_proxy_tensors)
        return self._extend(batch, on_publish, pp_proxy_tensors)

    def _extend(self, batch: Any, on_publish: Any, pp_proxy_tensors: Any) -> GenerationBatchResult:
        """Prefill (or an idle batch): the target alone."""
        result = self.target_worker.forward_batch_generation(
            batch, pp_proxy_tensors=pp_proxy_tensors, capture_hidden_mode=self._vectors.mode(batch)
        )
        self._vectors.note(batch, result.logits_output)
        bs = len(batch.reqs)
        accept_lens = torch.ones(bs, dtype=torch.int32, device=self.device)
        accept_tokens = torch.zeros(bs, self.draft_token_num, dtype=torch.int32, device=self.device)
        accept_tokens[:, 0] = result.next_token_ids
        new_seq_lens = batch.seq_lens.clone()
        if on_publish is not None:
            on_publish(new_seq_lens)
        return self._result(
            result, result.logits_output, result.next_token_ids, accept_tokens, accept_lens, new_seq_lens
        )

    def _decode(self, batch: Any, on_publish: Any, pp_proxy_tensors: Any) -> GenerationBatchResult:
        """Draft, verify, commit."""
        set_time_batch(batch.reqs, "set_spec_draft_start_time", trace_only=True)
        began = time.perf_counter_ns()
        trees = self._draft(batch)
        drafting_ns = time.perf_counter_ns() - began
        self._drafting_ns += drafting_ns
        self.report.drafted(drafting_ns / 1e9)
        set_time_batch(batch.reqs, "set_spec_draft_end_time", trace_only=True)
        drafted = time.perf_counter()
        verify_input = self._prepare_verify(batch, trees)
        result = self.target_worker.forward_batch_generation(
            batch, pp_proxy_tensors=pp_proxy_tensors, is_verify=True
        )
        logits_output = result.logits_output
        grammar_mask = self._grammar_mask(batch, trees) if batch.has_grammar else None
        predict, accept_lens, accept_index = self._sample(batch, verify_input, logits_output, grammar_mask)
        if self._recycles:
            self._candidates = accepted_candidates(
                batch, verify_input.draft_token, logits_output.next_token_logits, accept_index
            )
        new_seq_lens = batch.seq_lens + accept_lens
        move_accept_tokens_to_target_kvcache(
            batch, accept_index, accept_lens - 1, self.token_to_kv_pool_allocator
        )
        if batch.return_logprob:
            compute_spec_logprobs(batch, logits_output, predict, accept_index=accept_index)
        if logits_output.hidden_states is not None:
            # The scheduler reads one row per committed token, at our stride.
            rows = logits_output.hidden_states[accept_index.long().clamp(min=0)]
            logits_output.hidden_states = self._padded(rows).flatten(0, 1)
        if on_publish is not None:
            on_publish(new_seq_lens)
        if self._on_cpu:  # elsewhere the device is still at work
            self.costs.note(len(batch.reqs) * trees.width, time.perf_counter() - drafted)
        batch.forward_mode = ForwardMode.DECODE
        accept_tokens = self._padded(predict[accept_index.long()])
        return self._result(
            result, logits_output, accept_tokens.flatten(), accept_tokens, accept_lens, new_seq_lens
        )

    def _draft(self, batch: Any) -> PackedTrees:
        unprocessed = self._unprocessed(batch)
        self._note_candidates()  # what is read here has arrived with the tokens above
        self.sessions.keep_only(req.rid for req in batch.reqs)
        trees = [
            self.sessions.draft(req, tokens, self.draft_token_num)
            for req, tokens in zip(batch.reqs, unprocessed, strict=True)
        ]
        width = self.draft_token_num
        if self._on_cpu and not self._fixed_width:
            width = self.costs.unknown_width(len(trees), width) or self.costs.best_width(trees)
            trees = [tree.first(width) for tree in trees]
        for req, tree in zip(batch.reqs, trees, strict=True):
            self.sessions.sent(req, tree)
        self._steps += 1
        self._proposed += sum(len(tree) - 1 for tree in trees)
        return pack(trees, width)

    def _note_candidates(self) -> None:
        pending, self._candidates = self._candidates, None
        if pending is None:
            return
        try:
            self._factory.note_candidates(pending)
        except Exception as error:  # drafting must never cost a request
            self.faults.note("recycling", error)

    def _unprocessed(self, batch: Any) -> list[list[int]]:
        """Tokens accepted in the last step that are not in ``req.output_ids`` yet."""
        if not self._overlap or batch.grammar_needs_sync():
            return [[] for _ in batch.reqs]
        rows = accepted_rows(batch.spec_info.accept_tokens, batch.spec_info.accept_lens)
        totals = (batch.seq_lens + 1).tolist()  # prompt and reply with the root, which has no KV yet
        return [unseen(row, req, total) for row, req, total in zip(rows, batch.reqs, totals, strict=True)]

    def _prepare_verify(self, batch: Any, trees: PackedTrees) -> NgramVerifyInput:
        """Turn ``batch`` into a ``TARGET_VERIFY`` batch over ``trees``."""
        bs, width = trees.tokens.shape
        tokens, depths, next_token, next_sibling = (
            torch.from_numpy(a).to(self.device, non_blocking=True)
            for a in (trees.tokens, trees.depths, trees.next_token, trees.next_sibling)
        )
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        batch.input_ids = tokens.flatten()
        batch.out_cache_loc = assign_extend_cache_locs_func(
            req_pool_indices=batch.req_pool_indices,
            req_to_token=batch.req_to_token_pool.req_to_token,
            start_offset=batch.seq_lens,
            end_offset=batch.seq_lens + width,
            batch_size=bs,
            draft_token_num=width,
            device=self.device,
        )
        verify_input = NgramVerifyInput(
            draft_token=batch.input_ids,
            custom_mask=self._attention_mask(batch, trees),
            positions=(depths + batch.seq_lens[:, None]).flatten(),
            retrieve_index=torch.arange(bs * width, device=self.device).view(bs, width),
            retrieve_next_token=next_token,
            retrieve_next_sibling=next_sibling,
            draft_token_num=width,
        )
        batch.spec_info = verify_input
        return verify_input

    def _attention_mask(self, batch: Any, trees: PackedTrees) -> Tensor:
        """Flat bool mask: tree columns only on a CPU, prefix columns too on a GPU."""
        mask = torch.from_numpy(trees.mask).to(self.device, non_blocking=True)
        if self._on_cpu:
            return mask.flatten()
        rows = [
            torch.cat((mask.new_ones(trees.width, prefix), mask[i]), dim=1).flatten()
            for i, prefix in enumerate(batch.seq_lens_cpu.tolist())
        ]
        return torch.cat(rows)

    def _grammar_mask(self, batch: Any, trees: PackedTrees) -> Any:
        tree = GrammarTree.from_host(
            torch.from_numpy(trees.next_token),
            torch.from_numpy(trees.next_sibling),
            torch.from_numpy(trees.tokens),
        )
        return build_grammar_vocab_mask(
            reqs=batch.reqs, tree=tree, sampling_info=batch.sampling_info, device=self.device, barrier=None
        )

    def _sample(
        self, batch: Any, verify_input: NgramVerifyInput, logits_output: Any, grammar_mask: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self._on_cpu:
            from sglang_toolspec.runtime.engine.cpu.sampling import sample_tree

            return sample_tree(
                self.model_runner.sampler, verify_input, batch, logits_output.next_token_logits, grammar_mask
            )
        return eagle_sample(verify_input, batch, logits_output, grammar_mask)

    def _padded(self, accepted: Tensor) -> Tensor:
        """``[batch, width, …]`` to ``[batch, draft_token_num, …]``: one stride, whatever the step's width."""
        padded = accepted.new_zeros(accepted.shape[0], self.draft_token_num, *accepted.shape[2:])
        padded[:, : accepted.shape[1]] = accepted
        return padded

    def _result(
        self,
        target: Any,
        logits_output: Any,
        next_token_ids: Tensor,
        accept_tokens: Tensor,
        accept_lens: Tensor,
        new_seq_lens: Tensor,
    ) -> GenerationBatchResult:
        return GenerationBatchResult(
            logits_output=logits_output,
            next_token_ids=next_token_ids,
            can_run_cuda_graph=target.can_run_cuda_graph,
            accept_lens=accept_lens,
            new_seq_lens=new_seq_lens,
            next_draft_input=NgramVerifyInput(
                draft_token_num=self.draft_token_num,
                new_seq_lens=new_seq_lens,
                accept_tokens=accept_tokens.flatten(),
                accept_lens=accept_lens,
            ),
            speculative_num_draft_tokens=self.draft_token_num,
        )

    # SGLang asks any NGRAM-like worker for external corpora (ExternalCorpusManager).

    def list_external_corpora(self) -> dict[str, int]:
        return {}

    def add_external_corpus(self, corpus_id: str, token_chunks: list[list[int]]) -> int:
        raise ValueError("TOOLSPEC takes no external corpus; start the server with NGRAM for that")

    def commit_corpus_load(self, corpus_id: str, loaded_token_count: int) -> None:
        raise ValueError("TOOLSPEC takes no external corpus; start the server with NGRAM for that")

    def remove_external_corpus(self, corpus_id: str) -> None:
        raise ValueError(f"there is no external corpus '{corpus_id}' under TOOLSPEC")


def accepted_rows(accept_tokens: Tensor, accept_lens: Tensor) -> list[list[int]]:
    """Accepted tokens per request from the relayed ``[batch * stride]`` tokens and lengths."""
    lengths = accept_lens.tolist()
    rows = accept_tokens.reshape(len(lengths), -1).tolist()
    return [row[:length] for row, length in zip(rows, lengths, strict=True)]


def unseen(accepted: list[int], req: Any, total: int) -> list[int]:
    """The tail of ``accepted`` that is not in ``req.output_ids`` yet; ``total`` counts prompt and reply.

    After a step in which other requests were prefilled there is none: that step's overlap
    left time to process the result.
    """
    missing = total - len(req.origin_input_ids) - len(req.output_ids)
    return accepted[-missing:] if missing > 0 else []


def _report_fault(reason: str, error: BaseException) -> None:
    logger.warning("toolspec: %s: %s; requests are served all the same", reason, error)
