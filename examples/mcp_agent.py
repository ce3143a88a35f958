"""An agent over an MCP server: python examples/mcp_agent.py "What time is it in Lima?"

Starts the MCP server (--server, a command; the time server by default), offers its tools to the model,
calls them as the model says, and prints the answer and what the server drafted. Needs the Python packages
mcp and mcp-server-time. Starts a server of the default model, or asks the one at --url.
"""

import argparse
import asyncio
import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import httpx
import openai
from rich.console import Console

from sglang_toolspec.server_process import serving

try:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
except ImportError:
    sys.exit("this example needs the MCP client; install it with: pip install mcp mcp-server-time")

QUESTION = "What time is it in Lima?"
SERVER = f"{sys.executable} -m mcp_server_time"
MAX_CALLS = 4
console = Console(highlight=False, markup=False)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--server", default=SERVER, help="the command that starts the MCP server")
    parser.add_argument("--url", help="a running SGLang server; without it one is started")
    args = parser.parse_args(argv)
    with serving(args.url) as url:
        asyncio.run(run(url, shlex.split(args.server), args.question))


async def run(url: str, command: list[str], question: str) -> None:
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    server = StdioServerParameters(command=command[0], args=command[1:])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = [openai_tool(tool) for tool in (await session.list_tools()).tools]
        console.print("Tools:", ", ".join(tool["function"]["name"] for tool in tools))
        console.print(f"\n{question}", style="bold")
        messages: list[Any] = [{"role": "user", "content": question}]
        options: dict[str, Any] = {"model": "default", "tools": tools, "temperature": 0, "max_tokens": 200}
        for number in range(MAX_CALLS + 1):
            # The first turn must call a tool; after the last one the model may only answer.
            choice = "required" if number == 0 else "auto" if number < MAX_CALLS else "none"
            reply = await client.chat.completions.create(messages=messages, tool_choice=choice, **options)
            said = reply.choices[0].message
            show_drafts(url, reply)
            if not said.tool_calls:
                console.print(said.content or "", style="green")
                return
            messages.append(said.model_dump(exclude_none=True))
            for call in said.tool_calls:
                text = await outcome(session, call.function.name, call.function.arguments)
                called = f"{call.function.name}({call.function.arguments})"
                console.print(f"  {called}", style="cyan", soft_wrap=True)
                console.print(f"  {text}", soft_wrap=True)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


def openai_tool(tool: Any) -> dict[str, Any]:
    """An MCP tool as OpenAI's clients give it; its schema holds the arguments."""
    described = tool.model_dump(by_alias=True)
    function = {key: described[key] for key in ("name", "description")}
    function |= {"parameters": described["inputSchema"], "strict": True}
    return {"type": "function", "function": function}


async def outcome(session: Any, name: str, arguments: str) -> str:
    """What the tool says; a fault goes to the model as well."""
    try:
        result = await session.call_tool(name, json.loads(arguments))
    except Exception as error:
        return f"error: {error}"
    return "\n".join(part.text for part in result.content if part.type == "text")


def show_drafts(url: str, reply: Any) -> None:
    """What became of the reply's drafts, where the server runs TOOLSPEC."""
    answer = httpx.get(f"{url}/toolspec/requests/{reply.id}")
    if answer.status_code == 200:
        told = answer.json()
        sources = ", ".join(f"{source} {count}" for source, count in told["accepted"].items())
        console.print(f"[{told['tokens']} tokens in {told['verify_steps']} steps; {sources}]", style="dim")


if __name__ == "__main__":
    main()
