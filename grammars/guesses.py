"""What others guess of values that no schema fixes: copied from a prompt, seen before, …"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sglang_toolspec.grammars.json_spot import Frame, Spot


class Guess(NamedTuple):
    """How a value may go on."""

    text: str
    """Follows what is written of the value; as in JSON, without quotes."""
    chance: float
    ends: bool = False
    """Whether the value ends after it."""
    source: str = ""


class Guesses(NamedTuple):
    """``ends_here`` is the chance that the value ends where it stands, where that is known."""

    guesses: Sequence[Guess] = ()
    ends_here: float | None = None


NONE = Guesses()


class Guesser(Protocol):
    def guess(self, spot: Spot, kind: str) -> Guesses:
        """For the open value at ``spot``; ``kind`` is ``string`` or ``number``. Called often."""

    def wrote(self, frame: Frame, text: str, kind: str) -> None:
        """A value of the reply has ended; ``text`` is unquoted."""


class NoGuesses:
    def guess(self, spot: Spot, kind: str) -> Guesses:
        return NONE

    def wrote(self, frame: Frame, text: str, kind: str) -> None:
        pass
