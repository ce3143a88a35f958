"""What a request tells the drafters: its tools and its tool choice, as one JSON string.

SGLang carries ``custom_params`` to the scheduler only as scalars, so the HTTP side
validates everything here and sends the string that ``to_wire`` makes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.tools import ToolSet

FIELD = "toolspec"
"""Key in ``sampling_params.custom_params``."""

_POINTER = f"/custom_params/{FIELD}"
_CHOICES = ("auto", "required", "none")
_KEYS = {"tools", "tool_choice"}


@dataclass(frozen=True)
class ToolRequest:
    """``tool_choice`` is ``auto``, ``required``, ``none``, or the name of one tool of ``tools``."""

    tools: ToolSet
    tool_choice: str = "auto"

    @property
    def offered(self) -> ToolSet:
        """The tools that may be called: one for a named choice, none for ``none``."""
        if self.tool_choice == "none":
            return ToolSet.from_openai([])
        if self.tool_choice in _CHOICES:
            return self.tools
        tool = self.tools.by_name[self.tool_choice]
        return ToolSet.from_openai([{"name": tool.name, "parameters": tool.parameters}])

    @property
    def constrained(self) -> bool:
        return self.tool_choice not in ("auto", "none")

    def to_wire(self) -> str:
        return f'{{"tool_choice": {json.dumps(self.tool_choice)}, "tools": {self.tools.wire}}}'

    @classmethod
    def from_wire(cls, wire: str) -> ToolRequest:
        """The inverse of ``to_wire``; raises ``UserError`` on anything else."""
        try:
            value = json.loads(wire)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{_POINTER} is not valid JSON: {error}") from error
        return cls.from_object(value)

    @classmethod
    def from_object(cls, value: Any) -> ToolRequest:
        """From ``{"tools": [...], "tool_choice": ...}``, tools in OpenAI's form."""
        if not isinstance(value, Mapping):
            raise UserError(f"{_POINTER} must be an object with 'tools', or its JSON text")
        if unknown := sorted(set(value) - _KEYS):
            raise UserError(f"{_POINTER} has the unknown key '{unknown[0]}'; use {sorted(_KEYS)}")
        tools = ToolSet.from_openai(value.get("tools", []), where=f"{_POINTER[1:]}/tools")
        return cls(tools, _tool_choice(value.get("tool_choice", "auto"), tools))


def _tool_choice(choice: Any, tools: ToolSet) -> str:
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        choice = function.get("name") if isinstance(function, Mapping) else None
        if choice in _CHOICES:  # a tool of that name cannot be told from the keyword
            return "required"
    if isinstance(choice, str) and (choice in _CHOICES or choice in tools.by_name):
        return choice
    raise UserError(
        f"{_POINTER}/tool_choice must be one of {', '.join(_CHOICES)}, or name one of the tools, "
        f"not {choice!r}"
    )
