"""Text that the pattern of a string forces inside its value."""

from __future__ import annotations

import time

from sglang_toolspec.grammars.cache import GrammarCache
from sglang_toolspec.grammars.guesses import NONE, Guesses
from sglang_toolspec.grammars.values import ValueGrammars
from sglang_toolspec.runtime.guessing import patterned
from sglang_toolspec.runtime.guessing.patterned import PatternedValues
from tests.guessing import spot, texts


def test_the_marks_of_a_pattern_are_forced() -> None:
    guesser = PatternedValues(ValueGrammars(GrammarCache()))
    schema = {"pattern": "^ab-[0-9]{2}$"}
    ends = time.monotonic() + 30
    while not guesser.guess(spot(**schema), "string").guesses:  # compiled in the background
        assert time.monotonic() < ends
        time.sleep(0.01)
    assert texts(guesser.guess(spot(**schema), "string")) == ["ab-"]
    assert guesser.guess(spot("ab-12", **schema), "string") == Guesses((), patterned.FORCED)
    assert guesser.guess(spot("xy", **schema), "string") == NONE
    assert guesser.guess(spot(**schema), "number") == NONE
