"""The tools of one request: validated, immutable, hashable, and small enough to compile."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

from sglang_toolspec.errors import UserError

MAX_TOOLS = 512
MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_NAME = 256
MAX_DESCRIPTION = 1 << 14
_MAX_INT_BITS = 4096
_MAX_SHOWN = 240


@dataclass(frozen=True)
class Tool:
    """A callable tool: its name and the JSON Schema of its arguments object.

    ``description`` is for readers: tools that differ only there are equal.
    """

    name: str
    parameters: Mapping[str, Any] = field(hash=False)
    description: str = field(default="", compare=False)

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
        placed = ((f"/{where}/{i}", entry) for i, entry in enumerate(tools))
        return cls.from_checked(((at, openai_tool(entry, at)) for at, entry in placed), where)

    @classmethod
    def from_checked(cls, tools: Iterable[tuple[str, Tool]], where: str = "tools") -> ToolSet:
        """From pairs of the JSON pointer of a tool and the tool, as ``checked_tool`` makes it.

        Raises ``UserError`` for what no tool shows alone: a repeated name, too many, too
        large. Stops at the first fault, so ``tools`` may be endless.
        """
        parsed: dict[str, Tool] = {}
        written: list[str] = []
        size = 0
        for at, tool in tools:
            if len(parsed) >= MAX_TOOLS:
                raise UserError(f"/{where} has more than {MAX_TOOLS} tools; send fewer")
            if tool.name in parsed:
                raise UserError(f"{at} repeats the tool name {shown(tool.name)}; names must differ")
            parsed[tool.name] = tool
            written.append(json.dumps({"name": tool.name, "parameters": tool.parameters}))
            size += len(written[-1]) + len(", ")
            if size > MAX_BYTES:
                longest, name = max(zip(map(len, written), parsed, strict=True))
                raise UserError(
                    f"/{where} holds more than {MAX_BYTES} bytes, {longest} of them in tool {shown(name)}; "
                    "shorten the schemas"
                )
        return cls(tuple(parsed.values()), f"[{', '.join(written)}]")


def openai_tool(entry: Any, at: str) -> Tool:
    """The tool in OpenAI's form (or bare) that stands at the JSON pointer ``at``."""
    if not isinstance(entry, Mapping):
        raise UserError(f"{at} must be an object, not {type(entry).__name__}")
    function = entry.get("function", entry)
    at = f"{at}/function" if "function" in entry else at
    if not isinstance(function, Mapping):
        raise UserError(f"{at} must be an object, not {type(function).__name__}")
    return checked_tool(
        function.get("name"),
        function.get("parameters"),
        function.get("description"),
        name_at=f"{at}/name",
        schema_at=f"{at}/parameters",
    )


def checked_tool(name: Any, parameters: Any, description: Any, *, name_at: str, schema_at: str) -> Tool:
    """A tool of these parts, copied from the sender.

    ``name_at`` and ``schema_at`` are the JSON pointers that a ``UserError`` names. Absent
    parameters read as ``{}``; a description that is no text, as none.
    """
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        raise UserError(f"{name_at} must be a string of 1 to {MAX_NAME} characters")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, Mapping):
        raise UserError(
            f"{schema_at} (tool {shown(name)}) must be a JSON Schema object, not {type(parameters).__name__}"
        )
    # Cut, because it counts towards no limit and lives as long as the caches of tool sets.
    text = description[:MAX_DESCRIPTION] if isinstance(description, str) else ""
    return Tool(name, _Copier(name, schema_at).copy(parameters), text)


def shown(text: str) -> str:
    """``text`` quoted for a message: printable, and no longer than a line."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


class _Copier:
    """Copies one schema into plain dicts and lists, which the sender cannot change any more.

    Refuses what JSON cannot hold, nesting that would exhaust later recursion, and more
    values than ``MAX_BYTES`` can write: parts that a Python object shares multiply.
    """

    def __init__(self, tool: str, root: str) -> None:
        self._tool = tool
        self._root = root
        self._path: list[str | int] = []
        self._left = MAX_BYTES // 2  # the least that JSON writes for a value, with what separates it

    def copy(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            self._refuse(f"holds more values than fit in {MAX_BYTES} bytes; shorten the schema")
        if len(self._path) > MAX_DEPTH:
            self._refuse(f"is nested deeper than {MAX_DEPTH} levels; flatten the schema")
        if value is None or isinstance(value, str | bool):
            return value
        if isinstance(value, Mapping):
            return {self._key(key): self._below(key, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._below(i, item) for i, item in enumerate(value)]
        return self._number(value)

    def _below(self, key: str | int, item: Any) -> Any:
        self._path.append(key)
        copied = self.copy(item)
        self._path.pop()
        return copied

    def _key(self, key: Any) -> str:
        if not isinstance(key, str):
            self._refuse(f"has a key of type {type(key).__name__}; write it as a string")
        return key

    def _number(self, value: Any) -> int | float:
        if not isinstance(value, int | float):
            self._refuse(f"holds a {type(value).__name__}, which is not a JSON value; remove it")
        if isinstance(value, float) and not math.isfinite(value):
            self._refuse(f"holds {value}, which is not a JSON value; use a finite number")
        if isinstance(value, int) and value.bit_length() > _MAX_INT_BITS:
            self._refuse(f"holds an integer of {value.bit_length()} bits; use a smaller one")
        return value

    def _refuse(self, problem: str) -> NoReturn:
        at = "/".join([self._root, *map(_pointer_token, self._path)])
        if len(at) > _MAX_SHOWN:
            at = f"{at[:_MAX_SHOWN]}..."
        raise UserError(f"{at} (tool {shown(self._tool)}) {problem}")


def _pointer_token(key: str | int) -> str:
    """One step of a JSON pointer, printable and no longer than a line."""
    token = str(key)[:_MAX_SHOWN].replace("~", "~0").replace("/", "~1")
    return token if token.isprintable() else repr(token)[1:-1]
