"""OpenAI's client: replies whole and streamed, put together by the client's own accumulator."""

from __future__ import annotations

from typing import Any

import asked
import openai

NAMED = {"type": "function", "function": {"name": "flip"}}


def ask(url: str) -> dict[str, Any]:
    chat = openai.OpenAI(base_url=f"{url}/v1", api_key="none").chat.completions
    found: dict[str, Any] = {"version": openai.__version__, "whole": [], "streamed": []}
    for prompt in asked.PROMPTS:
        for choice in ("required", NAMED, "none"):
            given = {
                "model": "m",
                "messages": [{"role": "user", "content": prompt}],
                "tools": [asked.openai_tool()],
                "tool_choice": choice,
                "temperature": 0,
                "max_tokens": asked.SHORT if choice == "none" else asked.LIMIT,
                "stop": asked.STOP,
                "extra_body": asked.KEEP_STOP,
            }
            found["whole"].append(told(chat.create(**given).choices[0]))
            found["streamed"].append(told(streamed(chat, given)))
    return found


def streamed(chat: Any, given: dict[str, Any]) -> Any:
    """The choice that the client puts together. It parses calls on the way, and raises where a reply with
    tools is cut, as those without a call are here: they get their tools past it."""
    if given["tool_choice"] == "none":
        given = {key: value for key, value in given.items() if key not in ("tools", "tool_choice")}
        given["extra_body"] = {**asked.KEEP_STOP, "tools": [asked.openai_tool()], "tool_choice": "none"}
    with chat.stream(**given) as events:
        events.until_done()
        return events.current_completion_snapshot.choices[0]


def told(choice: Any) -> dict[str, Any]:
    calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
    return {"content": choice.message.content or "", "calls": calls, "finish": choice.finish_reason}


asked.tell(ask)
