"""Calls in a reply, as the server's own OpenAI path reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sglang.srt.entrypoints.openai.protocol import Tool, ToolChoice
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.function_call.json_array_parser import JsonArrayParser
from sglang.srt.function_call.utils import get_json_schema_constraint
from sglang.srt.parser.reasoning_parser import ReasoningParser
from sglang.utils import convert_json_schema_to_str

from sglang_toolspec.frontend.offer import Offer
from sglang_toolspec.runtime.engine import streaming

Read = tuple[str, list[tuple[str, str]]]
"""Content, and the name and the arguments' JSON text of each call."""


@dataclass(frozen=True)
class Parsers:
    """SGLang's parsers of a server, by name."""

    tool_call: str | None
    reasoning: str | None = None


def read_reply(text: str, offer: Offer, parsers: Parsers) -> Read:
    """What a reply to ``offer`` holds. Calls within a model's reasoning are none."""
    if parsers.reasoning:
        text = _behind_reasoning(text, offer, parsers.reasoning)
    tools = _tools(offer)
    if parsers.tool_call:
        native = FunctionCallParser(tools, parsers.tool_call)
        if not offer.forced or native.owns_tool_format():
            return _native(native, text)
    if not offer.forced:
        return text, []
    content, items = streaming.CallStream(JsonArrayParser(), tools).whole(text)
    return content, [(item.name or "", item.parameters) for item in items]


def _behind_reasoning(text: str, offer: Offer, parser: str) -> str:
    """A thought that the prompt has opened shows by its end alone. A forced call needs no thought before
    it, since a program's mask holds from the first token; some parsers would take it for one."""
    options: dict[str, Any] = {"stream_reasoning": False, "tool_call_parser_active": True}
    reading = ReasoningParser(parser, **options)
    begin, end = (getattr(reading.detector, f"think_{mark}_token", "") for mark in ("start", "end"))
    if end and end in text:
        reading = ReasoningParser(parser, force_reasoning=True, **options)
    elif offer.forced and not (begin and begin in text):
        return text
    return reading.parse_non_stream(text)[1] or ""


def _native(parser: FunctionCallParser, text: str) -> Read:
    if not streaming.has_tool_call(FunctionCallParser.has_tool_call, parser, text):
        return text, []
    content, items = streaming.parse_non_stream(FunctionCallParser.parse_non_stream, parser, text)
    return content, [(item.name or "", item.parameters) for item in items]


def constraint(offer: Offer, parsers: Parsers) -> dict[str, Any]:
    """The sampling parameters with which the server's OpenAI path forces this choice."""
    if offer.choice == "none":
        return {}
    tools, choice, found = _tools(offer), _sglang_choice(offer), None
    if parsers.tool_call:
        # A program's mask holds from the first token, so it describes calls alone; but this parser's
        # grammar is of the whole turn, and such a model thinks by default.
        thinks = parsers.tool_call == "glm47" and not any(tool.function.strict for tool in tools)
        parser = FunctionCallParser(tools, parsers.tool_call)
        found = parser.get_structure_constraint(choice, thinking_mode=thinks)
    if found is None and offer.forced:
        found = ("json_schema", get_json_schema_constraint(tools, choice))
    if found is None:
        return {}
    kind, value = found
    if kind == "full_assistant_ebnf":
        return {"ebnf": value, "ebnf_full_assistant": True}
    plain = value.model_dump(by_alias=True) if hasattr(value, "model_dump") else value
    return {kind: convert_json_schema_to_str(plain)}


def _tools(offer: Offer) -> list[Tool]:
    return [Tool.model_validate(tool) for tool in offer.openai]


def _sglang_choice(offer: Offer) -> Any:
    choice = offer.openai_choice
    return choice if isinstance(choice, str) else ToolChoice.model_validate(choice)
