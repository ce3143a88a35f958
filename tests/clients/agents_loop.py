"""The OpenAI Agents SDK: its runner calls the tool and asks again; whole and streamed."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import asked
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def flip(side: Literal["left", "right"], loud: bool) -> str:
    """Flip to a side."""
    return f"flipped to the {side}{'!' if loud else ''}"


def ask(url: str) -> dict[str, Any]:
    return asyncio.run(both(url))


async def both(url: str) -> dict[str, Any]:
    agent = Agent(
        name="flipper",
        instructions="Flip.",
        tools=[flip],
        model=OpenAIChatCompletionsModel(
            model="m", openai_client=AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
        ),
        model_settings=ModelSettings(
            temperature=0,
            max_tokens=asked.LIMIT,
            tool_choice="required",  # for the first turn; then the model may answer
            extra_body={**asked.KEEP_STOP, "stop": asked.STOP},
        ),
    )
    found: dict[str, Any] = {"whole": [], "streamed": []}
    for prompt in asked.PROMPTS[:1]:
        found["whole"].append(told(await Runner.run(agent, prompt, max_turns=3)))
        running = Runner.run_streamed(agent, prompt, max_turns=3)
        async for _ in running.stream_events():
            pass
        found["streamed"].append(told(running))
    return found


def told(result: Any) -> dict[str, Any]:
    raw = [item.raw_item for item in result.new_items if item.type == "tool_call_item"]
    outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    calls = [(call.name, call.arguments) for call in raw]
    return {"calls": calls, "results": outputs, "answer": result.final_output}


asked.tell(ask)
