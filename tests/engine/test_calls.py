"""Calls over the OpenAI API, by OpenAI's own client: the same streamed and not, with drafts and without."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.engine.client import Client
from tests.engine.prompts import PROMPTS, TOOLS, tool

pytestmark = [pytest.mark.engine, pytest.mark.long]

FLIP = tool("flip", ["side", "loud"], side={"enum": ["left", "right"]}, loud={"type": "boolean"})
CLOSED = {**FLIP["function"]["parameters"], "additionalProperties": False}
STRICT = [{"type": "function", "function": {**FLIP["function"], "parameters": CLOSED, "strict": True}}]
"""A mask of this tool ends a call soon, whatever the model would like to write."""
ONE_CALL: dict[str, Any] = {"max_tokens": 200, "stop": ["</tool_call>"], "extra_body": {"no_stop_trim": True}}


def _ask(client: Client, prompt: str, tools: Any, stream: bool, **options: Any) -> dict[str, Any]:
    """Content, calls and finish reason of a chat reply; a stream is put together again."""
    chat = openai.OpenAI(base_url=f"{client.url}/v1", api_key="none").chat.completions
    given = {"model": "m", "messages": [{"role": "user", "content": prompt}], "tools": tools, **options}
    if not stream:
        (choice,) = chat.create(temperature=0, **given).choices
        calls = [(c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]
        return {"content": choice.message.content or "", "calls": calls, "finish": choice.finish_reason}
    return _joined(chat.create(temperature=0, stream=True, **given))


def _joined(chunks: Any) -> dict[str, Any]:
    content, calls, finish = "", [], None
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        finish = choice.finish_reason or finish
        content += choice.delta.content or ""
        for part in choice.delta.tool_calls or []:
            assert bool(part.id) == bool(part.function.name)
            if part.id:
                assert part.index == len(calls)
                calls.append((part.function.name, ""))
            name, arguments = calls[part.index]
            calls[part.index] = name, arguments + (part.function.arguments or "")
    return {"content": content, "calls": calls, "finish": finish}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "flip"}}])
def test_forced_calls_are_the_same_streamed_and_not_with_drafts_and_without(
    small_plain: Client, small_toolspec: Client, choice: Any
) -> None:
    options = {"tool_choice": choice, **ONE_CALL}
    for prompt in PROMPTS[:4]:
        expected = _ask(small_plain, prompt, STRICT, False, **options)
        assert expected["finish"] == "tool_calls"
        ((_, arguments),) = expected["calls"]
        assert set(json.loads(arguments)) == {"side", "loud"}
        for client in (small_plain, small_toolspec):
            assert _ask(client, prompt, STRICT, True, **options) == expected
        assert _ask(small_toolspec, prompt, STRICT, False, **options) == expected


def test_free_replies_are_the_same_text_streamed_and_not(small_plain: Client, small_toolspec: Client) -> None:
    for prompt in PROMPTS[:4]:
        expected = _ask(small_plain, prompt, TOOLS, False, max_tokens=48)
        if not expected["calls"]:
            assert _ask(small_toolspec, prompt, TOOLS, True, max_tokens=48) == expected


def test_a_tool_without_arguments_has_empty_ones_at_once(small_toolspec: Client) -> None:
    none = {"type": "object", "properties": {}, "additionalProperties": False}
    tools = [{"type": "function", "function": {"name": "now", "parameters": none, "strict": True}}]

    for stream in (False, True):
        got = _ask(small_toolspec, "What time is it?", tools, stream, tool_choice="required", **ONE_CALL)
        assert got == {"content": "", "calls": [("now", "{}")], "finish": "tool_calls"}
