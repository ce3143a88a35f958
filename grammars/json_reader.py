"""Follows the text of one JSON value with its schema. It names the place and judges nothing:
a key that the schema does not declare holds anything, and odd spacing is noted as layout."""

from __future__ import annotations

import json
import re
from typing import Any

from sglang_toolspec.grammars.guesses import Guesser
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.json_spot import MAX_DEPTH, Frame, Place, Spot, closed, opened
from sglang_toolspec.grammars.layout import JSON_WORDS, MAX_GAP, PYTHON_WORDS, Layout, Slot
from sglang_toolspec.grammars.schema import Arm

_SPACE = " \t\r\n"
_PLAIN = re.compile(r'[^"\\]+')
_SCALAR = re.compile(r"[^,}\]\s]+")
_QUOTED = (Place.IN_STRING, Place.IN_KEY)
_CONSTANTS = {word: value for words in (JSON_WORDS, PYTHON_WORDS) for value, word in words.items()}


class JsonReader:
    """Mutable. ``feed`` committed text, read ``spot``; corrects ``layout`` as it goes.

    ``frame`` are the parameters of a markup, where the text is the value of one of them.
    """

    __slots__ = (
        "_escaped",
        "_gap",
        "_guesser",
        "_habits",
        "_raw",
        "_tool",
        "arms",
        "frame",
        "layout",
        "place",
        "root",
    )

    def __init__(
        self,
        arms: tuple[Arm, ...],
        layout: Layout,
        habits: Habits,
        guesser: Guesser,
        tool: str = "",
        frame: Frame | None = None,
    ):
        self.place = Place.VALUE
        self.frame = frame
        self.root: Frame | None = None
        """The outermost container, once it has ended."""
        self.arms = arms
        self.layout = layout
        self._habits = habits
        self._guesser = guesser
        self._tool = tool
        self._raw = ""
        self._gap = ""
        self._escaped = False

    @property
    def spot(self) -> Spot:
        return Spot(self.place, self.frame, self.arms, self._raw, self._gap)

    def end(self) -> bool:
        """The text ends here; returns whether the value is complete."""
        if self.place is Place.IN_SCALAR:
            self.feed(" ")
        return self.place is Place.DONE

    def feed(self, data: str) -> str:
        """Advance over ``data``; returns what follows the end of the value.

        Text that is no JSON leaves ``place`` at ``BROKEN``; the text from there is returned.
        """
        at = 0
        while at < len(data):
            if self.place is Place.DONE:
                return data[at:]
            used = self._quoted(data, at) if self.place in _QUOTED else self._outside(data, at)
            if self.place is Place.BROKEN:
                return data[at:]
            at += used
        return ""

    def _quoted(self, data: str, at: int) -> int:
        """Inside quotes: a run of plain text, or one mark."""
        if self._escaped:
            self._escaped = False
        elif (run := _PLAIN.match(data, at)) is not None:
            self._raw += run[0]
            return len(run[0])
        elif data[at] == '"':
            self._end_quotes()
            return 1
        else:
            self._escaped = True
        self._raw += data[at]
        return 1

    def _end_quotes(self) -> None:
        text = unquoted(self._raw)
        if self.place is Place.IN_KEY:
            assert self.frame is not None
            self.frame = self.frame.with_key(text)
            self.place = Place.COLON
            self._raw = ""
        else:
            self._end_value(text)

    def _outside(self, data: str, at: int) -> int:
        """Outside quotes: a run of a scalar, or one mark."""
        if self.place is Place.IN_SCALAR:
            if (run := _SCALAR.match(data, at)) is not None:
                self._raw += run[0]
                return len(run[0])
            if self.frame is not None and not self.frame.depth:
                self.layout.observe_word(self._raw)
            self._end_value(scalar(self._raw))
            return 0
        mark = data[at]
        if mark in _SPACE:
            if len(self._gap) < MAX_GAP:
                self._gap += mark
        elif self.place is Place.VALUE:
            self._value(mark)
        elif self.place is Place.KEY:
            self._key(mark)
        elif self.place is Place.COLON and mark == ":":
            assert self.frame is not None
            self.place, self.arms = Place.VALUE, self.frame.member_arms
            self._gap = ""
        elif self.place is Place.AFTER:
            self._after(mark)
        else:
            self.place = Place.BROKEN
        return 1

    def _value(self, mark: str) -> None:
        frame = self.frame
        if mark == "]" and frame is not None and frame.array:
            self._close(mark)  # an empty array, or a trailing comma
            return
        if mark in ",:}]":
            self.place = Place.BROKEN
            return
        if frame is not None:
            self._note(frame.slot if frame.array else Slot.COLON, frame)
        self._raw = ""
        if mark in "{[":
            self._open(mark == "[")
        elif mark == '"':
            self.place = Place.IN_STRING
        else:
            self._raw += mark
            self.place = Place.IN_SCALAR

    def _open(self, array: bool) -> None:
        self.frame = opened(self.frame, self.arms, array, self._tool)
        self._gap = ""
        if self.frame.depth > MAX_DEPTH:
            self.place = Place.BROKEN
        elif array:
            self.place, self.arms = Place.VALUE, self.frame.member_arms
        else:
            self.place = Place.KEY

    def _key(self, mark: str) -> None:
        assert self.frame is not None
        if mark == '"':
            self._note(self.frame.slot, self.frame)
            self._raw = ""
            self.place = Place.IN_KEY
        elif mark == "}":
            self._close(mark)
        else:
            self.place = Place.BROKEN

    def _after(self, mark: str) -> None:
        frame = self.frame
        assert frame is not None
        if mark in "}]":
            self._note(Slot.CLOSE, frame)
            self._close(mark)
        elif mark != ",":
            self.place = Place.BROKEN
        elif frame.array:
            self.frame = frame._replace(at=frame.at + 1)
            self.place, self.arms = Place.VALUE, self.frame.member_arms
            self._gap = ""
        else:
            self.place = Place.KEY
            self._gap = ""

    def _close(self, mark: str) -> None:
        frame = self.frame
        assert frame is not None
        if frame.array != (mark == "]"):
            self.place = Place.BROKEN
            return
        if not frame.array:
            self._habits.wrote_keys(frame)
        self.frame = frame.above
        if self.frame is None:
            self.root = frame
        self.place, self.arms = closed(self.frame).place, ()
        self._gap = ""
        self._raw = ""

    def _end_value(self, value: Any) -> None:
        if self.frame is not None:
            if any(arm.values is not None for arm in self.arms):
                self._habits.wrote_choice(self.frame, value)
            elif isinstance(value, str):
                self._guesser.wrote(self.frame, value, "string")
            else:
                self._guesser.wrote(self.frame, self._raw, "number")
            self.frame = self.frame.with_value(value)
        self.place, self.arms = closed(self.frame).place, ()
        self._gap = ""
        self._raw = ""

    def _note(self, slot: Slot, frame: Frame) -> None:
        if frame.depth:
            self.layout.observe(slot, frame.depth, frame.array, self._gap)
        self._gap = ""


def unquoted(raw: str) -> str:
    """The text that ``raw`` between quotes stands for; ``raw`` itself where it is malformed."""
    if "\\" not in raw:
        return raw
    try:
        return str(json.loads(f'"{raw}"'))
    except ValueError:
        return raw


def scalar(raw: str) -> Any:
    """The number or constant that ``raw`` stands for; ``raw`` itself where it is neither."""
    if raw in _CONSTANTS:
        return _CONSTANTS[raw]
    try:
        return int(raw) if raw.lstrip("-").isdecimal() and len(raw) < 64 else float(raw)
    except ValueError:
        return raw
