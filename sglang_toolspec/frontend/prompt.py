"""A program's turns as the messages that an OpenAI client would send for the same conversation."""

from __future__ import annotations

from typing import Any

from sglang_toolspec.errors import UserError
from sglang_toolspec.frontend.arguments import loaded
from sglang_toolspec.frontend.offer import Offer
from sglang_toolspec.frontend.reading import Parsers, read_reply


def chat(executor: Any, offer: Offer, parsers: Parsers) -> dict[str, Any] | None:
    """The body of a tokenize request for a program that stands in an assistant's turn.

    ``None`` for a program without turns, whose text is the prompt. Raises ``UserError`` elsewhere.
    """
    if executor.images_:
        raise UserError("gen(tools=…) takes no images; give them to a gen without tools")
    if executor.cur_role is None and not executor.messages_:
        return None
    if executor.cur_role != "assistant":
        raise UserError("gen(tools=…) must stand in an assistant's turn: s += sgl.assistant(gen(…))")
    messages = _as_sent(_without_default(executor), offer, parsers)
    begun = executor.text_[executor.cur_role_begin_pos :]
    if begun:
        messages.append({"role": "assistant", "content": begun})
    return {
        "messages": messages,
        "tools": list(offer.openai),
        "tool_choice": offer.openai_choice,
        "continue_final_message": bool(begun),
    }


def _without_default(executor: Any) -> list[dict[str, Any]]:
    """Without the system message that SGLang's frontend puts first: the model's template has its own."""
    default = executor.chat_template.default_system_prompt
    messages = list(executor.messages_)
    if default and messages[:1] == [{"role": "system", "content": default.lstrip()}]:
        return messages[1:]
    return messages


def _as_sent(messages: list[dict[str, Any]], offer: Offer, parsers: Parsers) -> list[dict[str, Any]]:
    """Calls and their results in OpenAI's fields; so the template writes them as it was trained to."""
    sent: list[dict[str, Any]] = []
    waiting: list[str] = []
    count = 0
    for message in messages:
        if message["role"] == "tool":
            identity = waiting.pop(0) if waiting else f"call_{count}"
            sent.append({**message, "tool_call_id": identity})
            continue
        content, found = ("", []) if message["role"] != "assistant" else _read(message, offer, parsers)
        if not found:
            sent.append(message)
            continue
        calls = [_call(name, raw, count + i, parsers) for i, (name, raw) in enumerate(found)]
        count += len(calls)
        waiting = [call["id"] for call in calls]
        sent.append({"role": "assistant", "content": content or None, "tool_calls": calls})
    return sent


def _read(message: dict[str, Any], offer: Offer, parsers: Parsers) -> tuple[str, list[tuple[str, str]]]:
    """The calls of an earlier turn, if a template can write them: their arguments must be objects."""
    content, found = read_reply(message["content"], offer, parsers)
    try:
        for name, raw in found:
            loaded(raw, name)
    except UserError:
        return content, []
    return content, found


def _call(name: str, raw: str, number: int, parsers: Parsers) -> dict[str, Any]:
    """Kimi's template shows the id to the model, so it must be of the model's own form."""
    identity = f"functions.{name}:{number}" if parsers.tool_call == "kimi_k2" else f"call_{number}"
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": raw}}
