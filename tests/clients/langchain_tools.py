"""LangChain's model with a bound tool: a call, the tool's result, an answer; whole and streamed."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any, Literal

import asked
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def flip(side: Literal["left", "right"], loud: bool) -> str:
    """Flip to a side."""
    return f"flipped to the {side}{'!' if loud else ''}"


def ask(url: str) -> dict[str, Any]:
    options = {"model": "m", "base_url": f"{url}/v1", "api_key": "none", "temperature": 0}
    calling = ChatOpenAI(**options, max_tokens=asked.LIMIT, stop=asked.STOP, extra_body=asked.KEEP_STOP)
    forced = calling.bind_tools([flip], tool_choice="required", strict=True)
    answering = ChatOpenAI(**options, max_tokens=asked.SHORT)
    whole = [loop(forced.invoke, answering.invoke, prompt) for prompt in asked.PROMPTS]
    streamed = [loop(joined(forced), joined(answering), prompt) for prompt in asked.PROMPTS]
    return {"whole": whole, "streamed": streamed}


def joined(model: Any) -> Any:
    """Streams a reply and adds its chunks up, as LangChain does."""
    return lambda messages: reduce(add, model.stream(messages))


def loop(call: Any, answer: Any, prompt: str) -> dict[str, Any]:
    messages: list[Any] = [HumanMessage(prompt)]
    called = call(messages)
    results = [flip.invoke(made) for made in called.tool_calls]
    answered = answer([*messages, called, *results])
    return {
        "content": called.text,
        "calls": [(made["name"], made["args"]) for made in called.tool_calls],
        "finish": called.response_metadata["finish_reason"],
        "results": [result.content for result in results],
        "answer": answered.text,
    }


asked.tell(ask)
