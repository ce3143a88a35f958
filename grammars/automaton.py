"""The per-request automaton: follows a reply and says what text may come next.

States of the paper (section 3.2): tool name ``q_t``, parameter name ``q_p``, parameter
value ``q_v``, everything else ``q_o``. Forced text comes from xgrammar
(``find_jump_forward_string``); the automaton adds the choices between forced spans.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import xgrammar

from sglang_toolspec.grammars.compile import DraftGrammar, matcher
from sglang_toolspec.grammars.formats import Dialect
from sglang_toolspec.grammars.json_cursor import JsonCursor, Place
from sglang_toolspec.grammars.tools import ToolSet

MAX_PATHS = 16
MAX_BRANCH_DEPTH = 3
MAX_PATH_BYTES = 240
MIN_WEIGHT = 0.02
MAX_CALL_BYTES = 1 << 16
MAX_LIVE = 8

EXIT_PRIOR = 0.3
"""How likely an open value ends right here; calibrated per source in a later issue."""


class State(Enum):
    """The paper's states."""

    OTHER = "q_o"
    TOOL_NAME = "q_t"
    PARAMETER_NAME = "q_p"
    PARAMETER_VALUE = "q_v"


@dataclass(frozen=True)
class Continuation:
    """Text that may come next. ``weight`` estimates its probability; ``ends`` says that
    the reply may end right after it."""

    text: str
    weight: float
    ends: bool = False


@dataclass
class _Call:
    """One reading of the text as a block of calls in one dialect."""

    grammar: DraftGrammar
    matcher: xgrammar.GrammarMatcher
    cursor: JsonCursor = field(default_factory=JsonCursor)
    text: bytearray = field(default_factory=bytearray)
    ordered: bool = True

    @classmethod
    def begin(cls, grammar: DraftGrammar) -> _Call:
        return cls(grammar, matcher(grammar.ordered))

    @property
    def dialect(self) -> Dialect:
        return self.grammar.dialect

    @property
    def complete(self) -> bool:
        return self.matcher.is_completed()

    def fork(self) -> _Call:
        return _Call(
            self.grammar, self.matcher.fork(), self.cursor.fork(), bytearray(self.text), self.ordered
        )

    def accept(self, data: bytes) -> bool:
        """Advance over ``data``, leaving the declared key order if need be."""
        if len(self.text) + len(data) > MAX_CALL_BYTES:
            return False
        if not self.matcher.accept_string(data):
            if not self.ordered:
                return False
            other = matcher(self.grammar.any_order)
            if not other.accept_string(bytes(self.text) + data):
                return False
            self.matcher, self.ordered = other, False
        self._follow(data)
        return True

    def _follow(self, data: bytes) -> None:
        start = len(self.text)
        self.text += data
        opening = len(self.dialect.open.encode())
        rest = bytes(self.text[max(start, opening) :]) if len(self.text) > opening else b""
        while rest:
            if self.cursor.place is Place.DONE:
                if b"{" not in rest or self.dialect.separator is None:
                    return
                self.cursor = JsonCursor()
                rest = rest[rest.index(b"{") :]
            rest = self.cursor.feed(rest)

    @property
    def state(self) -> State:
        path, place = self.cursor.path, self.cursor.place
        if place is Place.IN_STRING and path == (self.dialect.name_key,):
            return State.TOOL_NAME
        if not path or path[0] != self.dialect.arguments_key:
            return State.OTHER
        if place in (Place.KEY_START, Place.IN_KEY):
            return State.PARAMETER_NAME
        if place in (Place.VALUE_START, Place.IN_STRING, Place.IN_SCALAR):
            return State.PARAMETER_VALUE
        return State.OTHER


