"""The algorithm ``TOOLSPEC`` in SGLang's registry: capabilities, defaults, refusals."""

from __future__ import annotations

import logging
from typing import Any

from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.drafters.paper import NODES as PAPER_NODES

logger = logging.getLogger(__name__)

NAME = "TOOLSPEC"
DRAFT_TOKENS = 32
DEVICES = ("cuda", "cpu", "xpu")
MAX_RUNNING_REQUESTS = 48
TOPK = 8
"""Tells attention backends that this is a tree (1 would mean a chain without a mask) and sizes
SGLang's KV reserve, ``max(topk * steps, draft tokens)``. Our trees are free in shape."""


class ToolSpecAlgorithm(CustomSpecAlgo):
    """NGRAM to the scheduler: no draft model, no draft KV, trees of any shape."""

    def is_ngram(self) -> bool:
        return True

    def has_draft_kv(self) -> bool:
        return False

    def need_topk(self) -> bool:
        return False

    def carries_draft_hidden_states(self) -> bool:
        return False

    def create_future_map(
        self,
        device: Any,
        req_to_token_pool: Any,
        needs_cpu_seq_lens: bool = True,
        needs_confidence_relay: bool = False,
    ) -> Any:
        from sglang.srt.managers.overlap_utils import FutureMap

        return FutureMap(device, self, req_to_token_pool, needs_cpu_seq_lens, needs_confidence_relay)

    def handle_server_args(self, server_args: Any) -> None:
        """Set what SGLang's ``_handle_ngram`` sets for NGRAM; it does not run for us."""
        args = server_args
        config = Config.from_env()
        refuse(args)
        if config.record is not None:
            from sglang_toolspec.runtime.recorder import open_private

            open_private(config.record).close()  # refused now, in one sentence, or never
        from sglang_toolspec.runtime.engine.past import refuse_history

        refuse_history(config)
        if args.device == "cpu" or not config.overlap:
            args.disable_overlap_schedule = True
        if args.max_running_requests is None:
            args.max_running_requests = MAX_RUNNING_REQUESTS
        if args.enable_mixed_chunk:
            logger.warning("toolspec: --enable-mixed-chunk is turned off, as for NGRAM")
            args.enable_mixed_chunk = False
        if args.speculative_num_draft_tokens is None:
            args.speculative_num_draft_tokens = PAPER_NODES if config.recipe == "paper" else DRAFT_TOKENS
        args.speculative_eagle_topk = TOPK
        if args.speculative_num_steps is None:
            args.speculative_num_steps = max(1, args.speculative_num_draft_tokens // TOPK)
        logger.log(*sampling_note(args.device))


def refuse(args: Any) -> None:
    """Raise ``UserError`` for what TOOLSPEC cannot serve correctly."""
    if args.tp_size > 1 or args.pp_size > 1:
        raise UserError(
            f"TOOLSPEC drafts on one rank only and got --tp-size {args.tp_size} --pp-size {args.pp_size}; "
            "start it with both at 1, or use another speculative algorithm"
        )
    if args.enable_dp_attention:
        raise UserError("TOOLSPEC does not support --enable-dp-attention; start the server without it")
    if args.tokenizer_worker_num > 1 or args.grpc_mode or args.smg_grpc_mode:
        raise UserError(
            "TOOLSPEC needs SGLang's own HTTP server with one tokenizer worker, since SGLang loads no "
            "plugins in the others; start it without --tokenizer-worker-num and without the gRPC modes"
        )
    if args.disaggregation_mode != "null":
        raise UserError(
            f"TOOLSPEC does not support --disaggregation-mode {args.disaggregation_mode}; start it without"
        )
    if args.device not in DEVICES:
        raise UserError(f"TOOLSPEC runs on {', '.join(DEVICES)}, not on device '{args.device}'")
    if args.page_size is not None and args.page_size > 1 and args.attention_backend != "flashinfer":
        raise UserError(
            f"TOOLSPEC verifies trees, which is wrong with --page-size {args.page_size} on attention "
            f"backend '{args.attention_backend}'; use --page-size 1"
        )
    if args.device == "cpu" and args.enable_deterministic_inference:
        raise UserError(
            "--enable-deterministic-inference needs a kernel that SGLang's CPU engine lacks here; "
            "start the server without it"
        )
    if args.grammar_backend == "outlines":
        raise UserError(
            "TOOLSPEC verifies trees, for which SGLang's outlines backend can make no masks; start the "
            "server without --grammar-backend outlines"
        )
    tokens = args.speculative_num_draft_tokens
    if tokens is not None and tokens < 1:
        raise UserError(f"--speculative-num-draft-tokens must be at least 1, not {tokens}")
    if reason := hybrid_reason(_hf_config(args)):
        raise UserError(
            f"TOOLSPEC cannot serve {args.model_path}: its layers keep recurrent state ({reason}), "
            "which a rejected draft would corrupt; use a model with attention layers only"
        )


def hybrid_reason(config: Any) -> str | None:
    """The key in a Hugging Face config that tells of recurrent (linear, Mamba) layers, if any."""
    text = getattr(config, "text_config", None) or config
    layer_types = getattr(text, "layer_types", None) or ()
    for kind in layer_types:
        if any(word in str(kind) for word in ("linear", "mamba", "recurrent", "conv")):
            return f"layer_types has '{kind}'"
    keys = ("linear_attn_config", "hybrid_override_pattern", "mamba_d_state", "mamba_d_ssm", "ssm_cfg",
            "attn_type_list", "linear_num_key_heads")  # fmt: skip
    return next((key for key in keys if getattr(text, key, None)), None)


def _hf_config(args: Any) -> Any:
    from sglang.srt.utils.hf_transformers_utils import get_config

    return get_config(args.model_path, trust_remote_code=args.trust_remote_code, revision=args.revision)


def sampling_note(device: str) -> tuple[int, str]:
    """What verification honours, said once at start (see ``docs/serving.md``)."""
    if device == "cpu":
        return logging.INFO, (
            "toolspec: sampling on the CPU is exact: temperature, top-p, top-k, min-p, penalties, logit bias"
        )
    return logging.WARNING, (
        "toolspec: SGLang's speculative sampling on this device ignores min_p and custom logit "
        "processors and applies penalties once per step, not per token, under TOOLSPEC as under its own "
        "algorithms"
    )


def worker_class(server_args: Any) -> type:
    """Factory for SGLang's registry; imports the worker only in the scheduler process."""
    from sglang_toolspec.runtime.engine.worker import ToolSpecWorker

    return ToolSpecWorker
