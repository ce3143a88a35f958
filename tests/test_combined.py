"""Several guessers as one, and whatever stands where they are asked."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.grammars.guesses import Guess, Guesses
from sglang_toolspec.grammars.json_spot import Frame, Place, Spot, opened
from sglang_toolspec.grammars.schema import Schema
from sglang_toolspec.runtime.guessing.combined import CombinedGuesser, NamedGuesser
from sglang_toolspec.runtime.guessing.copying import CopiedValues
from sglang_toolspec.runtime.guessing.remembered import RememberedValues
from sglang_toolspec.runtime.rests import FAULTS, Rests
from sglang_toolspec.runtime.session import Faults
from tests.guessing import frame, spot


class Fixed:
    """Always guesses the same."""

    name = "fixed"

    def __init__(self, *guesses: Guess, ends_here: float | None = None):
        self.found = Guesses(guesses, ends_here)
        self.heard: list[str] = []

    def guess(self, spot: Spot, kind: str) -> Guesses:
        return self.found

    def wrote(self, frame: Frame, text: str, kind: str) -> None:
        self.heard.append(text)


def watched(guessers: Sequence[NamedGuesser], rests: Rests | None = None) -> CombinedGuesser:
    return CombinedGuesser(guessers, Faults(lambda reason, error: None), rests or Rests())


def combined(*guessers: Fixed) -> Guesses:
    return watched(guessers).guess(spot(), "string")


def test_of_two_guesses_of_one_text_the_likelier_stays() -> None:
    both = combined(Fixed(Guess("a", 0.2, source="x"), Guess("b", 0.3)), Fixed(Guess("a", 0.4, source="y")))

    assert list(both.guesses) == [Guess("a", 0.4, source="y"), Guess("b", 0.3)]


def test_a_text_that_ends_differs_from_one_that_goes_on() -> None:
    assert len(combined(Fixed(Guess("a", 0.2), Guess("a", 0.2, ends=True))).guesses) == 2


def test_empty_guesses_are_dropped() -> None:
    assert combined(Fixed(Guess("", 0.9), Guess("", 0.9, ends=True))).guesses == []


def test_the_first_that_knows_decides_whether_a_value_ends() -> None:
    assert combined(Fixed(), Fixed(ends_here=0.0), Fixed(ends_here=0.9)).ends_here == 0.0
    assert combined(Fixed()).ends_here is None
    assert combined().ends_here is None


def test_all_hear_of_a_value() -> None:
    guessers = Fixed(), Fixed()

    watched(guessers).wrote(frame(), "Oslo", "string")

    assert [guesser.heard for guesser in guessers] == [["Oslo"], ["Oslo"]]


# Whatever stands there.

ANY = (
    st.text(max_size=30)
    | st.text('aB1-. "\\u_İ:/@\n', max_size=30)
    | st.from_regex(r"\d{4}-\d\d-\d\d", fullmatch=True)
)
ODD = st.text(st.characters(), max_size=8)  # lone surrogates too
KINDS = st.sampled_from(["string", "number"])


@st.composite
def spots(draw: st.DrawFn) -> Spot:
    holder: Frame | None = None
    for _ in range(draw(st.integers(0, 3))):
        holder = opened(holder, (), draw(st.booleans()), draw(ANY))
        if not holder.array:
            holder = holder.with_key(draw(ANY | ODD))
    words = st.dictionaries(st.sampled_from(["format", "description", "pattern"]), ANY | st.just("date"))
    arms = Schema.root(draw(words)).arms
    return Spot(draw(st.sampled_from(Place)), holder, arms, draw(ANY | ODD))


@given(
    ANY | ODD,
    st.lists(st.tuples(ANY | ODD, KINDS), max_size=5),
    st.lists(spots(), min_size=1, max_size=4),
    KINDS,
)
def test_guesses_never_fail_and_their_chances_are_chances(
    text: str, written: list[tuple[str, str]], places: list[Spot], kind: str
) -> None:
    both = watched([RememberedValues(), CopiedValues(text)])
    for place in places:
        for value, of_kind in written:
            if place.frame is not None:
                both.wrote(place.frame, value, of_kind)

        found = both.guess(place, kind)

        assert found.ends_here is None or 0 <= found.ends_here <= 1
        for guess in found.guesses:
            assert guess.text
            assert 0 <= guess.chance <= 1
            assert guess.source in ("copy", "value")
            guess.text.encode()
            json.loads(f'"{guess.text}"')


class Broken(Fixed):
    name = "broken"

    def guess(self, spot: Spot, kind: str) -> Guesses:
        raise RuntimeError("no")


def test_a_guesser_that_raises_costs_its_guesses_only() -> None:
    both = watched([Broken(), Fixed(Guess("a", 0.5))])

    for _ in range(2):  # the second time without it
        assert list(both.guess(spot(), "string").guesses) == [Guess("a", 0.5)]


def test_a_guesser_that_raises_in_every_request_rests() -> None:
    rests = Rests()

    for _ in range(FAULTS):
        watched([Broken()], rests).guess(spot(), "string")

    assert rests.resting() == ["broken"]
    assert watched([Fixed(Guess("a", 0.5)), Broken()], rests).guess(spot(), "string").guesses
