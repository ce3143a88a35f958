"""Replies to requests that force a call of strict tools: read as the server reads them, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sglang_toolspec.bench.rows import Row
from sglang_toolspec.errors import UserError
from sglang_toolspec.frontend import tool_calls
from sglang_toolspec.frontend.offer import make_offer
from sglang_toolspec.frontend.reading import Parsers
from sglang_toolspec.frontend.written import WrittenText


def forced(row: Row) -> Row:
    """The row as a request that must be answered by a call whose arguments fit their schema."""
    tools = [{**tool, "function": {**tool["function"], "strict": True}} for tool in row.tools]
    return replace(row, tools=tools, tool_choice="required")


def fault(row: Row, output_ids: Sequence[int], tokenizer: Any, parser: str) -> str:
    """What is wrong with the reply, in a sentence; empty where all of its calls fit, and it has one."""
    ids = [token for token in output_ids if token != tokenizer.eos_token_id]
    text = tokenizer.decode(ids, skip_special_tokens=False)
    offer = make_offer(row.tools, row.tool_choice)
    calls = tool_calls({"reply": WrittenText.of(text, offer, Parsers(parser))}, "reply")
    try:
        for call in calls:
            call.arguments  # noqa: B018 - checks them
    except UserError as error:
        return str(error)
    return "" if calls else f"no call in {text[:80]!r}"
