"""Grows the ways on from a point into drafts, likeliest first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from sglang_toolspec.grammars.block import Point
from sglang_toolspec.grammars.block_writer import BlockWriter, Step
from sglang_toolspec.grammars.json_spot import Place
from sglang_toolspec.grammars.schema import Arm
from sglang_toolspec.grammars.script import EndBlock, Value

MIN_CHANCE = 0.04
MAX_DRAFTS = 12
MAX_EXPANSIONS = 24
MAX_TEXT = 400


class Part(NamedTuple):
    """A piece of a continuation. ``weight`` estimates the probability that the reply goes on so
    up to its end; ``source`` names who guessed it, where it is part of a value."""

    text: str
    weight: float
    source: str = ""


class Continuation(NamedTuple):
    """Text that may come next, in parts of falling weight; ``ends`` says that the reply may end
    right after it."""

    parts: tuple[Part, ...]
    ends: bool = False

    @property
    def text(self) -> str:
        return "".join([part.text for part in self.parts])

    @property
    def weight(self) -> float:
        return self.parts[-1].weight


class Start(NamedTuple):
    """A point to grow from, how likely it is, and text that comes before it."""

    weight: float
    point: Point
    writer: BlockWriter
    text: str = ""


class _Growing(NamedTuple):
    minus_weight: float
    order: int
    """Breaks ties, first come first served."""
    parts: tuple[Part, ...]
    length: int
    point: Point
    writer: BlockWriter


class Growth:
    """Throw-away: grows points into continuations, likeliest first."""

    def __init__(self, starts: Iterable[Start]):
        self._heap: list[_Growing] = []
        self._found: list[Continuation] = []
        self._order = 0
        self._known: dict[tuple[BlockWriter, Point], list[Step]] = {}
        for start in starts:
            parts = (Part(start.text, start.weight),) if start.text else ()
            self._push(parts, len(start.text), start.weight, start.point, start.writer)

    def continuations(self) -> list[Continuation]:
        """At most ``MAX_DRAFTS``, likeliest first."""
        expansions = 0
        while self._heap and expansions < MAX_EXPANSIONS and len(self._found) < MAX_DRAFTS:
            self._expand(heapq.heappop(self._heap))
            expansions += 1
        for item in self._heap:
            self._leaf(item.parts)
        self._found.sort(key=lambda found: -found.weight)
        return self._found[:MAX_DRAFTS]

    def _expand(self, item: _Growing) -> None:
        weight, growing, found = -item.minus_weight, len(self._heap), len(self._found)
        for text, chance, point, source in self._steps(item, MIN_CHANCE / weight):
            likely, length = weight * chance, item.length + len(text)
            if likely < MIN_CHANCE or length > MAX_TEXT:
                continue
            parts = (*item.parts, Part(text, likely, source)) if text else item.parts
            if point is None:
                self._leaf(parts)
            else:
                self._push(parts, length, likely, point, item.writer)
        if len(self._found) > found:
            return
        if len(self._heap) == growing:
            self._leaf(item.parts, ends=isinstance(item.point.step, EndBlock))  # nothing is likely
        elif is_open(item.point) and not (item.point.spot or item.point).raw:
            # The text before an open value stands for itself too: its last token differs
            # from that of a longer text.
            self._leaf(item.parts)

    def _steps(self, item: _Growing, least: float) -> list[Step]:
        """Several drafts come to the same point (behind any value), the likeliest first: what is found
        for that one is enough for the others."""
        at = item.writer, item.point
        known = self._known.get(at)
        if known is None:
            known = self._known[at] = item.writer.steps(item.point, least)
        return known

    def _push(
        self, parts: tuple[Part, ...], length: int, weight: float, point: Point, writer: BlockWriter
    ) -> None:
        self._order += 1
        heapq.heappush(self._heap, _Growing(-weight, self._order, parts, length, point, writer))

    def _leaf(self, parts: tuple[Part, ...], ends: bool = False) -> None:
        if parts:
            self._found.append(Continuation(parts, ends))


def is_open(point: Point) -> bool:
    """Whether a value that only the model knows is being written."""
    spot = point.spot
    if spot is not None:
        return spot.place in (Place.IN_STRING, Place.IN_SCALAR) and _has_open(spot.arms)
    if isinstance(point.step, Value):
        return point.frame is None or _has_open(point.frame.member_arms)
    return False


def _has_open(arms: tuple[Arm, ...]) -> bool:
    return any(arm.values is None for arm in arms)
