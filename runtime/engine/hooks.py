"""Every place where this project reaches into SGLang. The table in docs/design.md mirrors it.

A hook is a debt: registration comes first, a patch only where SGLang has no door. A test
checks that each target still exists, and so does ``sglang-toolspec check``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sglang_toolspec.runtime.engine.cpu.environment import cpu_engine_on, standin_active


@dataclass(frozen=True)
class Hook:
    """``target`` is a dotted path in SGLang and ``kind`` how it is used; ``needed`` says when."""

    target: str
    kind: str
    why: str
    without: str
    install: Callable[[], None]
    needed: Callable[[], bool] = lambda: True

    def exists(self) -> bool:
        """Whether ``target`` can be resolved in the installed SGLang."""
        try:
            pkgutil.resolve_name(self.target)
        except (AttributeError, ImportError, ValueError):
            return False
        return True


def _patch(
    target: str, kind: str, function: str, why: str, without: str, needed: Callable[[], bool] = lambda: True
) -> Hook:
    """A hook by SGLang's ``HookRegistry``; ``function`` is imported when it is installed."""

    def install() -> None:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        if target not in _installed:
            HookRegistry.register(target, pkgutil.resolve_name(function), HookType[kind])
            _installed.add(target)

    return Hook(target, kind, why, without, install, needed)


_installed: set[str] = set()


def _register_algorithm() -> None:
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import get_spec

    from sglang_toolspec.runtime.engine.algorithm import NAME, ToolSpecAlgorithm, worker_class

    if get_spec(NAME) is None:
        register = SpeculativeAlgorithm.register(NAME, supports_overlap=True, spec_class=ToolSpecAlgorithm)
        register(worker_class)


def _register_attention() -> None:
    from sglang.srt.layers.attention import attention_registry

    def create(runner: Any) -> Any:
        from sglang_toolspec.runtime.engine.cpu.attention import CpuTreeAttnBackend

        return CpuTreeAttnBackend(runner)

    attention_registry.ATTENTION_BACKENDS["torch_native"] = create


def _on_standin() -> bool:
    return cpu_engine_on() and standin_active()


def add_stats(result: Any, scheduler: Any, question: Any) -> Any:
    """After ``Scheduler.get_internal_state``: what ``/server_info`` says about drafting, or instead
    of everything else what became of one request that ``endpoint`` asks for."""
    from sglang_toolspec.runtime.engine.endpoint import asked_rid

    worker = scheduler.draft_worker
    if not hasattr(worker, "report"):
        return result
    rid = asked_rid(question)
    if rid is None:
        result.internal_state["toolspec"] = worker.stats()
    else:
        result.internal_state = {"toolspec": worker.report.request(rid)}
    return result


def widen_rows(result: int, *args: Any) -> int:
    """After ``get_req_to_token_extra_context_len``: room for the whole reserve of a decode step.

    SGLang reserves twice the draft width past the committed length but makes the rows of its
    request table longer by one width, so a reply that fills the context writes past its row.
    """
    from sglang.srt.mem_cache.allocation_sizing import get_alloc_reserve_per_decode

    return max(result, get_alloc_reserve_per_decode())


def _in_programs() -> None:
    """Programs run in processes of their own: ``gen(tools=…)`` and ``enable()`` install these there."""


_ENGINE = "sglang_toolspec.runtime.engine"

