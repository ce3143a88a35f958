"""Several guessers as one."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_toolspec.grammars.guesses import Guess, Guesser, Guesses
from sglang_toolspec.grammars.json_spot import Frame, Spot


class CombinedGuesser:
    """Guesses of all; where two guess the same text, the higher chance. The first that knows
    whether a value ends here decides that."""

    def __init__(self, guessers: Sequence[Guesser]):
        self._guessers = guessers

    def guess(self, spot: Spot, kind: str) -> Guesses:
        best: dict[tuple[str, bool], Guess] = {}
        ends_here: float | None = None
        for guesser in self._guessers:
            guesses, ends = guesser.guess(spot, kind)
            ends_here = ends if ends_here is None else ends_here
            for guess in guesses:
                known = best.get((guess.text, guess.ends))
                if guess.text and (known is None or guess.chance > known.chance):
                    best[guess.text, guess.ends] = guess
        return Guesses(list(best.values()), ends_here)

    def wrote(self, frame: Frame, text: str, kind: str) -> None:
        for guesser in self._guessers:
            guesser.wrote(frame, text, kind)
