"""Several guessers as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import ParamSpec, Protocol, TypeVar

from sglang_toolspec.grammars.guesses import NONE, Guess, Guesser, Guesses
from sglang_toolspec.grammars.json_spot import Frame, Spot
from sglang_toolspec.runtime.rests import Rests
from sglang_toolspec.runtime.session import Faults

P = ParamSpec("P")
T = TypeVar("T")


class NamedGuesser(Guesser, Protocol):
    name: str


class CombinedGuesser:
    """Guesses of all; where two guess the same text, the higher chance. The first that knows
    whether a value ends here decides that.

    A guesser that raises is dropped for this request; one that rests is not asked.
    """

    def __init__(self, guessers: Sequence[NamedGuesser], faults: Faults, rests: Rests):
        self._guessers = [guesser for guesser in guessers if rests.awake(guesser.name)]
        self._faults = faults
        self._rests = rests

    def guess(self, spot: Spot, kind: str) -> Guesses:
        best: dict[tuple[str, bool], Guess] = {}
        ends_here: float | None = None
        for guesser in list(self._guessers):
            guesses, ends = self._ask(guesser, guesser.guess, spot, kind) or NONE
            ends_here = ends if ends_here is None else ends_here
            for guess in guesses:
                known = best.get((guess.text, guess.ends))
                if guess.text and (known is None or guess.chance > known.chance):
                    best[guess.text, guess.ends] = guess
        return Guesses(list(best.values()), ends_here)

    def wrote(self, frame: Frame, text: str, kind: str) -> None:
        for guesser in list(self._guessers):
            self._ask(guesser, guesser.wrote, frame, text, kind)

    def _ask(self, guesser: NamedGuesser, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        began = time.perf_counter()
        try:
            answer = ask(*args, **kwargs)
        except Exception as error:  # a guesser's fault may cost only its guesses
            self._guessers.remove(guesser)
            self._faults.note(guesser.name, error)
            self._rests.fault(guesser.name)
            return None
        self._rests.drafted(guesser.name, time.perf_counter() - began)
        return answer
