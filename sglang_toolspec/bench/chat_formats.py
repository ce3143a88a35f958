"""Readers of chats: OpenAI request logs and agent traces, normalised rows, and this project's own sample.

A reader turns one item of a file into rows; ``number`` names it where it has no id of its own. It raises
``LookupError``, ``TypeError`` or ``ValueError`` on an item of another format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sglang_toolspec.bench.rows import Row, user

_OPTIONS = ("response_format", "stop", "parallel_tool_calls", "chat_template_kwargs", "reasoning_effort")
"""Fields of a logged body that shape the reply. Sampling is the benchmark's own."""


def chat(item: Mapping[str, Any], number: str) -> Iterator[Row]:
    """An OpenAI body, bare or below ``body`` (OpenAI's batch files) or ``request``; a normalised row; a
    whole conversation, in which each reply of the assistant is asked for again; or a ``prompt``.
    """
    body = next((item[key] for key in ("body", "request") if isinstance(item.get(key), Mapping)), item)
    name = str(item.get("id") or item.get("custom_id") or number)
    tools = [_tool(tool) for tool in body.get("tools") or ()]
    if "messages" not in body:
        yield Row(name, prompt=_prompt(body["prompt"]), tools=tools)
        return
    messages = [_message(message) for message in body["messages"]]
    replies = [i for i, message in enumerate(messages) if i and message["role"] == "assistant"]
    is_trace = bool(messages) and messages[-1]["role"] == "assistant"
    for turn, end in enumerate(replies if is_trace else [len(messages)]):
        yield Row(
            f"{name}/{turn}" if is_trace else name,
            messages[:end],
            tools,
            body.get("tool_choice") or "auto",
            raw_system=str(item.get("raw_system") or ""),
            options={key: body[key] for key in _OPTIONS if body.get(key) is not None},
        )


def assistant(item: Mapping[str, Any], number: str) -> Iterator[Row]:
    """This project's sample: ``{"tools": […], "requests": [{"prompt" or "messages", "tool_choice",
    "tools": [names]}]}``; a request without ``tools`` gets all of them.
    """
    tools = {tool["function"]["name"]: tool for tool in item["tools"]}
    for index, request in enumerate(item["requests"]):
        yield Row(
            f"{number}-{index}",
            [_message(m) for m in request.get("messages") or user(request["prompt"])],
            [tools[name] for name in request.get("tools", tools)],
            request.get("tool_choice", "auto"),
        )


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise ValueError("a message without a role")
    return dict(message)


def _tool(tool: Any) -> dict[str, Any]:
    """In OpenAI's form, also from a bare ``{"name", "parameters"}``."""
    if not isinstance(tool, Mapping):
        raise TypeError("a tool that is no object")
    if "function" in tool:
        return dict(tool)
    return {"type": "function", "function": {**tool, "name": tool["name"]}}


def _prompt(prompt: Any) -> str | list[int]:
    if isinstance(prompt, str) or (isinstance(prompt, list) and all(isinstance(t, int) for t in prompt)):
        return prompt
    raise ValueError("a prompt that is neither text nor token ids")
