"""One row of a workload: what any of the file formats says about one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """``messages`` in OpenAI's form, or a ``prompt`` as text or token ids; the other is ``None``.

    ``tools`` in OpenAI's form, none for plain chat. ``raw_system``: the data set's own system text,
    which lists the tools in its own way. ``options``: more fields of the OpenAI body.
    """

    id: str
    messages: list[dict[str, Any]] | None = None
    tools: list[Any] = field(default_factory=list)
    tool_choice: Any = "auto"
    prompt: str | list[int] | None = None
    raw_system: str = ""
    options: dict[str, Any] = field(default_factory=dict)


def user(text: str) -> list[dict[str, Any]]:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


def function(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A tool in OpenAI's form."""
    described = {"name": name, "description": description, "parameters": dict(parameters)}
    return {"type": "function", "function": described}
