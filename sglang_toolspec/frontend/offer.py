"""What one ``gen`` offers the model: tools, and which of them it may or must call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.sources import described_tools
from sglang_toolspec.grammars.tools import Tool, ToolSet, shown
from sglang_toolspec.runtime.request import ToolRequest

_CHOICES = ("auto", "required", "none")
_FUNCTION_KEYS = ("name", "description", "parameters", "strict")


@dataclass(frozen=True, eq=False)
class Offer:
    """Immutable. ``choice`` is ``auto``, ``required``, ``none``, or the one tool to call."""

    tools: ToolSet
    choice: str
    openai: tuple[dict[str, Any], ...]
    """The tools as an OpenAI client would send them."""
    described_by: Mapping[str, Any] = field(repr=False)
    """What the user gave for each tool, by its name."""

    @property
    def forced(self) -> bool:
        return self.choice not in ("auto", "none")

    @cached_property
    def wire(self) -> str:
        """For ``custom_params.toolspec``."""
        return ToolRequest(self.tools, self.choice).to_wire()

    @property
    def openai_choice(self) -> str | dict[str, Any]:
        if self.choice in _CHOICES:
            return self.choice
        return {"type": "function", "function": {"name": self.choice}}


def make_offer(tools: Any, tool_choice: Any = None) -> Offer:
    """From whatever ``described_tools`` reads, and OpenAI's choices or a list of names.

    A list offers only the tools that it names and forces a call of one of them.
    Raises ``UserError``.
    """
    tool_set, given = described_tools(tools)
    if not tool_set.tools:
        raise UserError("/tools holds no tool; leave tools out for a reply without calls")
    choice, allowed = _choice(tool_choice, tool_set)
    offered = ToolSet.from_checked((tool.name, tool) for tool in tool_set.tools if tool.name in allowed)
    openai = tuple(_openai(tool, given[tool.name]) for tool in offered.tools)
    return Offer(offered, choice, openai, given)


def _choice(choice: Any, tools: ToolSet) -> tuple[str, frozenset[str]]:
    """The choice, and the names that it allows."""
    names = frozenset(tools.by_name)
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        choice = function.get("name") if isinstance(function, Mapping) else None
    if choice is None:
        return "auto", names
    if isinstance(choice, str) and (choice in _CHOICES or choice in names):
        return choice, names
    if isinstance(choice, list | tuple | set | frozenset) and choice and names.issuperset(choice):
        return ("required" if len(choice) > 1 else next(iter(choice))), frozenset(choice)
    raise UserError(
        f"tool_choice must be one of {', '.join(_CHOICES)}, the name of a tool or a list of names "
        f"({', '.join(map(shown, list(tools.by_name)[:8]))}), not {shown(str(choice))}"
    )


def _openai(tool: Tool, given: Any) -> dict[str, Any]:
    parameters = dict(tool.parameters)
    if isinstance(given, Mapping) and "name" in given.get("function", given):
        source = given.get("function", given)
        function = {key: source[key] for key in source if key in _FUNCTION_KEYS}
        if "parameters" in function or parameters:
            function["parameters"] = parameters
        if tool.description:
            function.setdefault("description", tool.description)
    else:
        described = {"description": tool.description} if tool.description else {}
        function = {"name": tool.name, **described, "parameters": parameters}
    return {"type": "function", "function": function}
