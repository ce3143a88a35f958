"""The tools of one request: validated, immutable, hashable, and small enough to compile."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sglang_toolspec.errors import UserError

MAX_TOOLS = 512
MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_NAME = 256


@dataclass(frozen=True)
class Tool:
    """A callable tool: its name and the JSON Schema of its arguments object."""

    name: str
    parameters: Mapping[str, Any] = field(hash=False)

    @property
    def properties(self) -> Mapping[str, Any]:
        """Schemas of the top-level parameters, in declared order."""
        found = self.parameters.get("properties")
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class ToolSet:
    """Tools in the order of the request. ``wire`` is their canonical JSON form."""

    tools: tuple[Tool, ...] = field(compare=False)
    wire: str

    @cached_property
    def key(self) -> str:
        """SHA-256 of ``wire``: equal for equal tools, whoever sends them."""
        return hashlib.sha256(self.wire.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def by_name(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in self.tools}

    @classmethod
    def from_openai(cls, tools: Iterable[Any], where: str = "tools") -> ToolSet:
        """From OpenAI's ``[{"type": "function", "function": {"name", "parameters"}}]``.

        Bare ``{"name", "parameters"}`` entries are taken too. Raises ``UserError`` with
        the JSON pointer of the first fault.
        """
        if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
            raise UserError(f"/{where} must be a list of tools, not {type(tools).__name__}")
        parsed: dict[str, Tool] = {}
        for i, entry in enumerate(tools):
            if i >= MAX_TOOLS:
                raise UserError(f"/{where} has more than {MAX_TOOLS} tools; send fewer")
            tool = _parse_tool(entry, f"/{where}/{i}")
            if tool.name in parsed:
                raise UserError(f"/{where}/{i} repeats the tool name '{tool.name}'; names must differ")
            parsed[tool.name] = tool
        wire = json.dumps([{"name": t.name, "parameters": t.parameters} for t in parsed.values()])
        if len(wire) > MAX_BYTES:
            raise UserError(
                f"/{where} holds {len(wire)} bytes and the limit is {MAX_BYTES}; shorten the schemas"
            )
        return cls(tuple(parsed.values()), wire)


def _parse_tool(entry: Any, pointer: str) -> Tool:
    if not isinstance(entry, Mapping):
        raise UserError(f"{pointer} must be an object, not {type(entry).__name__}")
    function = entry.get("function", entry)
    pointer = f"{pointer}/function" if "function" in entry else pointer
    if not isinstance(function, Mapping):
        raise UserError(f"{pointer} must be an object, not {type(function).__name__}")
    name = function.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        raise UserError(f"{pointer}/name must be a string of 1 to {MAX_NAME} characters")
    parameters = function.get("parameters")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, Mapping):
        raise UserError(f"{pointer}/parameters must be a JSON Schema object, not {type(parameters).__name__}")
    return Tool(name, _copied(parameters, f"{pointer}/parameters"))


def _copied(value: Any, pointer: str, depth: int = 0) -> Any:
    """A copy in plain dicts and lists, which the sender cannot change any more.

    Refuses what JSON cannot hold, and nesting that would exhaust later recursion.
    """
    if depth > MAX_DEPTH:
        raise UserError(f"{pointer} is nested deeper than {MAX_DEPTH} levels; flatten the schema")
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise UserError(f"{pointer} has the key {odd[0]!r}, which is not a string; quote it")
        return {key: _copied(item, f"{pointer}/{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item, f"{pointer}/{i}", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{pointer} holds {value}, which is not a JSON value; use a finite number")
    if value is not None and not isinstance(value, str | bool | int | float):
        raise UserError(f"{pointer} holds a {type(value).__name__}, which is not a JSON value; remove it")
    return value
