"""One block of calls that is being written, read as one format."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.formats import ARGUMENT_KEYS, JSON_REPLY, NAME_KEY, Format
from sglang_toolspec.grammars.guesses import Guesser
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.json_reader import JsonReader
from sglang_toolspec.grammars.json_spot import Frame, Place, Spot, opened
from sglang_toolspec.grammars.layout import Layout
from sglang_toolspec.grammars.schema import Arm, written
from sglang_toolspec.grammars.script import (
    EndBlock,
    EndCall,
    Fork,
    Index,
    Json,
    Key,
    Literal,
    Name,
    Parameters,
    Script,
    Value,
    after_call,
    match,
    parameter_or,
    script,
)

MAX_NAME = 256
MAX_VALUE = 1 << 16


class Point(NamedTuple):
    """Where a block stands; immutable. ``todo[0]`` is the step that is being written."""

    todo: Script
    raw: str = ""
    """What is written of the step, unless that is ``Json``."""
    spot: Spot | None = None
    """Within the step's JSON: that of a call, or of a parameter in a markup that holds no text."""
    frame: Frame | None = None
    """The object whose parameters are written in a markup."""
    tool: str = ""
    calls: int = 0

    @property
    def step(self) -> object:
        return self.todo[0] if self.todo else EndBlock()


@dataclass(frozen=True)
class Context:
    """What all points of one request's blocks of one format share."""

    form: Format
    shapes: CallShapes
    layout: Layout
    habits: Habits
    guesser: Guesser

    def start(self, steps: Script | None = None, calls: int = 0) -> Point:
        return self.settled(Point(script(self.form) if steps is None else steps, calls=calls))

    def after_step(self, point: Point, tool: str | None = None, frame: Frame | None = None) -> Point:
        """The point after the step of ``point`` is complete."""
        return self.settled(
            Point(
                point.todo[1:],
                frame=point.frame if frame is None else frame,
                tool=point.tool if tool is None else tool,
                calls=point.calls,
            )
        )

    def settled(self, point: Point) -> Point:
        """Passes over steps that have no text, and enters JSON."""
        step = point.step
        if isinstance(step, EndCall) and len(point.todo) == 1:
            return self.settled(Point(after_call(self.form), calls=point.calls + 1))
        if isinstance(step, Parameters):
            frame = point.frame or self._parameters(point.tool)
            return point._replace(todo=(parameter_or(point.todo[1:], step),), frame=frame)
        if isinstance(step, Value) and point.frame and not _may_be_text(arms := point.frame.member_arms):
            return point._replace(spot=Spot(Place.VALUE, point.frame, arms))
        if isinstance(step, Json) and point.spot is None:
            return point._replace(spot=Spot(Place.VALUE, None, self.json_arms(step, point.tool)))
        return point

    def _parameters(self, tool: str) -> Frame:
        """The parameters of a markup, before the first of them."""
        return opened(None, self.shapes.arguments(tool).arms, False, tool)._replace(depth=0)

    @cached_property
    def name_frame(self) -> Frame:
        """An object at its key with the tool's name."""
        return opened(None, self.shapes.call(self.form.arguments_key), False).with_key(NAME_KEY)

    def json_arms(self, step: Json, tool: str) -> tuple[Arm, ...]:
        if step.whole_call:
            return self.shapes.call(self.form.arguments_key)
        return self.shapes.arguments(tool).arms


