"""Where we are inside a JSON text that is still being written.

A small incremental scanner. It does not judge: the grammar's matcher decides what is
legal, the cursor only names the place (path, key or value, text so far).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum

_SPACE = b" \t\r\n"
_CLOSERS = b"}]"


class Place(Enum):
    VALUE_START = "value_start"
    KEY_START = "key_start"
    IN_KEY = "in_key"
    AFTER_KEY = "after_key"
    IN_STRING = "in_string"
    IN_SCALAR = "in_scalar"
    AFTER_VALUE = "after_value"
    DONE = "done"


@dataclass
class _Frame:
    is_object: bool
    key: str | None = None
    index: int = 0
    seen: list[str] = field(default_factory=list)


class JsonCursor:
    """Feed it bytes; read ``place``, ``path``, ``raw``, ``members`` and ``seen_keys``."""

    __slots__ = ("_escaped", "_frames", "members", "place", "raw")

    def __init__(self) -> None:
        self.place = Place.VALUE_START
        self.raw = bytearray()
        """Bytes of the key, string or scalar being written, without its quotes."""
        self.members: dict[str, str] = {}
        """The complete strings among the members of the root object."""
        self._frames: list[_Frame] = []
        self._escaped = False

    @property
    def path(self) -> tuple[str | int, ...]:
        """Keys and indices from the root to the value at the cursor."""
        return tuple(f.key or "" if f.is_object else f.index for f in self._frames)

    @property
    def seen_keys(self) -> list[str]:
        """Keys already written in the innermost open object."""
        return self._frames[-1].seen if self._frames else []

    def fork(self) -> JsonCursor:
        other = JsonCursor()
        other.place, other.raw, other._escaped = self.place, bytearray(self.raw), self._escaped
        other.members = dict(self.members)
        other._frames = [_Frame(f.is_object, f.key, f.index, list(f.seen)) for f in self._frames]
        return other

    def feed(self, data: bytes) -> bytes:
        """Advance over ``data``; returns what follows the end of the JSON value."""
        for i, byte in enumerate(data):
            if self.place is Place.DONE:
                return data[i:]
            self._step(byte)
        return b""

    def _step(self, byte: int) -> None:
        if self.place in (Place.IN_STRING, Place.IN_KEY):
            self._in_quotes(byte)
        elif self.place is Place.IN_SCALAR and byte not in b",}]" and byte not in _SPACE:
            self.raw.append(byte)
        elif byte in _SPACE:
            if self.place is Place.IN_SCALAR:
                self._end_value()
        else:
            if self.place is Place.IN_SCALAR:
                self._end_value()
            self._structural(byte)

    def _in_quotes(self, byte: int) -> None:
        if self._escaped:
            self._escaped = False
        elif byte == ord("\\"):
            self._escaped = True
        elif byte == ord('"'):
            if self.place is Place.IN_KEY:
                self._frames[-1].key = _unquote(self.raw)
                self._frames[-1].seen.append(self._frames[-1].key)
                self.place = Place.AFTER_KEY
            else:
                self._note_member()
                self._end_value()
            return
        self.raw.append(byte)

    def _note_member(self) -> None:
        if len(self._frames) == 1 and self._frames[0].key is not None:
            self.members[self._frames[0].key] = _unquote(self.raw)

    def _structural(self, byte: int) -> None:
        self.raw.clear()
        if byte == ord('"'):
            self.place = Place.IN_KEY if self.place is Place.KEY_START else Place.IN_STRING
        elif byte == ord("{"):
            self._frames.append(_Frame(is_object=True))
            self.place = Place.KEY_START
        elif byte == ord("["):
            self._frames.append(_Frame(is_object=False))
            self.place = Place.VALUE_START
        elif byte in _CLOSERS:
            if self._frames:
                self._frames.pop()
            self._end_value()
        elif byte == ord(":"):
            self.place = Place.VALUE_START
        elif byte == ord(","):
            self._next_item()
        else:
            self.raw.append(byte)
            self.place = Place.IN_SCALAR

    def _next_item(self) -> None:
        if self._frames and self._frames[-1].is_object:
            self.place = Place.KEY_START
        else:
            if self._frames:
                self._frames[-1].index += 1
            self.place = Place.VALUE_START

    def _end_value(self) -> None:
        self.place = Place.AFTER_VALUE if self._frames else Place.DONE


def _unquote(raw: bytearray) -> str:
    text = raw.decode("utf-8", "replace")
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text
