"""The parts of a call that is not written yet, for readers; see ``explain``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

OPEN_CHARACTERS = {"integer": 2, "number": 4, "any": 8}
"""Characters that an open value counts in a typical call; others count ``OPEN_TEXT``."""
OPEN_TEXT = 12


class Kind(Enum):
    FORCED = "forced"  # the schema leaves nothing else, or next to nothing
    BRANCH = "branch"  # one of several ways that the schema knows
    OPEN = "open"  # only the model knows


class Role(Enum):
    """What a piece is for a reader."""

    TEXT = "text"
    NAME = "name"  # of the tool
    KEY = "key"  # begins a parameter, or a member of an object in one
    CLOSE = "close"  # ends an object that has members
    CHOICE = "choice"  # ``ways`` of a value
    OPTIONAL = "optional"  # a member that may be left out; the only one of ``ways``
    MORE = "more"  # further items
    CUT = "cut"  # what is not shown


@dataclass(frozen=True)
class Piece:
    """A part of a call; immutable. ``text`` is as written, or names what an open place holds."""

    kind: Kind
    text: str = ""
    role: Role = Role.TEXT
    depth: int = 0
    """Containers around it, from the arguments object inwards."""
    ways: tuple[Pieces, ...] = ()


Pieces = tuple[Piece, ...]


@dataclass(frozen=True)
class Counts:
    """Characters of a typical call: required keys only, the first of each choice."""

    forced: int = 0
    branch: int = 0
    open: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.forced + other.forced, self.branch + other.branch, self.open + other.open)

    @property
    def total(self) -> int:
        return self.forced + self.branch + self.open

    def share(self, kind: Kind) -> float:
        return getattr(self, kind.value) / self.total if self.total else 0.0


def typical(pieces: Iterable[Piece]) -> Counts:
    found, skipped = Counts(), False
    for piece in pieces:
        if piece.role is Role.OPTIONAL:
            skipped = True
            continue
        if piece.ways:
            found += typical(piece.ways[0])
        elif piece.kind is Kind.OPEN:
            found += Counts(open=OPEN_CHARACTERS.get(piece.text, OPEN_TEXT))
        elif piece.role in (Role.MORE, Role.CUT):
            continue
        elif piece.kind is Kind.FORCED and not skipped:
            found += Counts(forced=len(piece.text))
        else:  # what follows a key that may be left out is no longer forced
            found += Counts(branch=len(piece.text))
        skipped = False
    return found


def flat(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """All pieces, those of every way included."""
    for piece in pieces:
        yield piece
        for way in piece.ways:
            yield from flat(way)
