"""Anthropic's client at SGLang's /v1/messages: replies whole and streamed."""

from __future__ import annotations

from typing import Any

import anthropic
import asked

TOOL = {"name": "flip", "description": asked.DESCRIPTION, "input_schema": asked.SCHEMA, "strict": True}
CHOICES = ({"type": "any"}, {"type": "tool", "name": "flip"}, {"type": "none"})


def ask(url: str) -> dict[str, Any]:
    messages = anthropic.Anthropic(base_url=url, api_key="none").messages
    found: dict[str, Any] = {"version": anthropic.__version__, "whole": [], "streamed": []}
    for prompt in asked.PROMPTS:
        for choice in CHOICES:
            given: dict[str, Any] = {
                "model": "m",
                "messages": [{"role": "user", "content": prompt}],
                "tools": [TOOL],
                "tool_choice": choice,
                "max_tokens": asked.SHORT if choice["type"] == "none" else asked.LIMIT,
                "stop_sequences": asked.STOP,
                "extra_body": {"temperature": 0},  # the newest clients have no argument for it
            }
            found["whole"].append(told(messages.create(**given)))
            with messages.stream(**given) as events:
                found["streamed"].append(told(events.get_final_message()))
    return found


def told(message: Any) -> dict[str, Any]:
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
    return {"content": text, "calls": calls, "finish": message.stop_reason}


asked.tell(ask)
