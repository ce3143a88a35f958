"""Real MCP servers over stdio: their tools go to the model, its calls to them, their results back.

``python tests/clients/mcp_loop.py URL REPOSITORY``
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import asked
import openai
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


def ask(url: str) -> dict[str, Any]:
    repository = sys.argv[2]
    errands = (
        ("mcp_server_time", [], "get_current_time", "What time is it in Lima?"),
        ("mcp_server_time", [], "convert_time", "It is 16:30 in Lima; what time is that in Tokyo?"),
        ("mcp_server_git", ["--repository", repository], "git_log",
         f"Show the last commit of the repository {repository}"),
        ("mcp_server_git", ["--repository", repository], "git_status",
         f"What is the status of the repository {repository}?"),
    )  # fmt: skip
    return {"errands": [asyncio.run(run(url, *errand)) for errand in errands]}


async def run(url: str, module: str, args: list[str], name: str, question: str) -> dict[str, Any]:
    """One question: a call of the tool ``name``, its result, and the model's answer to that."""
    server = StdioServerParameters(command=sys.executable, args=["-m", module, *args])
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        offered = [tool.model_dump(mode="json", by_alias=True) for tool in (await session.list_tools()).tools]
        tools = [openai_tool(tool) for tool in offered]
        messages: list[Any] = [{"role": "user", "content": question}]
        options = {"model": "m", "tools": tools, "temperature": 0}
        choice = {"type": "function", "function": {"name": name}}
        reply = await client.chat.completions.create(
            messages=messages, tool_choice=choice, max_tokens=120, **options
        )
        called = reply.choices[0].message
        messages.append(called.model_dump(exclude_none=True))
        results = []
        for call in called.tool_calls or []:
            result = await session.call_tool(call.function.name, json.loads(call.function.arguments))
            text = "\n".join(part.text for part in result.content if part.type == "text")
            results.append({"text": text, "error": is_error(result)})
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        answer = await client.chat.completions.create(
            messages=messages, tool_choice="none", max_tokens=40, **options
        )
    calls = [(call.function.name, call.function.arguments) for call in called.tool_calls or []]
    return {
        "offered": offered,
        "sent": tools,
        "calls": calls,
        "results": results,
        "answer": answer.choices[0].message.content,
    }


def openai_tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = {
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["inputSchema"],
        "strict": True,
    }
    return {"type": "function", "function": function}


def is_error(result: Any) -> bool:
    return bool(getattr(result, "isError", getattr(result, "is_error", False)))


asked.tell(ask)
