"""The per-request automaton: follows a reply and says what text may come next.

States of the paper (section 3.2): tool name ``q_t``, parameter name ``q_p``, parameter
value ``q_v``, everything else ``q_o``. Forced text comes from xgrammar
(``find_jump_forward_string``); the automaton adds the choices between forced spans.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import xgrammar

from sglang_toolspec.grammars.compile import DraftGrammar, forced_text, matcher
from sglang_toolspec.grammars.formats import Dialect
from sglang_toolspec.grammars.json_cursor import JsonCursor, Place
from sglang_toolspec.grammars.tools import ToolSet

MAX_PATHS = 16
MAX_BRANCH_DEPTH = 3
MAX_PATH_BYTES = 240
MIN_WEIGHT = 0.02
MAX_CALL_BYTES = 1 << 16
MAX_REREAD_BYTES = 256
MAX_LIVE = 8

EXIT_PRIOR = 0.3
"""How likely an open value ends right here; calibrated per source in a later issue."""

_OPENING = re.compile(rb"<|(?:\A|\n)[^\S\n]*\S")
"""Where a block of calls may open: at a tag, or at the first mark on a line."""


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
        if len(path) < 2 or path[0] != self.dialect.arguments_key:
            return State.OTHER
        if place in (Place.KEY_START, Place.IN_KEY):
            return State.PARAMETER_NAME
        if place in (Place.VALUE_START, Place.IN_STRING, Place.IN_SCALAR):
            return State.PARAMETER_VALUE
        return State.OTHER

    @property
    def tool(self) -> str | None:
        """Name of the called tool, once it is written."""
        return self.cursor.members.get(self.dialect.name_key)


class ToolAutomaton:
    """Mutable, one per request.

    ``advance`` with the text of committed tokens; ``continuations`` for what may follow.
    Text that is no call costs almost nothing: readings are opened only at the start of a
    line or at a dialect's opening mark, and dropped at the first byte that does not fit.
    """

    def __init__(
        self, tools: ToolSet, grammars: Iterable[DraftGrammar], prior: Mapping[str, float] | None = None
    ):
        self.tools = tools
        self._grammars = list(grammars)
        self._prior = dict(prior or {})
        self._live: list[_Call] = []
        self._fresh_line = True
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
        return self._live[0].tool if self._live else None

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
        if not calls and (self._after_call or not self._started):
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
        """Consume text outside calls, and the first byte of a call; returns the rest."""
        self._started = True
        for start in self._openings(data):
            first, rest = data[start : start + 1], data[start + 1 :]
            # A reading has its first byte before it is live: so every turn of ``advance``
            # consumes something, whatever the reply holds.
            calls = [c for g in self._grammars if (c := _open_at(g, data[start:])) and c.accept(first)]
            if calls:
                self._live = calls[:MAX_LIVE]
                self._after_call = False
                return rest
        _, newline, line = data.rpartition(b"\n")
        self._fresh_line = (bool(newline) or self._fresh_line) and not line.strip()
        if data.strip():
            self._after_call = False
        self._gap = True
        return b""

    def _openings(self, data: bytes) -> Iterator[int]:
        """Offsets at which a block of calls may open."""
        for found in _OPENING.finditer(data):
            at = found.end() - 1
            if data[at : at + 1] == b"<" or self._fresh_line or found[0].startswith(b"\n"):
                yield at

    def _in_call(self, data: bytes) -> bytes:
        """Feed all readings; returns bytes beyond the end of a finished or broken call."""
        if self._feed(data):
            return b""
        # A call ends inside ``data``, or every reading breaks there: find out where.
        for at in range(len(data)):
            if not self._feed(data[at : at + 1]):
                return self._give_up() + data[at:]
            if not self._live:
                return data[at + 1 :]
        return b""

    def _give_up(self) -> bytes:
        """Drop all readings; returns what of their text to read again.

        A fence may hold a call of another dialect. The text of a long reading is let go:
        reading it twice would cost more than its drafts.
        """
        text = bytes(self._live[0].text)
        self._live = []
        self._fresh_line = False
        if len(text) <= MAX_REREAD_BYTES:
            return text[1:]
        self._fresh_line = not text.rpartition(b"\n")[2].strip()
        return b""

    def _feed(self, data: bytes) -> bool:
        """Advance the readings that take ``data`` and drop the others; ``False`` where none does."""
        survivors = [c for c in self._live if c.accept(data)]
        if not survivors:
            return False
        done = next((c for c in survivors if c.complete), None)
        self._live = survivors if done is None else []
        if done is not None:
            self._note_complete(done)
        return True

    def _note_complete(self, call: _Call) -> None:
        self.calls_done += 1
        self.dialect_seen = call.dialect.name
        self._prior = {**{k: v / 4 for k, v in self._prior.items()}, call.dialect.name: 1.0}
        self._grammars.sort(key=lambda g: g.dialect.name != call.dialect.name)
        self._after_call, self._gap = True, False
        self._fresh_line = True


def _open_at(grammar: DraftGrammar, data: bytes) -> _Call | None:
    """A reading whose opening fits the start of ``data``; ``_in_call`` feeds it."""
    opening = (grammar.dialect.open or "{").encode()
    shared = min(len(opening), len(data))
    return _Call.begin(grammar) if shared and data[:shared] == opening[:shared] else None


class _Growth:
    """Throw-away: grows one reading into continuations."""

    def __init__(self, call: _Call, tools: ToolSet, weight: float, before: str = ""):
        self._tools = tools
        self._out: list[Continuation] = []
        self._grow(call, weight, before, 0)

    def paths(self) -> list[Continuation]:
        return self._out

    def _grow(self, call: _Call, weight: float, text: str, depth: int) -> None:
        forced = forced_text(call.matcher)
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
    if call.cursor.place is Place.DONE:
        ends = ((call.dialect.close, 0.7), (call.dialect.separator, 0.3))
        return [(text, prior) for text, prior in ends if text]
    if call.cursor.place is Place.AFTER_VALUE:
        return [(",", 0.6), ("}", 0.4), ("]", 0.3), ("\n", 0.3)]
    if call.state is State.TOOL_NAME:
        return _completions(call.cursor, [tool.name for tool in tools.tools])
    if call.state is State.PARAMETER_NAME:
        return _key_choices(call, tools)
    if call.state is State.PARAMETER_VALUE:
        return _value_choices(call.cursor, _schema_at(tools, call.tool, call.cursor.path[1:]))
    return []


def _value_choices(cursor: JsonCursor, schema: Mapping[str, Any]) -> list[tuple[str, float]]:
    values = _finite_values(schema)
    if cursor.place is Place.VALUE_START:
        return [(_written(v), 0.6 / (i + 1)) for i, v in enumerate(values)]
    if cursor.place is Place.IN_STRING:
        finite = [v for v in values if isinstance(v, str)]
        return _completions(cursor, finite) if finite else [('"', EXIT_PRIOR)]
    closers = [(",", EXIT_PRIOR), ("}", EXIT_PRIOR), ("]", EXIT_PRIOR), ("\n", EXIT_PRIOR)]
    rest = [_written(v) for v in values if not isinstance(v, str)]
    so_far = cursor.raw.decode("utf-8", "replace")
    return [(r[len(so_far) :], 0.6) for r in rest if r.startswith(so_far) and r != so_far] + closers


def _completions(cursor: JsonCursor, names: list[str]) -> list[tuple[str, float]]:
    so_far = cursor.raw.decode("utf-8", "replace")
    quoted = [_written(name)[1:] for name in names]
    fitting = [q[len(so_far) :] for q in quoted if q.startswith(so_far)]
    return [(rest, 1.0 / (i + 1) if i else 0.6) for i, rest in enumerate(fitting)]


def _written(value: Any) -> str:
    """JSON as models write it: only what UTF-8 cannot hold (a lone surrogate) is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if _encodes(text) else json.dumps(value)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _key_choices(call: _Call, tools: ToolSet) -> list[tuple[str, float]]:
    schema = _schema_at(tools, call.tool, call.cursor.path[1:-1])
    properties = schema.get("properties")
    names = [n for n in properties if n not in call.cursor.seen_keys] if isinstance(properties, dict) else []
    required = schema.get("required")
    wanted = required if isinstance(required, list) else []
    names.sort(key=lambda n: n not in wanted)
    quote = '"' if call.cursor.place is Place.KEY_START else ""
    return [(quote + rest, prior) for rest, prior in _completions_of_keys(call.cursor, names)]


def _completions_of_keys(cursor: JsonCursor, names: list[str]) -> list[tuple[str, float]]:
    if cursor.place is Place.IN_KEY:
        return _completions(cursor, names)
    return [(_written(n)[1:], 0.6 / (i + 1)) for i, n in enumerate(names)]


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
