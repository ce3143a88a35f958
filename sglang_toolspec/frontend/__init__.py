"""``gen(tools=…)`` for SGLang programs: tools in the prompt, a call in the reply, values to work with."""

from sglang_toolspec.frontend.engine import EngineBackend
from sglang_toolspec.frontend.tool_gen import enable, gen
from sglang_toolspec.frontend.written import ToolCall, tool_calls, tool_result

__all__ = ["EngineBackend", "ToolCall", "enable", "gen", "tool_calls", "tool_result"]
