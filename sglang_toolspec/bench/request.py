"""From a row to the request that every server gets."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sglang_toolspec.bench.rows import Row
from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.request import FIELD, ToolRequest

CHAT = "/v1/chat/completions"
GENERATE = "/generate"
PROMPTS = ("auto", "raw_system", "tools")


@dataclass(frozen=True)
class Asking:
    """``prompt``: ``raw_system`` is a row's own system text, ``tools`` the OpenAI ``tools``, and ``auto``
    the first where a row has it. ``tool_choice``: empty for the row's own."""

    prompt: str = "auto"
    tool_choice: str = ""
    temperature: float = 0.0
    max_new_tokens: int = 200


@dataclass(frozen=True)
class Request:
    """``body`` is what all servers get alike; ``hint`` tells TOOLSPEC the tools that a raw prompt lists."""

    path: str
    body: dict[str, Any]
    hint: str | None = None

    @cached_property
    def digest(self) -> str:
        """Equal for equal requests."""
        written = json.dumps([self.path, self.body, self.hint], sort_keys=True)
        return hashlib.sha256(written.encode()).hexdigest()[:16]

    def sent(self, rid: str, salt: str, hinted: bool, max_new_tokens: int | None = None) -> dict[str, Any]:
        """The body of one sending. ``salt`` keeps prefix caches and what is learned from text apart."""
        body = {**self.body, "rid": rid, "cache_salt": salt}
        hint = {"custom_params": {FIELD: self.hint}} if hinted and self.hint else {}
        if self.path == CHAT:
            limit = {} if max_new_tokens is None else {"max_tokens": max_new_tokens}
            return {**body, **hint, **limit}
        limit = {} if max_new_tokens is None else {"max_new_tokens": max_new_tokens}
        return {**body, "sampling_params": {**body["sampling_params"], **hint, **limit}}


def request_for(row: Row, asking: Asking) -> Request:
    """Raises ``UserError`` where ``asking`` does not fit the row."""
    choice = asking.tool_choice or row.tool_choice
    if row.prompt is None and (asking.prompt == "tools" or not row.raw_system):
        if asking.prompt == "raw_system" and row.tools:
            raise UserError(f"row {row.id} has no raw_system text; use --prompt auto or --prompt tools")
        tools = {"tools": row.tools, "tool_choice": choice} if row.tools else {}
        return Request(CHAT, {**_chat(row.messages or [], asking), **row.options, **tools})
    if row.tools and choice != "auto":
        raise UserError(
            f"row {row.id} lists its tools in its own text, where tool_choice {choice!r} means nothing; "
            "use --prompt tools, or leave out --tool-choice"
        )
    hint = _hint(row.tools)
    if row.prompt is not None:
        return Request(GENERATE, _generate(row.prompt, asking), hint)
    dialogue = [m for m in row.messages or [] if m["role"] != "system"]
    messages = [{"role": "system", "content": row.raw_system}, *dialogue]
    return Request(CHAT, {**_chat(messages, asking), **row.options}, hint)


def _chat(messages: list[dict[str, Any]], asking: Asking) -> dict[str, Any]:
    return {
        "model": "bench",
        "messages": messages,
        "temperature": asking.temperature,
        "max_tokens": asking.max_new_tokens,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_spec_tokens_details": True,
    }


def _generate(prompt: str | list[int], asking: Asking) -> dict[str, Any]:
    sampling = {"temperature": asking.temperature, "max_new_tokens": asking.max_new_tokens}
    key = "text" if isinstance(prompt, str) else "input_ids"
    return {key: prompt, "stream": True, "sampling_params": sampling}


def _hint(tools: list[Any]) -> str | None:
    """``None`` for tools that TOOLSPEC does not take, as for a chat request with them."""
    try:
        return ToolRequest.from_object({"tools": tools}).to_wire() if tools else None
    except UserError:
        return None
