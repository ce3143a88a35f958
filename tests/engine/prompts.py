"""Prompts and tools of the engine tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest


def tool(name: str, required: list[str], **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [
    tool("alpha", ["city"], city={"type": "string"}, unit={"enum": ["celsius", "kelvin"]}),
    tool("beta", [], loud={"type": "boolean"}, times={"type": "integer"}),
    tool("get_city", ["city", "loud"], city={"type": "string"}, loud={"type": "boolean"}),
]
PROMPTS = [
    "What is the weather in Lima?",
    'Repeat: {"name": "alpha", "arguments": {"city": "Oslo"}}',
    "你好 🙂 <tool_call>",
    "Call beta three times, loudly.",
    "a" * 200,
    "City of light? get_city it.",
]


def dataset_rows(name: str, count: int) -> list[dict[str, Any]]:
    """The first ``count`` rows of a file below ``TOOLSPEC_DATA``; skips where it is absent."""
    folder = os.environ.get("TOOLSPEC_DATA")
    if not folder or not (Path(folder) / name).is_file():
        pytest.skip(f"TOOLSPEC_DATA is not set to a folder that holds {name}")
    with (Path(folder) / name).open() as lines:
        return [json.loads(line) for _, line in zip(range(count), lines, strict=False)]


def apibank_messages(row: dict[str, Any]) -> list[dict[str, str]]:
    """A row's messages with the paper's own system text."""
    dialogue = [m for m in row["messages"] if m["role"] != "system"]
    return [{"role": "system", "content": row["raw_system"]}, *dialogue]
