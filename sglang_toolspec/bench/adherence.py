"""Does a reply call a tool in a form that can be read? What the paper calls format adherence."""

from __future__ import annotations

from typing import Any

from sglang_toolspec.bench.measure import Measurement
from sglang_toolspec.bench.request import CHAT, Request
from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.formats import FORMATS
from sglang_toolspec.grammars.tools import ToolSet
from sglang_toolspec.runtime.request import ToolRequest


def adheres(request: Request, measured: Measurement) -> bool | None:
    """Whether the reply holds a whole call, in any layout that drafts are made for or that SGLang's
    parser has found; ``None`` for a request that offers no tool that could be called."""
    tools = _offered(request)
    if tools is None or not tools.tools:
        return None
    if measured.finish == "tool_calls":
        return True
    automaton = ToolAutomaton(CallShapes(tools), tuple(FORMATS.values()))
    automaton.advance(measured.text.encode())
    return automaton.calls_done > 0


def _offered(request: Request) -> ToolSet | None:
    try:
        if request.hint is not None:
            return ToolRequest.from_wire(request.hint).offered
        return _of_body(request.body) if request.path == CHAT else None
    except UserError:  # tools that TOOLSPEC does not take
        return None


def _of_body(body: dict[str, Any]) -> ToolSet | None:
    if not body.get("tools") or body.get("tool_choice") == "none":
        return None
    return ToolSet.from_openai(body["tools"])
