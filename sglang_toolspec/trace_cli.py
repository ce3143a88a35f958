"""``sglang-toolspec trace``: one request to a running server, and who drafted each token of its reply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from sglang_toolspec.compile_cli import read_json, read_tools
from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.tools import ToolSet

MAX_TOKENS = 512


def trace(
    url: Annotated[str, typer.Argument(metavar="URL", help="A running server: http://127.0.0.1:30000")],
    request: Annotated[
        Path | None,
        typer.Option(help="The body of a /generate or /v1/chat/completions request; - reads stdin."),
    ] = None,
    chat: Annotated[str, typer.Option(help="A chat message to send instead.")] = "",
    tools: Annotated[
        Path | None, typer.Option(help="For --chat: tools it may call (OpenAI, MCP, JSON Schema).")
    ] = None,
    api_key: Annotated[str, typer.Option(help="The server's --api-key.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show which source drafted each token of a reply, one line a verify step."""
    from sglang_toolspec.trace_client import trace_request
    from sglang_toolspec.trace_view import print_trace

    traced = trace_request(url, _body(request, chat, tools), api_key)
    if as_json:
        print(json.dumps(traced.to_json()))
    else:
        print_trace(traced)


def _body(request: Path | None, chat: str, tools: Path | None) -> Any:
    if (request is None) == (not chat):
        raise UserError("give either --request FILE or --chat TEXT")
    if request is not None:
        if tools is not None:
            raise UserError("--tools is for --chat; the file of --request has its own 'tools'")
        return read_json(request)
    body: dict[str, Any] = {
        "model": "default",
        "messages": [{"role": "user", "content": chat}],
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
    }
    return body if tools is None else {**body, "tools": _openai(read_tools(tools))}


def _openai(tools: ToolSet) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
        }
        for t in tools.tools
    ]
