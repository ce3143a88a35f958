"""A spot in a JSON text that is still being written: the place, and the schema there.

Spots are immutable, so that a draft can try many ways on from one. ``JsonReader`` moves
along committed text, ``json_writer`` goes on from a spot.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from sglang_toolspec.grammars.layout import Slot
from sglang_toolspec.grammars.schema import Arm, union

MAX_DEPTH = 64


class Place(Enum):
    VALUE = "value"  # a value starts here
    KEY = "key"  # a key starts here, or the object ends
    IN_KEY = "in_key"
    COLON = "colon"  # a key has ended
    IN_STRING = "in_string"
    IN_SCALAR = "in_scalar"  # in a number or a literal
    AFTER = "after"  # a value has ended
    DONE = "done"  # the root value has ended
    BROKEN = "broken"  # no JSON any more

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python


class Frame(NamedTuple):
    """An open object or array; ``arms`` are the alternatives that still fit it."""

    above: Frame | None
    array: bool
    arms: tuple[Arm, ...]
    depth: int
    """1 is the outermost; 0 are the parameters of a markup, each of which is a JSON text of its own."""
    key: str | None = None
    at: int = 0
    """Index of the item, in an array."""
    seen: tuple[str, ...] = ()
    tool: str = ""
    """The tool whose call this is part of, once its name is written."""

    @property
    def member_arms(self) -> tuple[Arm, ...]:
        """The alternatives of the value at ``key`` or ``at``."""
        if len(self.arms) == 1:
            arm = self.arms[0]
            return (arm.item(self.at) if self.array else arm.member(self.key or "")).arms
        if self.array:
            return union(arm.item(self.at) for arm in self.arms)
        return union(arm.member(self.key or "") for arm in self.arms)

    def with_key(self, key: str) -> Frame:
        above, array, arms, depth, _, at, seen, tool = self
        return Frame(above, array, arms, depth, key, at, (*seen, key), tool)

    def with_value(self, value: Any) -> Frame:
        """Leaves out the alternatives that a finished scalar rules out."""
        if self.array:
            return self._with_item(value)
        if self.key is None:
            return self
        left = tuple([a for arm in self.arms if (a := arm.narrowed(self.key, value))])
        if left == self.arms:
            return self
        tool = next((arm.tool for arm in left if arm.tool), self.tool)
        return self._replace(arms=left or self.arms, tool=tool)

    def _with_item(self, value: Any) -> Frame:
        if len(self.arms) == 1:
            return self
        left = tuple([arm for arm in self.arms if arm.item(self.at).may_be(value)])
        return self._replace(arms=left or self.arms)

    @property
    def is_map(self) -> bool:
        """Whether keys that no schema declares may stand here."""
        return not all(arm.closed for arm in self.arms)

    @property
    def slot(self) -> Slot:
        """The gap in which the next item or key starts."""
        return Slot.ITEM if (self.at if self.array else self.seen) else Slot.OPEN


class Spot(NamedTuple):
    place: Place
    frame: Frame | None
    arms: tuple[Arm, ...] = ()
    """Alternatives of the value that starts or goes on here."""
    raw: str = ""
    """The key or value so far, without its quotes; as written, escapes included."""
    gap: str = ""
    """White space since the last mark."""

    @property
    def path(self) -> tuple[str | int, ...]:
        """Keys and indices from the root to the value here."""
        return path_of(self.frame)


def path_of(frame: Frame | None) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    while frame is not None:
        steps.append(frame.at if frame.array else frame.key or "")
        frame = frame.above
    return tuple(steps[::-1])


def opened(frame: Frame | None, arms: tuple[Arm, ...], array: bool, tool: str = "") -> Frame:
    """A container that begins as the value ``arms`` in ``frame``, or as the root, of ``tool``."""
    kind = "array" if array else "object"
    fitting = tuple(arm for arm in arms if kind in arm.kinds) or arms
    if frame is None:
        return Frame(None, array, fitting, 1, tool=tool)
    return Frame(frame, array, fitting, frame.depth + 1, tool=frame.tool)


def closed(frame: Frame | None) -> Spot:
    """The spot after a value in ``frame`` has ended."""
    return Spot(Place.AFTER if frame is not None and frame.depth else Place.DONE, frame)
