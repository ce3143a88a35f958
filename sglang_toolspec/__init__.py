"""sglang-toolspec: draft tool calls from their schemas inside SGLang, without training.

Importing it before ``sglang`` makes SGLang's CPU engine importable where
``SGLANG_USE_CPU_ENGINE=1`` and the native CPU kernels are absent; otherwise it does nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sglang_toolspec.runtime.engine.cpu.environment import install_standin

if TYPE_CHECKING:
    from sglang_toolspec.frontend import EngineBackend, ToolCall, enable, gen, tool_calls, tool_result

__all__ = ["EngineBackend", "ToolCall", "enable", "gen", "tool_calls", "tool_result"]
__version__ = "0.1.0"
SGLANG_VERSION = "0.5.23"
"""The one SGLang release this version is written for and tested with."""

install_standin()


def __getattr__(name: str) -> Any:
    """What programs use. It imports SGLang, which servers set up first."""
    if name in __all__:
        return getattr(import_module("sglang_toolspec.frontend"), name)
    raise AttributeError(f"module 'sglang_toolspec' has no attribute {name!r}")