class Block:
    """Mutable. ``feed`` text until it ``ended`` or is ``broken``."""

    def __init__(self, context: Context, steps: Script | None = None, calls: int = 0):
        self.context = context
        self._reader: JsonReader | None = None
        self._fed = 0
        """Characters of a markup's value that the reader has read."""
        self._point = context.start(steps, calls)
        self.broken = False
        # Calls and their arguments are objects.
        self._begins = ("", "{", "[", '"') if context.form is JSON_REPLY else ("", "{")
        self._enter()

    @property
    def ended(self) -> bool:
        return isinstance(self._point.step, EndBlock)

    @property
    def point(self) -> Point:
        if self._reader is None:
            return self._point
        return self._point._replace(spot=self._reader.spot)

    @property
    def is_call(self) -> bool:
        """Whether this may be a call: a JSON object with other keys first is none."""
        call = self._call
        return call is None or not call.seen or call.seen[0] in (NAME_KEY, *ARGUMENT_KEYS)

    @property
    def misspelt(self) -> bool:
        """Whether the call has the other one of ``ARGUMENT_KEYS`` than its format writes."""
        call = self._call
        if call is None or self.context.form.arguments_key in call.seen:
            return False
        return any(key in call.seen for key in ARGUMENT_KEYS)

    @property
    def _call(self) -> Frame | None:
        """The JSON object of a whole call that is being written."""
        step = self._point.step
        if self._reader is None or not isinstance(step, Json) or not step.whole_call:
            return None
        return _root(self._reader.frame)

    def feed(self, data: str) -> str:
        """Advance over ``data``; returns what follows the block's end.

        Where it breaks, that is the text from the start of the mark that did not fit: it may
        begin before ``data``.
        """
        while data and not self.ended and not self.broken:
            data = self._feed(data)
        return data

    def _feed(self, data: str) -> str:
        step = self._point.step
        if isinstance(step, Json):
            return self._json(data)
        if isinstance(step, Literal):
            return self._literal(step.text, data)
        if isinstance(step, Fork):
            return self._fork(step, data)
        if isinstance(step, Value):
            return self._value(step, data)
        assert isinstance(step, Name | Key | Index)
        return self._word(step, data)

    def _json(self, data: str) -> str:
        reader = self._reader
        assert reader is not None
        if reader.frame is None and data.lstrip()[:1] not in self._begins:
            self.broken = True
            return reader.spot.gap + data
        rest = reader.feed(data)
        if reader.place is Place.BROKEN:
            self.broken = True
            return reader.spot.gap + rest
        if reader.place is Place.DONE:
            whole = isinstance(self._point.step, Json) and self._point.step.whole_call
            self.broken = whole and not self._names_tool(reader.root)
            if not self.broken:
                self._go(self.context.after_step(self._point))
        return rest

    def _names_tool(self, root: Frame | None) -> bool:
        """Whether a finished object is a call; any JSON may stand where no mark says so."""
        if root is None or not root.tool:
            return False
        known = root.tool in (self.context.shapes.names.values or ())
        return known or any(key in root.seen for key in ARGUMENT_KEYS)

    def _literal(self, literal: str, data: str) -> str:
        text = self._point.raw + data
        found = match(literal, text)
        if found is None:
            self.broken = True
            return text
        if found.used is None:
            self._point = self._point._replace(raw=text)
            return ""
        self._go(self.context.after_step(self._point))
        return text[found.used :]

    def _fork(self, fork: Fork, data: str) -> str:
        text = self._point.raw + data
        fits = [way for way in fork if isinstance(way[0], Literal) and match(way[0].text, text)]
        if len(fits) == 1:
            self._point = self._point._replace(todo=fits[0], raw="")
            return text
        if not fits:
            self.broken = True
            return text
        self._point = self._point._replace(raw=text)
        return ""

    def _word(self, step: Name | Key | Index, data: str) -> str:
        end = next((i for i, char in enumerate(data) if char in step.ends), len(data))
        word = self._point.raw + data[:end]
        nameless = isinstance(step, Name) and end < len(data) and not word.strip()
        if len(word) > MAX_NAME or nameless:
            self.broken = True
            return self._point.raw + data
        if end == len(data):
            self._point = self._point._replace(raw=word)
        elif isinstance(step, Name):
            self.context.habits.wrote_choice(self.context.name_frame, word)
            self._go(self.context.after_step(self._point, tool=word))
        elif isinstance(step, Key) and self._point.frame is not None:
            self._go(self.context.after_step(self._point, frame=self._point.frame.with_key(word)))
        else:
            self._go(self.context.after_step(self._point))
        return data[end:]

    def _value(self, step: Value, data: str) -> str:
        text, mark = self._point.raw + data, step.end.strip()
        at = text.find(mark, max(0, len(self._point.raw) - len(mark)))
        self._read_json(text, at if at >= 0 else len(text) - begun(text, mark))
        if at < 0:
            self.broken = len(text) > MAX_VALUE
            self._point = self._point._replace(raw=text)
            return ""
        frame = self._point.frame
        if self._reader is not None and self._reader.end():
            frame = self._reader.frame
        elif frame is not None:
            frame = frame.with_value(self._read_text(frame, text[:at].removesuffix("\n")))
        self._go(self.context.after_step(self._point, frame=frame))
        return text[at + len(mark) :]

    def _read_json(self, text: str, end: int) -> None:
        """Follow a value up to ``end`` as JSON, until it is seen to be none."""
        if self._reader is not None and end > self._fed:
            self._reader.feed(text[self._fed : end])
            self._fed = end
            if self._reader.place is Place.BROKEN:
                self._reader, self._point = None, self._point._replace(spot=None)

    def _read_text(self, frame: Frame, text: str) -> Any:
        """Note a parameter that has ended; returns its value."""
        for arm in frame.member_arms:
            for value in arm.values or ():
                if in_markup(value) == text:
                    self.context.habits.wrote_choice(frame, value)
                    return value
        self.context.guesser.wrote(frame, text, "string")
        return text

    def _go(self, point: Point) -> None:
        ended = self._point.frame
        if ended is not None and point.frame is None:
            self.context.habits.wrote_keys(ended)
        self._point = point
        self._enter()

    def _enter(self) -> None:
        context, point = self.context, self._point
        self._reader, self._fed = None, 0
        if point.spot is not None:
            arms, frame = point.spot.arms, point.spot.frame
            self._reader = JsonReader(
                arms, context.layout, context.habits, context.guesser, point.tool, frame
            )


def _may_be_text(arms: tuple[Arm, ...]) -> bool:
    """Whether a value may be a string, which a markup has without quotes."""
    return any("string" in arm.kinds for arm in arms)


def begun(text: str, end: str) -> int:
    """How much of ``end`` stands at the end of ``text`` already."""
    return next((n for n in range(min(len(text), len(end)), 0, -1) if text.endswith(end[:n])), 0)


def in_markup(value: Any) -> str:
    """A value as a markup has it: strings without quotes."""
    return value if isinstance(value, str) else written(value)


def _root(frame: Frame | None) -> Frame | None:
    while frame is not None and frame.above is not None:
        frame = frame.above
    return frame