class ToolAutomaton:
    """Mutable, one per request.

    ``advance`` with the text of committed tokens; ``continuations`` for what may follow.
    Text that is no call costs almost nothing: readings are opened only at the start of a
    line or at a dialect's opening mark, and dropped at the first byte that does not fit.
    """

    def __init__(self, tools: ToolSet, grammars: list[DraftGrammar], prior: Mapping[str, float] | None = None):
        self.tools = tools
        self._grammars = grammars
        self._prior = dict(prior or {})
        self._live: list[_Call] = []
        self._line = bytearray()
        self._started = False
        self.calls_done = 0
        self.dialect_seen: str | None = None
        """Name of the dialect of the last complete call."""
        self._after_call = False
        self._gap = False

    @property
    def state(self) -> State:
        return self._live[0].state if self._live else State.OTHER

    @property
    def tool(self) -> str | None:
        """Name of the tool whose call is open, once it is written."""
        return _called_tool(self._live[0]) if self._live else None

    @property
    def path(self) -> tuple[str | int, ...]:
        return self._live[0].cursor.path if self._live else ()

    @property
    def value_so_far(self) -> bytes:
        return bytes(self._live[0].cursor.raw) if self.state is State.PARAMETER_VALUE else b""

    def advance(self, data: bytes) -> None:
        """Follow committed bytes; never raises on malformed text."""
        while data:
            data = self._in_call(data) if self._live else self._in_text(data)

    def continuations(self) -> list[Continuation]:
        """What may come next, most likely first; empty where nothing is known."""
        found: list[Continuation] = []
        gap = "\n" if self._after_call and not self._gap else ""
        for call, weight in self._readings():
            found.extend(_Growth(call, self.tools, weight, gap).paths())
        if self._after_call:
            found.append(Continuation("", 0.9, ends=True))
        found.sort(key=lambda c: -c.weight)
        return found[:MAX_PATHS]

    def _readings(self) -> list[tuple[_Call, float]]:
        calls = self._live
        if not calls and (not self._started or (self._after_call and not self._line)):
            calls = [_Call.begin(g) for g in self._grammars]
        shares = [self._prior.get(c.dialect.name, 1.0) / (1 + 2 * i) for i, c in enumerate(calls)]
        total = sum(shares) or 1.0
        ready = 0.1 if self._after_call else 1.0
        return [
            (c.fork(), ready * share / total)
            for c, share in zip(calls, shares, strict=True)
            if share / total > MIN_WEIGHT
        ]

    def _in_text(self, data: bytes) -> bytes:
        """Consume text outside calls up to where a reading could open; returns the rest."""
        self._started = True
        fresh_line = not self._line.strip()
        for start in self._openings(data, fresh_line):
            calls = [c for g in self._grammars if (c := _open_at(g, data[start:]))]
            if calls:
                self._line.clear()
                self._live = calls[:MAX_LIVE]
                return data[start:]
        self._line = bytearray(data.rpartition(b"\n")[2]) if b"\n" in data else self._line + data[:64]
        if data.strip():
            self._after_call = False
        self._gap = True
        return b""

    def _openings(self, data: bytes, fresh_line: bool) -> Iterator[int]:
        """Offsets at which a block of calls may open: line starts and opening tags."""
        at = 0
        while at < len(data):
            if fresh_line and not data[at : at + 1].isspace():
                yield at
            tag = data.find(b"<", at + 1)
            line = data.find(b"\n", at)
            following = [o for o in (tag, line + 1 if line >= 0 else -1) if o > at]
            if not following:
                return
            at = min(following)
            fresh_line = at == line + 1 or at == tag

    def _in_call(self, data: bytes) -> bytes:
        """Feed all readings; returns bytes beyond the end of a finished or broken call."""
        self._after_call = False
        survivors = [c for c in self._live if c.accept(data)]
        if survivors:
            self._live = survivors
            self._close_if_complete()
            return b""
        return self._finish_within(data)

    def _finish_within(self, data: bytes) -> bytes:
        """No reading takes all of ``data``: a call ended inside it, or all readings broke."""
        best = self._live[0]
        taken = 0
        while taken < len(data) and best.accept(data[taken : taken + 1]):
            taken += 1
        complete = best.complete
        self._live = []
        if complete:
            self._note_complete(best)
        rest = data[taken:] if complete else data
        return self._in_text(rest) if rest else b""

    def _close_if_complete(self) -> None:
        done = next((c for c in self._live if c.matcher.is_terminated()), None)
        if done is None:
            done = next((c for c in self._live if c.complete and c.cursor.place is Place.DONE), None)
        if done is not None:
            self._live = []
            self._note_complete(done)

    def _note_complete(self, call: _Call) -> None:
        self.calls_done += 1
        self.dialect_seen = call.dialect.name
        self._prior = {call.dialect.name: 1.0, **{k: v / 4 for k, v in self._prior.items()}}
        self._grammars.sort(key=lambda g: g.dialect.name != call.dialect.name)
        self._after_call, self._gap = True, False
        self._line.clear()


def _open_at(grammar: DraftGrammar, data: bytes) -> _Call | None:
    """A reading whose opening fits the start of ``data``; ``_in_call`` feeds it."""
    opening = (grammar.dialect.open or "{").encode()
    shared = min(len(opening), len(data))
    return _Call.begin(grammar) if shared and data[:shared] == opening[:shared] else None


def _called_tool(call: _Call) -> str | None:
    key = json.dumps(call.dialect.name_key).encode()
    body = bytes(call.text)
    at = body.rfind(key)
    if at < 0 or call.state is State.TOOL_NAME:
        return None
    start = body.find(b'"', at + len(key))
    end = body.find(b'"', start + 1)
    while end > 0 and body[end - 1 : end] == b"\\":
        end = body.find(b'"', end + 1)
    if start < 0 or end < 0:
        return None
    try:
        return str(json.loads(body[start : end + 1]))
    except ValueError:
        return None


