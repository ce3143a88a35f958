"""What the ``pattern`` or ``format`` of a string forces inside its value, found by xgrammar."""

from __future__ import annotations

from sglang_toolspec.grammars.guesses import NONE, Guess, Guesses
from sglang_toolspec.grammars.json_spot import Frame, Spot
from sglang_toolspec.grammars.values import ValueGrammars

FORCED = 0.95


class PatternedValues:
    """Shared by all requests; knows schemas only."""

    name = "pattern"

    def __init__(self, grammars: ValueGrammars):
        self._grammars = grammars

    def guess(self, spot: Spot, kind: str) -> Guesses:
        if kind != "string":
            return NONE
        for arm in spot.arms:
            if "pattern" in arm.text or "format" in arm.text:
                return self._forced(self._grammars.forced(arm.text, spot.raw))
        return NONE

    def wrote(self, frame: Frame, text: str, kind: str) -> None:
        """Values teach nothing here."""

    def _forced(self, text: str) -> Guesses:
        if not text:
            return NONE
        value = text.removesuffix('"')
        ends = value != text
        if not value:
            return Guesses((), FORCED)
        return Guesses((Guess(value, FORCED, ends, self.name),), None)
