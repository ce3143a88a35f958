"""Ways on from a point of a block of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sglang_toolspec.grammars.block import Context, Point, begun, in_markup
from sglang_toolspec.grammars.json_reader import unquoted
from sglang_toolspec.grammars.json_spot import Frame, Place, Spot, opened
from sglang_toolspec.grammars.json_writer import CERTAIN, ENDS_HERE, JsonWriter, shared_start
from sglang_toolspec.grammars.schema import KINDS, written
from sglang_toolspec.grammars.script import (
    Fork,
    Index,
    Json,
    Key,
    Literal,
    Name,
    Value,
    match,
    next_block,
)

ENDS_AFTER_CALL = 0.7
"""Chance that a block ends after a call, and a reply after a block."""
MIN_END = 0.01
"""Below this it does not matter how likely an object ends."""


class Step(NamedTuple):
    """Text that may come next, and the point after it; ``None`` where the value is open."""

    text: str
    chance: float
    point: Point | None
    source: str = ""
    """Who guessed it, where it is part of a value."""


class BlockWriter:
    """Stateless; looks up layout and habits in its context."""

    __slots__ = ("_context", "_json")

    def __init__(self, context: Context):
        self._context = context
        self._json = JsonWriter(
            context.layout, context.habits, context.guesser, context.shapes.parameter_names
        )

    def steps(self, point: Point, least: float = 0.0) -> list[Step]:
        """Alternatives, unordered, with all those of at least that chance; empty where nothing
        is known or the block has ended."""
        at_step = _AT.get(type(point.step))
        return at_step(self, point, least) if at_step else []

    def _in_json(self, point: Point, least: float) -> list[Step]:
        assert point.spot is not None
        found = []
        for text, chance, spot, source in self._json.ways(point.spot, least):
            if chance < least:
                continue
            after = None
            if spot is not None and spot.place is Place.DONE:
                after = self._context.after_step(point)
            elif spot is not None:
                after = Point(point.todo, point.raw, spot, point.frame, point.tool, point.calls)
            found.append(Step(text, chance, after, source))
        return found

    def _literal(self, point: Point, least: float, chance: float = 1.0) -> list[Step]:
        assert isinstance(point.step, Literal)
        found = match(point.step.text, point.raw)
        if found is None:
            return []
        return [Step(found.missing, chance, self._context.after_step(point))]

    def _fork(self, point: Point, least: float) -> list[Step]:
        fork = point.step
        assert isinstance(fork, Fork)
        more = self._chance_of_more(point)
        return [
            *self._literal(point._replace(todo=fork.more), least, more),
            *self._literal(point._replace(todo=fork.done), least, 1 - more),
        ]

    def _index(self, point: Point, least: float) -> list[Step]:
        rest = str(point.calls).removeprefix(point.raw)
        return [Step(rest, CERTAIN, self._context.after_step(point))]

    def _chance_of_more(self, point: Point) -> float:
        if point.frame is None:  # a call after a call
            return 1 - ENDS_AFTER_CALL
        ends = [chance for key, chance in self._context.habits.next_keys(point.frame, MIN_END) if key is None]
        return 1 - (ends[0] if ends else 0.0)

    def _name(self, point: Point, least: float) -> list[Step]:
        step = point.step
        assert isinstance(step, Name)
        known = self._context.shapes.names.values or ()
        names = [n for n in known if n.startswith(point.raw) and _is_plain(n, step.ends)]
        weights = self._context.habits.weights(self._context.name_frame, names)
        unit = CERTAIN / (sum(weights) or 1.0)
        found = [
            Step(name[len(point.raw) :], weight * unit, self._context.after_step(point, tool=name))
            for name, weight in zip(names, weights, strict=True)
            if weight * unit >= least
        ]
        return found or self._shared_start(names, point)

    def _key(self, point: Point, least: float) -> list[Step]:
        frame = point.frame or opened(None, (), False)
        known = self._context.habits.next_keys(frame, 0.0 if point.raw else least)
        keys = [(k, chance) for k, chance in known if k is not None and _fits(k, point.raw)]
        unit = CERTAIN / (sum(chance for _, chance in keys) or 1.0)
        found = [
            Step(
                key[len(point.raw) :],
                chance * unit,
                self._context.after_step(point, frame=frame.with_key(key)),
            )
            for key, chance in keys
            if chance * unit >= least
        ]
        return found or self._shared_start([key for key, _ in keys], point)

    def _shared_start(self, words: list[str], point: Point) -> list[Step]:
        """What many words begin with, none of which is likely."""
        shared = shared_start(words)[len(point.raw) :]
        return [Step(shared, CERTAIN, point._replace(raw=point.raw + shared))] if shared else []

    def _value(self, point: Point, least: float) -> list[Step]:
        step = point.step
        assert isinstance(step, Value)
        in_json = point.spot is not None and point.spot.place not in (Place.DONE, Place.IN_SCALAR)
        if not in_json and (done := begun(point.raw, step.end)):
            return [Step(step.end[done:], CERTAIN, self._after_value(point))]
        if point.spot is not None:
            return self._json_value(point, step.end, least)
        if point.frame is None:
            return self._open_value(point, step.end)
        return self._text_value(point, point.frame, step.end, least)

    def _after_value(self, point: Point) -> Point:
        ended = point.spot is not None and point.spot.place is Place.DONE
        return self._context.after_step(point, frame=point.spot.frame if point.spot and ended else None)

    def _json_value(self, point: Point, end: str, least: float) -> list[Step]:
        """Of a parameter that holds no text."""
        spot = point.spot
        assert spot is not None
        if spot.place is Place.DONE:
            return [Step(end, CERTAIN, self._after_value(point))]
        found = []
        for text, chance, there, source in self._json.ways(spot, least):
            if there is None:
                found.append(Step(text, chance, None, source))
                continue
            after = point._replace(raw=point.raw + text, spot=there)
            if there.place is Place.DONE:
                found.append(Step(text + end, chance, self._after_value(after), source))
            else:
                found.append(Step(text, chance, after, source))
        return found

    def _text_value(self, point: Point, frame: Frame, end: str, least: float) -> list[Step]:
        arms = frame.member_arms
        finite = [v for arm in arms if arm.values is not None for v in arm.values]
        fitting = [v for v in finite if in_markup(v).startswith(point.raw) and _is_plain(in_markup(v))]
        weights = self._context.habits.weights(frame, fitting)
        unit = CERTAIN / (sum(weights) or 1.0)
        choices = [(v, in_markup(v), weight * unit) for v, weight in zip(fitting, weights, strict=True)]
        open_kinds = frozenset(kind for arm in arms if arm.values is None for kind in arm.kinds)
        constants = [True, False] * ("boolean" in open_kinds) + [None] * ("null" in open_kinds)
        for value in constants if open_kinds != KINDS else ():
            for word, share in self._context.layout.words(value, 0):
                if word.startswith(point.raw):
                    choices.append((value, word, 0.5 * share / len(open_kinds)))
        found = [
            Step(
                text[len(point.raw) :] + end,
                chance,
                self._context.after_step(point, frame=frame.with_value(value)),
            )
            for value, text, chance in choices
            if chance >= least
        ]
        return found if fitting and not open_kinds else found + self._open_value(point, end)

    def _open_value(self, point: Point, end: str) -> list[Step]:
        arms = point.frame.member_arms if point.frame else ()
        after = self._context.after_step(point)
        # Guessers speak JSON; a markup holds the bare text.
        spot = Spot(Place.IN_STRING, point.frame, arms, written(point.raw)[1:-1])
        guesses, ends_here = self._context.guesser.guess(spot, "string")
        found = []
        for escaped, chance, ends, source in guesses:
            text = unquoted(escaped)
            goes_on = point._replace(raw=point.raw + text)
            found.append(Step(text + end * ends, chance, after if ends else goes_on, source))
        if point.raw:
            found.append(Step(end, ENDS_HERE if ends_here is None else ends_here, after))
        return found or [Step("", 1.0, None)]


_AT: dict[type, Callable[[BlockWriter, Point, float], list[Step]]] = {
    Json: BlockWriter._in_json,
    Literal: BlockWriter._literal,
    Fork: BlockWriter._fork,
    Name: BlockWriter._name,
    Index: BlockWriter._index,
    Key: BlockWriter._key,
    Value: BlockWriter._value,
}


def _fits(key: str, raw: str) -> bool:
    return key.startswith(raw) and _is_plain(key)


def _is_plain(text: str, ends: str = "") -> bool:
    """Whether ``text`` can be written without quotes: it is UTF-8 and holds no ``ends``."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        return False
    return not any(end in text for end in ends)


def after_block(context: Context, calls: int) -> Point:
    """The point before one more call, after a block that has ended."""
    return context.start(next_block(context.form), calls)