class _Growth:
    """Throw-away: grows one reading into continuations."""

    def __init__(self, call: _Call, tools: ToolSet, weight: float, before: str = ""):
        self._tools = tools
        self._out: list[Continuation] = []
        self._grow(call, weight, before, 0)

    def paths(self) -> list[Continuation]:
        return self._out

    def _grow(self, call: _Call, weight: float, text: str, depth: int) -> None:
        forced = call.matcher.find_jump_forward_string()
        if forced and call.accept(forced.encode()):
            text += forced
        if call.complete:
            self._out.append(Continuation(text, weight, ends=True))
            return
        if depth < MAX_BRANCH_DEPTH and len(text) < MAX_PATH_BYTES:
            for choice, prior in _choices(call, self._tools):
                if len(self._out) >= MAX_PATHS or weight * prior < MIN_WEIGHT:
                    break
                branch = call.fork()
                if branch.accept(choice.encode()):
                    self._grow(branch, weight * prior, text + choice, depth + 1)
        if text:
            self._out.append(Continuation(text, weight))


def _choices(call: _Call, tools: ToolSet) -> list[tuple[str, float]]:
    """Finite continuations at an undecided place, with priors, most likely first."""
    cursor = call.cursor
    if call.state is State.TOOL_NAME:
        return _completions(cursor, [tool.name for tool in tools.tools])
    if cursor.place in (Place.KEY_START, Place.IN_KEY):
        return _key_choices(call, tools)
    if cursor.place is Place.AFTER_VALUE:
        return [(",", 0.6), ("}", 0.4), ("]", 0.3), ("\n", 0.3)]
    if call.state is not State.PARAMETER_VALUE:
        return []
    schema = _schema_at(tools, _called_tool(call), cursor.path[1:])
    if cursor.place is Place.VALUE_START:
        return _value_starts(schema)
    if cursor.place is Place.IN_STRING:
        finite = [v for v in _finite_values(schema) if isinstance(v, str)]
        return _completions(cursor, finite) if finite else [('"', EXIT_PRIOR)]
    closers = [(",", EXIT_PRIOR), ("}", EXIT_PRIOR), ("]", EXIT_PRIOR), ("\n", EXIT_PRIOR)]
    rest = [json.dumps(v) for v in _finite_values(schema) if not isinstance(v, str)]
    written = cursor.raw.decode("utf-8", "replace")
    return [(r[len(written) :], 0.6) for r in rest if r.startswith(written) and r != written] + closers


def _completions(cursor: JsonCursor, names: list[str]) -> list[tuple[str, float]]:
    written = cursor.raw.decode("utf-8", "replace")
    quoted = [json.dumps(name, ensure_ascii=False)[1:] for name in names]
    fitting = [q[len(written) :] for q in quoted if q.startswith(written)]
    return [(rest, 1.0 / (i + 1) if i else 0.6) for i, rest in enumerate(fitting)]


def _key_choices(call: _Call, tools: ToolSet) -> list[tuple[str, float]]:
    schema = _schema_at(tools, _called_tool(call), call.cursor.path[1:-1])
    properties = schema.get("properties")
    names = [n for n in properties if n not in call.cursor.seen_keys] if isinstance(properties, dict) else []
    required = [r for r in schema.get("required", ()) if r in names]
    names.sort(key=lambda n: n not in required)
    quote = '"' if call.cursor.place is Place.KEY_START else ""
    return [(quote + rest, prior) for rest, prior in _completions_of_keys(call.cursor, names)]


def _completions_of_keys(cursor: JsonCursor, names: list[str]) -> list[tuple[str, float]]:
    if cursor.place is Place.IN_KEY:
        return _completions(cursor, names)
    return [(json.dumps(n, ensure_ascii=False)[1:], 0.6 / (i + 1)) for i, n in enumerate(names)]


def _value_starts(schema: Mapping[str, Any]) -> list[tuple[str, float]]:
    values = _finite_values(schema)
    return [(json.dumps(v, ensure_ascii=False), 0.6 / (i + 1)) for i, v in enumerate(values)]


def _finite_values(schema: Mapping[str, Any]) -> list[Any]:
    if "const" in schema:
        return [schema["const"]]
    if isinstance(choices := schema.get("enum"), list):
        return choices
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return ([True, False] if "boolean" in kinds else []) + ([None] if "null" in kinds else [])


def _schema_at(tools: ToolSet, tool: str | None, path: tuple[str | int, ...]) -> Mapping[str, Any]:
    """The schema at ``path`` below the arguments; ``{}`` where it is not plainly declared."""
    found = tools.by_name.get(tool or "")
    schema: Any = found.parameters if found else {}
    for step in path:
        if not isinstance(schema, Mapping):
            return {}
        inner = schema.get("items") if isinstance(step, int) else (schema.get("properties") or {})
        schema = inner if isinstance(step, int) else inner.get(step) if isinstance(inner, Mapping) else None
    return schema if isinstance(schema, Mapping) else {}
