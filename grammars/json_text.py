"""JSON rewritten while it arrives: the text that ``json.dumps`` would write for it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

MAX_DEPTH = 500
"""Deeper nesting is no JSON here: other readers would exhaust their recursion."""
_MAX_SCALAR = 4096

_SPACE = re.compile(r"[ \t\n\r]+")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_SCALAR = re.compile(r'[^\s,:\[\]{}"]+')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MAY_GO_ON = re.compile(
    r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?\Z"
)


class _Want(Enum):
    VALUE = auto()
    FIRST_ITEM = auto()
    KEY = auto()
    FIRST_KEY = auto()
    COLON = auto()
    MORE = auto()


_VALUES = (_Want.VALUE, _Want.FIRST_ITEM)
_KEYS = (_Want.KEY, _Want.FIRST_KEY)


class Member(NamedTuple):
    """A value of the outermost object: its rewritten text so far."""

    text: str
    ended: bool


class JsonText:
    """Mutable. ``feed`` it the text of one JSON value, in any pieces.

    ``text`` always is a beginning of ``json.dumps(json.loads(value), ensure_ascii=False)``, but
    for two things: lone surrogates stay escaped, so that it can be encoded, and a key that
    repeats stands as often as it was written.
    """

    def __init__(self) -> None:
        self._pieces = [""]
        self._length = 0
        self.done = False
        self.broken = False
        """Whether what was read is no JSON; ``text`` stays at what came before."""
        self._want = _Want.VALUE
        self._opened = ""
        self._quote: int | None = None
        self._key = ""
        self._unread = ""
        self._members: dict[str, tuple[int, int | None]] = {}

    @property
    def text(self) -> str:
        """What is rewritten so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def member(self, key: str) -> Member | None:
        """What the outermost object has at ``key``, once its value has begun."""
        if key not in self._members:
            return None
        start, end = self._members[key]
        return Member(self.text[start:end], end is not None)

    def feed(self, data: str) -> str:
        """Read on; returns what stands behind the value's end."""
        data, self._unread = self._unread + data, ""
        at = 0
        while at < len(data) and not self.done:
            used = self._outside(data, at) if self._quote is None else self._inside(data, at)
            if not used:
                self._unread = "" if self.broken else data[at:]
                return ""
            at += used
        return data[at:]

    # Each of the following returns how many characters it read: none where the next mark may
    # go on behind ``data``, and where it is no JSON.

    def _inside(self, data: str, at: int) -> int:
        """Between quotes."""
        if run := _PLAIN.match(data, at):
            self._write(run[0])
            return len(run[0])
        if data[at] == '"':
            return self._end_string()
        if _MAY_GO_ON.match(data, at):
            return 0
        escape = _PAIR.match(data, at) or _ESCAPE.match(data, at)
        if escape is None:
            return self._break()
        lone = len(escape[0]) == 6 and _SURROGATE.match(escape[0]) is not None
        self._write(escape[0] if lone else _dumped(json.loads(f'"{escape[0]}"'))[1:-1])
        return len(escape[0])

    def _outside(self, data: str, at: int) -> int:
        if space := _SPACE.match(data, at):
            return len(space[0])
        mark = _MARKS.get(data[at])
        return self._scalar(data, at) if mark is None else mark(self, data[at])

    def _begin_string(self, mark: str) -> int:
        if self._want not in (*_VALUES, *_KEYS):
            return self._break()
        self._quote = self._length
        self._write(mark)
        return 1

    def _end_string(self) -> int:
        assert self._quote is not None
        self._write('"')
        if self._want in _VALUES:
            self._end_value()
        else:
            self._want = _Want.COLON
            if len(self._opened) == 1:
                self._key = json.loads(self.text[self._quote :])
        self._quote = None
        return 1

    def _open(self, mark: str) -> int:
        if self._want not in _VALUES or len(self._opened) >= MAX_DEPTH:
            return self._break()
        self._write(mark)
        self._opened += mark
        self._want = _Want.FIRST_KEY if mark == "{" else _Want.FIRST_ITEM
        return 1

    def _close(self, mark: str) -> int:
        opened, first = ("{", _Want.FIRST_KEY) if mark == "}" else ("[", _Want.FIRST_ITEM)
        if self._opened[-1:] != opened or self._want not in (first, _Want.MORE):
            return self._break()
        self._write(mark)
        self._opened = self._opened[:-1]
        self._end_value()
        return 1

    def _comma(self, mark: str) -> int:
        if self._want is not _Want.MORE:
            return self._break()
        self._write(", ")
        self._want = _Want.KEY if self._opened[-1] == "{" else _Want.VALUE
        return 1

    def _colon(self, mark: str) -> int:
        if self._want is not _Want.COLON:
            return self._break()
        self._write(": ")
        self._want = _Want.VALUE
        if len(self._opened) == 1:
            self._members[self._key] = self._length, None
        return 1

    def _scalar(self, data: str, at: int) -> int:
        """A number or a constant, once it has ended: ``1`` may become ``10`` or ``1e-3``."""
        run = _SCALAR.match(data, at)
        if run is None or self._want not in _VALUES or len(run[0]) > _MAX_SCALAR:
            return self._break()
        if run.end() == len(data):
            return 0
        try:
            self._write(json.dumps(json.loads(run[0])))
        except ValueError:
            return self._break()
        self._end_value()
        return len(run[0])

    def _end_value(self) -> None:
        self._want = _Want.MORE
        self.done = not self._opened
        if self._opened == "{":
            self._members[self._key] = self._members[self._key][0], self._length

    def _write(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def _break(self) -> int:
        self.broken = True
        return 0


_MARKS: dict[str, Callable[[JsonText, str], int]] = {
    '"': JsonText._begin_string,
    "{": JsonText._open,
    "[": JsonText._open,
    "}": JsonText._close,
    "]": JsonText._close,
    ",": JsonText._comma,
    ":": JsonText._colon,
}


def _dumped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
