"""Prompts and tools of the engine tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


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
    "Drei Städte, bitte: Köln, Łódź, São Paulo.",
    '{"name": "beta", "arguments": {}}\n' * 3,
]


ASSISTANT = Path(__file__).resolve().parents[2] / "examples" / "assistant.json"


def tool_calling_rows(count: int) -> list[dict[str, Any]]:
    """Rows with ``id``, ``messages`` and ``tools``: of ``apibank_l1.jsonl`` below ``TOOLSPEC_DATA``
    with the paper's own system text, else of this project's demo."""
    folder = os.environ.get("TOOLSPEC_DATA")
    if folder and (Path(folder) / "apibank_l1.jsonl").is_file():
        with (Path(folder) / "apibank_l1.jsonl").open() as lines:
            read = [json.loads(line) for _, line in zip(range(count), lines, strict=False)]
        return [{"id": r["id"], "messages": apibank_messages(r), "tools": r["tools"]} for r in read]
    workload = json.loads(ASSISTANT.read_text())
    system = "Answer with one tool call, a JSON object with name and arguments. Tools: "
    return [
        {
            "id": f"assistant-{i}",
            "messages": [
                {"role": "system", "content": system + json.dumps(workload["tools"][:2])},
                {"role": "user", "content": request["prompt"]},
            ],
            "tools": workload["tools"][:2],
        }
        for i, request in enumerate(workload["requests"][:count])
    ]


def apibank_messages(row: dict[str, Any]) -> list[dict[str, str]]:
    """A row's messages with the paper's own system text."""
    dialogue = [m for m in row["messages"] if m["role"] != "system"]
    return [{"role": "system", "content": row["raw_system"]}, *dialogue]
