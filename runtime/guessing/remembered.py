"""Values that one tenant's calls had before, by tool and path."""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from typing import Any

from sglang_toolspec.grammars.guesses import NONE, Guess, Guesses
from sglang_toolspec.grammars.json_reader import unquoted
from sglang_toolspec.grammars.json_spot import Frame, Spot, path_of
from sglang_toolspec.grammars.schema import Arm, written
from sglang_toolspec.runtime.guessing.shapes import (
    marks_after,
    rest_of,
    shape_in,
    shape_of,
    shape_of_format,
)

MAX_PLACES = 2048
MAX_VALUES = 32
MAX_LENGTH = 200
"""Characters of a value, and of the keys that lead to it; longer ones are not remembered."""
MAX_SHAPES = 256
SAME_AGAIN = 0.5
"""Chance that a place has a value it had before."""
SAME_TAIL = 0.3
GOES_ON = 0.8
MARK = 0.93
COMPLETE, INCOMPLETE = 0.85, 0.02
"""Chances that a value ends where it has the shape of its place, and where it is shorter."""

Place = tuple[str, tuple[str, ...]]
_NOTHING: OrderedDict[str, int] = OrderedDict()


class RememberedValues:
    """Mutable, bounded, for one tenant only."""

    name = "value"

    def __init__(self) -> None:
        self._places: OrderedDict[Place, OrderedDict[str, int]] = OrderedDict()
        self._by_shape: OrderedDict[str, str] = OrderedDict()
        """The last value of each shape."""

    def wrote(self, frame: Frame, text: str, kind: str) -> None:
        place = _place(frame)
        if len(text) > MAX_LENGTH or sum(map(len, place[1])) > MAX_LENGTH:
            return
        values = self._places.setdefault(place, OrderedDict())
        self._places.move_to_end(place)
        values[text] = values.pop(text, 0) + 1
        _bound(values, MAX_VALUES)
        _bound(self._places, MAX_PLACES)
        if (shape := shape_of(text)) is not None:
            self._by_shape.pop(shape, None)
            self._by_shape[shape] = text
            _bound(self._by_shape, MAX_SHAPES)

    def guess(self, spot: Spot, kind: str) -> Guesses:
        if spot.frame is None:
            return NONE
        seen = self._places.get(_place(spot.frame), _NOTHING)
        shape = _expected_shape(spot, next(reversed(seen), None))
        if not seen and shape is None:
            return NONE
        so_far = unquoted(spot.raw)
        # The latest first: the same value often comes again soon.
        fitting = [(value, n) for value, n in reversed(seen.items()) if value.startswith(so_far)]
        total = sum(n for _, n in fitting)
        chance = GOES_ON if so_far else SAME_AGAIN
        guesses = [
            self._guess(value[len(so_far) :], chance * n / total, ends=kind == "string")
            for value, n in fitting[:4]
            if value != so_far
        ]
        ends_here = chance * seen[so_far] / total if so_far in seen else None
        if shape is not None and rest_of(shape, so_far) is not None:
            guesses += self._by_its_shape(shape, so_far)
            whole = COMPLETE if shape_of(so_far) == shape else INCOMPLETE
            ends_here = max(ends_here or 0.0, whole)
        return Guesses(guesses, ends_here)

    def _by_its_shape(self, shape: str, so_far: str) -> list[Guess]:
        """Marks that must come next, else the last value of that shape (same year, same month)."""
        if marks := marks_after(shape, so_far):
            return [self._guess(marks, MARK)]
        like = self._by_shape.get(shape)
        if like is None or len(like) <= len(so_far):
            return []
        # Another day, but perhaps the same time of day.
        chance = SAME_AGAIN if like.startswith(so_far) else SAME_TAIL
        return [self._guess(like[len(so_far) :], chance)]

    def _guess(self, rest: str, chance: float, ends: bool = False) -> Guess:
        return Guess(written(rest)[1:-1], chance, ends, self.name)


def _place(frame: Frame) -> Place:
    return frame.tool, tuple([step for step in path_of(frame) if isinstance(step, str)])


def _expected_shape(spot: Spot, example: str | None) -> str | None:
    """From the schema, else from a value that stood here before."""
    shape = _declared_shape(spot.arms)
    return shape_of(example) if shape is None and example else shape


@lru_cache(maxsize=4096)
def _declared_shape(arms: tuple[Arm, ...]) -> str | None:
    for arm in arms:
        if (shape := shape_of_format(arm.text.get("format", ""))) is not None:
            return shape
        if (shape := shape_in(arm.text.get("description", ""))) is not None:
            return shape
    return None


def _bound(table: OrderedDict[Any, Any], capacity: int) -> None:
    while len(table) > capacity:
        table.popitem(last=False)