HOOKS = (
    Hook(
        target="sglang.srt.speculative.spec_info.SpeculativeAlgorithm.register",
        kind="registration",
        why="the algorithm TOOLSPEC",
        without="--speculative-algorithm TOOLSPEC is unknown",
        install=_register_algorithm,
    ),
    Hook(
        target="sglang.srt.layers.attention.attention_registry.ATTENTION_BACKENDS",
        kind="registration",
        why="CPU engine: torch_native with tree verification, and prefill without padded queries",
        without="verification fails on a CPU",
        install=_register_attention,
        needed=cpu_engine_on,
    ),
    *(
        _patch(
            f"sglang.srt.speculative.draft_utils.DraftBackendFactory.{method}",
            "AROUND",
            f"{_ENGINE}.cpu.draft_attention.{function}",
            why,
            "EAGLE, EAGLE3 and STANDALONE do not start on a CPU",
            needed=cpu_engine_on,
        )
        for method, function, why in (
            (
                "create_decode_backend",
                "decode_backend",
                "CPU engine: torch_native drafts several steps of several branches",
            ),
            (
                "create_draft_extend_backend",
                "extend_backend",
                "CPU engine: torch_native extends the draft model by what was accepted",
            ),
        )
    ),
    _patch(
        "sglang.srt.speculative.spec_utils._select_top_k_tokens_later",
        "AROUND",
        f"{_ENGINE}.cpu.eager.eager",
        why="CPU engine: choosing the drafts that go on is not compiled",
        without="the first EAGLE request waits for a C++ compiler, which must be there",
        needed=cpu_engine_on,
    ),
    _patch(
        "sglang.srt.speculative.eagle_utils.eagle_sample",
        "AROUND",
        f"{_ENGINE}.cpu.sampling.sample_as_plain",
        why="CPU engine: NGRAM, EAGLE and STANDALONE sample as plain decoding does",
        without="they take the argmax on a CPU, whatever the temperature",
        needed=cpu_engine_on,
    ),
    _patch(
        "sglang.srt.entrypoints.openai.serving_chat.OpenAIServingChat._convert_to_internal_request",
        "AFTER",
        f"{_ENGINE}.transport.attach_chat_tools",
        why="tools and tool_choice of an OpenAI chat request go to the worker",
        without="chat requests decode without schema drafts",
    ),
    _patch(
        "sglang.srt.managers.tokenizer_manager.TokenizerManager._create_tokenized_object",
        "BEFORE",
        f"{_ENGINE}.transport.check_custom_params",
        why="custom_params are validated before they are sent to the scheduler",
        without="a nested value stops the scheduler's receive loop",
    ),
    *(
        _patch(
            f"sglang.srt.function_call.{method}",
            "AROUND",
            f"{_ENGINE}.streaming.{method.rpartition('.')[2]}",
            why,
            without,
        )
        for method, why, without in (
            (
                "function_call_parser.FunctionCallParser.parse_stream_chunk",
                "calls of a streamed reply are read however its text is cut",
                "a long accepted draft loses arguments, calls or text in streams",
            ),
            (
                "function_call_parser.FunctionCallParser.parse_stream_end",
                "what such a stream held back is sent at its end",
                "white space at the end of a streamed reply is lost",
            ),
            (
                "function_call_parser.FunctionCallParser.parse_non_stream",
                "a reply has the same calls streamed and not",
                "SGLang loses calls in one shot that streaming finds",
            ),
            (
                "function_call_parser.FunctionCallParser.has_tool_call",
                "a reply whose call stands without its section is looked into",
                "such a call is found in streams only",
            ),
            (
                "json_array_parser.JsonArrayParser.parse_streaming_increment",
                "the same for calls that a mask forces into a JSON array",
                "white space before a comma loses the calls after it",
            ),
            (
                "json_array_parser.JsonArrayParser.finish",
                "what such a stream held back is sent at its end",
                "SGLang's own parser would be asked about text that it never saw",
            ),
        )
    ),
    _patch(
        "sglang.srt.constrained.xgrammar_backend.XGrammarGrammarBackend.dispatch_structural_tag",
        "BEFORE",
        f"{_ENGINE}.tags.mended",
        why="--constrained-json-max-whitespace-cnt holds for calls that a tag forces too, keys that are "
        "required but not declared may be written, and numbers end",
        without="a forced call may hold white space or digits until its limit; objects with such keys can "
        "only be {}",
    ),
    _patch(
        "sglang.srt.sampling.sampling_params.SamplingParams.normalize",
        "AFTER",
        f"{_ENGINE}.stops.widen_window",
        why="a stop string is found in whatever tokens it is spelled",
        without="plain decoding misses some stop strings that a long accepted draft shows",
    ),
    _patch(
        "sglang.srt.managers.scheduler.Scheduler.get_internal_state",
        "AFTER",
        f"{_ENGINE}.hooks.add_stats",
        why="/server_info and /toolspec/requests report sessions, drafts and faults",
        without="drafting faults show in the log only",
    ),
    _patch(
        "sglang.srt.managers.tokenizer_manager.TokenizerManager.__init__",
        "AFTER",
        f"{_ENGINE}.endpoint.add_endpoint",
        why="the HTTP server answers GET /toolspec/requests/{rid}",
        without="what became of one request's drafts cannot be asked",
    ),
    _patch(
        "sglang.srt.mem_cache.allocation_sizing.get_req_to_token_extra_context_len",
        "AFTER",
        f"{_ENGINE}.hooks.widen_rows",
        why="rows of the request table hold the reserve of a speculative step",
        without="a reply that fills the context writes past its row (NGRAM has the same fault)",
    ),
    _patch(
        "sglang.srt.layers.quantization.unquant.UnquantizedLinearMethod.apply",
        "AROUND",
        f"{_ENGINE}.cpu.linear.apply_linear",
        why="CPU engine: float32 products of few rows by oneDNN where that is faster",
        without="a verify step costs about twice as much on CPUs without AVX-512",
        needed=_on_standin,
    ),
    _patch(
        "sglang.srt.layers.logits_processor.LogitsProcessor._compute_lm_head",
        "AROUND",
        f"{_ENGINE}.cpu.linear.lm_head",
        why="CPU engine: the same for the output layer",
        without="the output layer is slower in verify steps",
        needed=_on_standin,
    ),
    *(
        _patch(
            f"sglang.srt.model_executor.model_runner_components.weight_updater.WeightUpdater.{method}",
            "AFTER",
            f"{_ENGINE}.cpu.linear.forget_packed",
            why="CPU engine: weights that oneDNN packed are forgotten when new ones are loaded",
            without="after a weight update short products use the old weights",
            needed=_on_standin,
        )
        for method in (
            "update_weights_from_disk",
            "load_weights_from_distributed",
            "update_weights_from_tensor",
            "update_weights_from_ipc",
        )
    ),
    *(
        Hook(
            target=f"sglang.lang.{target}",
            kind="in programs",
            why=why,
            without=without,
            install=_in_programs,
            needed=lambda: False,
        )
        for target, why, without in (
            (
                "interpreter.StreamExecutor._execute_gen",
                "a gen with tools has a prompt and sampling parameters of its own",
                "gen(tools=…) cannot be executed",
            ),
            (
                "api.gen",
                "sglang_toolspec.enable() replaces it by a gen that takes tools",
                "sgl.gen refuses tools",
            ),
        )
    ),
)


def install_hooks() -> None:
    """Install what this process needs. Idempotent; imports SGLang."""
    for hook in HOOKS:
        if hook.needed():
            hook.install()
