"""Tools that stand only in the text of a prompt, for requests that carry none.

Read are the listings that chat templates and tool-calling data sets write:

- Qwen2.5 and Hermes: ``<tools>``, JSON, ``</tools>``
- Mistral: ``[AVAILABLE_TOOLS]``, a JSON array, ``[/AVAILABLE_TOOLS]``
- Llama 3.1 and 3.2: one of three sentences, then JSON objects or an array
- API-Bank: ``API descriptions:``, or just lines that start with ``{"apiCode"``
- API-Bank as the ToolSpec paper writes it: ``1. Name:``, ``Description:``, ``Parameters:``

The text is untrusted: reading takes time linear in its length, never raises, and skips
whatever is no description of a tool. A call, such as an example in the prompt, is none.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.tools import MAX_TOOLS, Tool, ToolSet, checked_tool

MAX_SCAN = 1 << 18
"""Characters of the prompt that are read."""

_MAX_WASTE = 4 * MAX_SCAN
"""Characters of malformed JSON that are read before what follows is given up."""

_FAILURE_SHARE = 16
"""What part of the text a failure counts for beyond its own: ``json`` counts lines up to it."""

_OPENING = (
    "<tools>",
    "[AVAILABLE_TOOLS]",
    "following functions, please respond with a JSON for a function call",
    "You have access to the following functions.",
    "list of functions in JSON format",
    "API descriptions:",
)
_CLOSING = ("</tools>", "[/AVAILABLE_TOOLS]")
_API_CODE, _PARAMETERS = '{"apiCode"', "Parameters:"

_MARKER = re.compile("|".join(map(re.escape, (*_OPENING, *_CLOSING))))
# The first of such lines: the line before it, or before a blank one, ends no object.
_FIRST_API_CODE = re.compile(r"(?<!\}\n)(?<!\}\n\n)^(?=\{\"apiCode\")", re.MULTILINE)
_VALUE_NEXT = re.compile(r"[\s,:]*+(?=[\[{])")
_VALUE_AT_LINE_START = re.compile(r"^[ \t]*+(?=[\[{])", re.MULTILINE)
_ENTRY = re.compile(
    r"""^[ \t]*+(?:\d{1,4}[.)][ \t]*+)?Name:[ \t]*+(?P<name>[^\n]++)\n
        (?:Description:[ \t]*+(?P<description>[^\n]*+
            (?:\n(?!Parameters:|[ \t]*+(?:\d{1,4}[.)][ \t]*+)?Name:)[^\n]*+){0,16}+)\n)?
        Parameters:[ \t]*+(?P<parameters>[^\n]*+)""",
    re.MULTILINE | re.VERBOSE,
)
_PYTHON_TOKEN = re.compile(
    r"""'(?P<single>(?:[^'\\]++|\\.)*+)(?:'|\\?\Z)
      | "(?P<double>(?:[^"\\]++|\\.)*+)(?:"|\\?\Z)
      | \b(?P<word>True|False|None)\b""",
    re.DOTALL | re.VERBOSE,
)
_PYTHON_ESCAPE = re.compile(r"""\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([nrt'"\\]))""")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_WORDS = {"True": "true", "False": "false", "None": "null"}
_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
}
_SCHEMA_KEYS = ("parameters", "input_parameters", "inputSchema", "input_schema")
_JSON_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_LIST_OF = re.compile(r"(?:list|array)\s?[(\[<]\s?(\w{1,16})\s?[)\]>]")


def find_tools(prompt: str) -> ToolSet | None:
    """The tools of the last listing in ``prompt`` that describes any; ``None`` without one.

    Listings are not merged: few-shot prompts hold one a shot, and the last is the live one.
    """
    text = prompt[:MAX_SCAN]
    listings: list[tuple[int, Iterable[Any]]] = []
    if _API_CODE in text or any(opening in text for opening in _OPENING):
        listings += list(_json_listings(text))
    if _PARAMETERS in text:
        listings += list(_numbered_listings(text))
    for _, entries in sorted(listings, key=lambda listing: listing[0], reverse=True):
        if (found := _tool_set(entries)) is not None:
            return found
    return None


def _tool_set(entries: Iterable[Any]) -> ToolSet | None:
    tools: dict[str, Tool] = {}
    for entry in islice(entries, MAX_TOOLS):
        if (tool := _tool(entry)) is not None:
            tools.setdefault(tool.name, tool)
    try:
        return ToolSet.from_checked(("", tool) for tool in tools.values()) if tools else None
    except UserError:  # too large once written with escapes
        return None


def _tool(entry: Any) -> Tool | None:
    """The tool that ``entry`` describes, if it describes one rather than calls it."""
    function = entry.get("function", entry) if isinstance(entry, Mapping) else None
    if not isinstance(function, Mapping) or "arguments" in function:
        return None
    parameters = next((function[key] for key in _SCHEMA_KEYS if key in function), None)
    description = function.get("description")
    schema = _schema(parameters) if parameters else {}
    wrapped = function is not entry or entry.get("type") == "function"
    if schema is None or not (parameters or wrapped or isinstance(description, str)):
        return None  # a call, for all that can be told
    name = function.get("name", function.get("apiCode"))
    try:
        return checked_tool(name, schema, description, name_at="", schema_at="")
    except UserError:
        return None


# Schemas


def _schema(parameters: Any) -> Mapping[str, Any] | None:
    """A JSON Schema as it is, or API-Bank's ``{name: {"type", "description"}}`` as one.

    ``None`` for anything else, such as the arguments of a call.
    """
    if not isinstance(parameters, Mapping):
        return None
    if parameters.get("type") in ("object", "dict") or "$ref" in parameters:
        return parameters
    properties = parameters.get("properties")
    if isinstance(properties, Mapping) and all(isinstance(p, Mapping | bool) for p in properties.values()):
        return parameters
    if not all(isinstance(p, Mapping) and ("type" in p or "description" in p) for p in parameters.values()):
        return None
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {name: _property(p) for name, p in parameters.items()}
    if any("required" in p for p in parameters.values()):
        schema["required"] = [name for name, p in parameters.items() if p.get("required") is True]
    return schema


def _property(described: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in described.items() if key not in ("type", "required")}
    return {**_json_type(described.get("type")), **rest}


def _json_type(written: Any) -> dict[str, Any]:
    """JSON Schema for a type that is written as in Python; ``{}`` (any JSON) for an unknown one."""
    name = str(written).strip().lower() if isinstance(written, str) else ""
    if of := _LIST_OF.fullmatch(name):
        items = _json_type(of[1])
        return {"type": "array", "items": items} if items else {"type": "array"}
    name = _TYPES.get(name, name)
    return {"type": name} if name in _JSON_TYPES else {}


# Listings in JSON


def _json_listings(text: str) -> Iterator[tuple[int, list[Any]]]:
    """Place and values of each JSON listing."""
    markers = [(m.start(), m.end(), m[0] in _CLOSING) for m in _MARKER.finditer(text)]
    reader = _Reader(text, [start for start, _, _ in markers])
    if _API_CODE in text:
        markers += [(m.start(), m.end(), False) for m in _FIRST_API_CODE.finditer(text)]
    for start, end, closing in sorted(markers):
        # Markers that a value holds, as in a description, open no listing.
        if start >= reader.position and not closing:
            yield start, reader.values(end)


class _Reader:
    """Reads listings of one text from left to right; ``position`` is the end of what is read.

    ``bounds`` are the places, in order, that no search for a value may pass. A value itself
    may, so that reading is linear but for malformed values, whose sum ``_MAX_WASTE`` bounds.
    """

    def __init__(self, text: str, bounds: list[int]) -> None:
        self.position = 0
        self._text = text
        self._bounds = bounds
        self._waste = _MAX_WASTE
        self._decoder = json.JSONDecoder()

    def values(self, position: int) -> list[Any]:
        """The JSON objects from ``position`` to the prose after them, be they lines or one array.

        A malformed value is left at the next line.
        """
        self.position = position
        found: list[Any] = []
        prose_may_follow = True
        while self._waste > 0 and len(found) < MAX_TOOLS:
            start = self._value_start(prose_may_follow)
            if start is None:
                break
            try:
                value, self.position = self._decoder.raw_decode(self._text, start)
            except (ValueError, RecursionError) as error:
                self._waste -= self._cost(error, start)
                self.position = min(self._next_line(start), self._bound(start + 1))
                prose_may_follow = True
            else:
                found += value if isinstance(value, list) else [value]
                prose_may_follow = False
        return found

    def _value_start(self, prose_may_follow: bool) -> int | None:
        bound = self._bound(self.position)
        match = _VALUE_NEXT.match(self._text, self.position, bound)
        if match is None and prose_may_follow:
            match = _VALUE_AT_LINE_START.search(self._text, self.position, bound)
        return match.end() if match else None

    def _bound(self, position: int) -> int:
        after = bisect_left(self._bounds, position)
        return self._bounds[after] if after < len(self._bounds) else len(self._text)

    def _next_line(self, position: int) -> int:
        return self._text.find("\n", position) + 1 or len(self._text)

    def _cost(self, error: Exception, start: int) -> int:
        end = len(self._text)
        if isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated"):
            end = error.pos
        return end - start + len(self._text) // _FAILURE_SHARE + 1


# Listings in numbered lines


def _numbered_listings(text: str) -> Iterator[tuple[int, Iterable[Any]]]:
    """Place and entries of each run of ``Name:``, ``Description:``, ``Parameters:`` lines.

    The entries are read when asked for: of many listings, most are never used.
    """
    run: list[re.Match[str]] = []
    for match in _ENTRY.finditer(text):
        if run and text[run[-1].end() : match.start()].strip():
            yield run[0].start(), map(_entry, run)
            run = []
        run.append(match)
    if run:
        yield run[0].start(), map(_entry, run)


def _entry(match: re.Match[str]) -> dict[str, Any] | None:
    parameters = _literal(match["parameters"].strip())
    if not isinstance(parameters, Mapping):
        return None
    description = (match["description"] or "").strip()
    return {"name": match["name"].strip(), "description": description, "parameters": parameters}


def _literal(text: str) -> Any:
    """The value of a JSON or Python literal of dicts, lists, and scalars; ``None`` if malformed.

    Not ``ast.literal_eval``, which untrusted text can crash by its nesting.
    """
    if text in ("", "None"):
        return {}
    for written in (text, _PYTHON_TOKEN.sub(_as_json, text)):
        try:
            return json.loads(written, strict=False)
        except (ValueError, RecursionError):
            continue
    return None


def _as_json(token: re.Match[str]) -> str:
    if token["word"]:
        return _WORDS[token["word"]]
    body = token["single"] if token["single"] is not None else token["double"]
    if "\\" not in body and '"' not in body:
        return f'"{body}"'
    return json.dumps(_PYTHON_ESCAPE.sub(_unescaped, body))


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code is None:
        return _ESCAPED.get(escape[4], escape[4])
    return chr(min(int(code, 16), 0x10FFFF))
