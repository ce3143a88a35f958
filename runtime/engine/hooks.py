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
    """``target`` is a dotted path in SGLang; ``install`` uses it. ``needed`` says when."""

    target: str
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


def _patch(target: str, function: Callable[..., Any], kind: str) -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if not any(hook is function for _, hook, _ in HookRegistry._hooks.get(target, ())):
        HookRegistry.register(target, function, HookType[kind])


_CONVERT = "sglang.srt.entrypoints.openai.serving_chat.OpenAIServingChat._convert_to_internal_request"
_TOKENIZE = "sglang.srt.managers.tokenizer_manager.TokenizerManager._create_tokenized_object"


def _hook_chat() -> None:
    from sglang_toolspec.runtime.engine.transport import attach_chat_tools

    _patch(_CONVERT, attach_chat_tools, "AFTER")


def _hook_tokenizer() -> None:
    from sglang_toolspec.runtime.engine.transport import check_custom_params

    _patch(_TOKENIZE, check_custom_params, "BEFORE")


_STATE = "sglang.srt.managers.scheduler.Scheduler.get_internal_state"


def _add_stats(result: Any, scheduler: Any, *args: Any) -> Any:
    """After ``Scheduler.get_internal_state``: what ``/server_info`` says about drafting."""
    stats = getattr(scheduler.draft_worker, "stats", None)
    if stats is not None:
        result.internal_state["toolspec"] = stats()
    return result


def _hook_state() -> None:
    _patch(_STATE, _add_stats, "AFTER")


HOOKS = (
    Hook(
        target="sglang.srt.speculative.spec_info.SpeculativeAlgorithm.register",
        why="registers the algorithm TOOLSPEC",
        without="--speculative-algorithm TOOLSPEC is unknown",
        install=_register_algorithm,
    ),
    Hook(
        target="sglang.srt.layers.attention.attention_registry.ATTENTION_BACKENDS",
        why="torch_native with tree verification and unpadded prefill, on the CPU engine only",
        without="verification fails on a CPU",
        install=_register_attention,
        needed=lambda: cpu_engine_on() and standin_active(),
    ),
    Hook(
        target=_CONVERT,
        why="tools and tool_choice of an OpenAI chat request go to the worker",
        without="chat requests decode without schema drafts",
        install=_hook_chat,
    ),
    Hook(
        target=_TOKENIZE,
        why="custom_params are validated before they are sent to the scheduler",
        without="a nested value kills the scheduler's receive loop",
        install=_hook_tokenizer,
    ),
    Hook(
        target=_STATE,
        why="/server_info reports sessions, drafts and faults",
        without="drafting faults show in the log only",
        install=_hook_state,
    ),
)


def install_hooks() -> None:
    """Install what this process needs. Idempotent; imports SGLang."""
    for hook in HOOKS:
        if hook.needed():
            hook.install()
