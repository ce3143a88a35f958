"""OpenAI's own client, streaming, with a tool loop: python examples/openai_client.py

Starts a server of the default model, or asks the one at --url. Nothing in the client knows of
TOOLSPEC; the last line asks the server what it drafted.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import openai

from sglang_toolspec.server_process import serving

TIMES = {"UTC": "12:00", "Europe/Oslo": "13:00", "America/Lima": "07:00"}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_time",
            "description": "The time in a zone.",
            "parameters": {
                "type": "object",
                "properties": {"zone": {"type": "string", "enum": list(TIMES)}},
                "required": ["zone"],
            },
            "strict": True,
        },
    }
]
QUESTION = "What time is it in Lima?"


def get_time(zone: str) -> str:
    return TIMES[zone]


FUNCTIONS: dict[str, Callable[..., str]] = {"get_time": get_time}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", help="a running server; without it one is started")
    args = parser.parse_args(argv)
    with serving(args.url) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        print(QUESTION)
        called, rid = stream(client, messages, tools=TOOLS, tool_choice="required", max_tokens=80)
        messages.append(called)
        for call in called.get("tool_calls", []):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": answer(call["function"])})
        stream(client, messages, max_tokens=40)
        drafts = httpx.get(f"{url}/toolspec/requests/{rid}")
        if drafts.status_code == 200:
            told = drafts.json()
            print(f"[the call: {told['tokens']} tokens in {told['verify_steps']} steps, {told['accepted']}]")


def stream(client: openai.OpenAI, messages: list[Any], **options: Any) -> tuple[dict[str, Any], str]:
    """The streamed message, printed as it comes, and the request's id."""
    content, calls, rid = "", [], ""
    for chunk in client.chat.completions.create(
        model="default", messages=messages, temperature=0, stream=True, **options
    ):
        rid = chunk.id
        for delta in (choice.delta for choice in chunk.choices):
            content += delta.content or ""
            print(delta.content or "", end="", flush=True)
            for part in delta.tool_calls or []:
                print(part.function.name or part.function.arguments, end="", flush=True)
                if part.id:  # the first part of a call has its name, the others its arguments
                    function = {"name": part.function.name, "arguments": ""}
                    calls.append({"id": part.id, "type": "function", "function": function})
                calls[part.index]["function"]["arguments"] += part.function.arguments or ""
    print()
    message = {"role": "assistant", "content": content}
    return ({**message, "tool_calls": calls} if calls else message), rid


def answer(function: dict[str, str]) -> str:
    """What a tool says; a fault goes to the model as well."""
    try:
        return FUNCTIONS[function["name"]](**json.loads(function["arguments"]))
    except (KeyError, TypeError, ValueError) as error:
        return f"error: {error!r}"


if __name__ == "__main__":
    main()
