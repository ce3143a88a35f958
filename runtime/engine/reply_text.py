"""The text of one reply, read in order while it arrives, and what is found in it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from sglang_toolspec.grammars.json_text import JsonText

logger = logging.getLogger(__name__)

T = TypeVar("T")
Reading = Generator[None, None, T]
"""Reads on as far as the text goes, then waits for more with ``yield``."""


@dataclass
class Call:
    """``arguments`` is JSON text as far as it is certain; ``ended`` says that it is whole."""

    name: str = ""
    arguments: str = ""
    ended: bool = False
    index: int | None = None
    """Among the calls that were sent."""
    sent: str = ""
    """The arguments that were sent."""


class Reply:
    """Mutable. The rim adds text and takes content; readers take the text and note calls."""

    def __init__(self, detector: Any, tools: list[Any]):
        self.calls: list[Call] = []
        self.settled = 0
        """How many calls at the front will not change any more."""
        self.tools = tools
        self._detector = detector
        self._text = ""
        self._ended = False
        self._content: list[str] = []
        self._space = ""
        self._said = self._apart = False

    def add(self, text: str) -> None:
        self._text += text

    def end(self) -> None:
        """No more text will come."""
        self._ended = True

    def take_content(self) -> str:
        """Content since the last time; white space at its end waits for what follows."""
        content = "".join(self._content)
        self._content.clear()
        return content

    def say(self, text: str) -> None:
        """Note content."""
        if text and self._apart:
            self._space += " "
            self._apart = False
        text = self._space + text
        kept = text.rstrip()
        self._space = text[len(kept) :]
        if kept:
            self._content.append(kept)
            self._said = True

    def set_apart(self) -> None:
        """Content that follows is parted from what was said by a space."""
        self._apart = self._said

    def drop_space(self) -> None:
        self._space = ""

    def keep_space(self) -> None:
        self._content.append(self._space)
        self._space = ""

    def begin(self, name: str = "") -> Call:
        self.settled = len(self.calls)
        self.calls.append(Call(name))
        return self.calls[-1]

    def parse(self, text: str) -> tuple[str, list[Any]]:
        """SGLang's own reading of ``text``: its content and its ``ToolCallItem``s."""
        try:
            found = self._detector.detect_and_parse(text, self.tools)
        except Exception as error:  # odd text makes some parsers raise anything; SGLang's server logs it too
            logger.warning("toolspec: %s cannot read a call: %r", type(self._detector).__name__, error)
            return "", []
        return found.normal_text, found.calls

    def put_calls(self, at: int, found: Iterable[Any], certain: bool = True) -> None:
        """Note what SGLang found as the calls from ``at`` on; the last may go on unless ``certain``."""
        items = list(found)
        self.settled = at
        self.calls.extend(Call() for _ in range(at + len(items) - len(self.calls)))
        for call, item in zip(self.calls[at:], items, strict=False):
            call.name, call.arguments, call.ended = item.name or "", item.parameters, True
        if items and not certain:
            last = self.calls[at + len(items) - 1]
            last.arguments, last.ended = last.arguments.removesuffix("}"), False

    def until(self, *marks: str, out: Callable[[str], object] = lambda text: None) -> Reading[str]:
        """Read through the first of ``marks``; the text before it goes to ``out``.

        Returns the mark, or "" where the reply ends without one.
        """
        while (found := _any_of(marks).search(self._text)) is None and not self._ended:
            sure = len(self._text) - _held(self._text, marks)
            out(self._text[:sure])
            self._text = self._text[sure:]
            yield
        if found is None:
            out(self._text)
            self._text = ""
            return ""
        out(self._text[: found.start()])
        self._text = self._text[found.end() :]
        return found[0]

    def upto(self, *marks: str) -> Reading[tuple[str, str]]:
        """As ``until``; returns the text before the mark, and the mark."""
        pieces: list[str] = []
        mark = yield from self.until(*marks, out=pieces.append)
        return "".join(pieces), mark

    def unread(self, text: str) -> None:
        self._text = text + self._text

    def starts_with(self, mark: str) -> Reading[bool]:
        """Whether ``mark`` is next; nothing is read."""
        while len(self._text) < len(mark) and not self._ended:
            yield
        return self._text.startswith(mark)

    def peek(self) -> Reading[str]:
        """The next character behind white space, which is passed over; "" at the reply's end."""
        while True:
            self._text = self._text.lstrip(" \t\r\n")
            if self._text or self._ended:
                return self._text[:1]
            yield

    def rest(self) -> Reading[str]:
        """All text to the reply's end."""
        pieces: list[str] = []
        while True:
            pieces.append(self._text)
            self._text = ""
            if self._ended:
                return "".join(pieces)
            yield

    def json(self, value: JsonText, note: Callable[[], None]) -> Reading[bool]:
        """Read ``value``, with a ``note`` after each piece; whether it came to its end.

        Where it did not, all of its text is still to be read.
        """
        taken: list[str] = []
        while not (value.done or value.broken):
            if self._text:
                taken.append(self._text)
                self._text = value.feed(self._text)
                note()
            elif self._ended:
                break
            else:
                yield
        if not value.done:
            self._text = "".join(taken)
        return value.done


@lru_cache(maxsize=64)
def _any_of(marks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, marks)))


def _held(text: str, marks: tuple[str, ...]) -> int:
    """How many characters at the end of ``text`` may begin one of ``marks``."""
    longest = min(len(text), max(map(len, marks)) - 1)
    ends = (n for n in range(longest, 0, -1) if any(mark.startswith(text[-n:]) for mark in marks))
    return next(ends, 0)
