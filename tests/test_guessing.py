"""Guesses of values that no schema fixes: copied from the prompt, remembered, and both."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.grammars.cache import GrammarCache
from sglang_toolspec.grammars.guesses import NONE, Guess, Guesses
from sglang_toolspec.grammars.json_spot import Frame, Place, Spot, opened
from sglang_toolspec.grammars.schema import Schema
from sglang_toolspec.grammars.values import ValueGrammars
from sglang_toolspec.runtime.guessing import copying, patterned, remembered
from sglang_toolspec.runtime.guessing.combined import CombinedGuesser
from sglang_toolspec.runtime.guessing.copying import CopiedValues
from sglang_toolspec.runtime.guessing.patterned import PatternedValues
from sglang_toolspec.runtime.guessing.remembered import RememberedValues
from sglang_toolspec.runtime.guessing.shapes import (
    marks_after,
    rest_of,
    shape_in,
    shape_of,
    shape_of_format,
)


def frame(key: str = "city", tool: str = "get_weather") -> Frame:
    return opened(None, (), array=False, tool=tool).with_key(key)


def spot(raw: str = "", key: str = "city", tool: str = "get_weather", **schema: str) -> Spot:
    """In a string of which ``raw`` is written; ``schema`` holds its keywords."""
    arms = Schema.root({"type": "string", **schema}).arms
    return Spot(Place.IN_STRING, frame(key, tool), arms, raw)


def texts(guesses: Guesses) -> list[str]:
    """Likeliest first."""
    return [guess.text for guess in sorted(guesses.guesses, key=lambda guess: -guess.chance)]


def knows_nothing(guesses: Guesses) -> bool:
    return not guesses.guesses and guesses.ends_here is None


def copied(text: str, raw: str = "", key: str = "city", kind: str = "string") -> list[str]:
    return texts(CopiedValues(text).guess(spot(raw, key), kind))


def ends(text: str, raw: str, kind: str = "string") -> float | None:
    """The chance that a value copied from ``text`` ends after ``raw``."""
    return CopiedValues(text).guess(spot(raw), kind).ends_here


# Copying: how a value goes on.


def test_the_rest_of_a_word_is_copied_without_regard_to_case() -> None:
    assert copied("The weather in OSLO today", "Os") == ["LO"]
    assert copied("the weather in oslo today", "Os") == ["lo"]


def test_values_are_copied_word_by_word() -> None:
    text = "Flights to New York City, please."

    assert copied(text, "N") == ["ew"]
    assert copied(text, "New") == [" York"]
    assert copied(text, "New York City") == [", please"]


def test_a_value_may_end_after_a_word_and_is_likely_to_where_a_phrase_ends() -> None:
    text = 'From Oslo to "Bergen", then Trondheim.'

    assert ends(text, "Os") == copying.IN_WORD
    assert ends(text, "Oslo") == copying.AT_WORD_END
    assert ends(text, "Bergen") == ends(text, "Trondheim") == copying.AT_TEXT_END


def test_only_starts_of_words_are_continued() -> None:
    assert copied("a contact", "act") == []
    assert copied("an action", "act") == ["ion"]
    assert copied("un-action", "act") == ["ion"]


def test_what_followed_more_often_is_likelier() -> None:
    found = CopiedValues("Los Angeles, Los Gatos, Los Angeles").guess(spot("Los"), "string").guesses

    assert [guess.text for guess in found] == [" Angeles", " Gatos"]
    assert found[0].chance == pytest.approx(2 * found[1].chance)


def test_where_a_value_has_left_the_text_its_last_words_are_looked_for() -> None:
    text = "Remind me of the meeting with Zoe Quinn on Monday"

    assert copied(text, "Meet up, meeting with Zo") == ["e"]
    assert copied(text, "some quite different words, Zoe") == [" Quinn"]
    assert copied(text, "nothing of it stands there") == []


def test_a_long_value_is_found_by_its_end() -> None:
    body = "This is what the letter says, and it says so at some length: dear Zoe, hello. "
    text = f"Send it. {body * 3}Bye, Yours"

    assert copied(text, body * 3 + "Bye") == [", Yours"]
    assert copied(text, "x" + body * 3 + "Bye") == [", Yours"]
    link = "https://example.org/" + "/".join(map(str, range(30)))
    assert copied(f"open {link}klm now", link) == ["klm"]


def test_escapes_of_json_are_read_and_written() -> None:
    text = 'open C:\\temp\\new and "a\\b" now'

    assert copied(text, json.dumps("C:\\te")[1:-1]) == ["mp"]
    assert "a\\\\b" in copied(text)
    assert all(json.loads(f'"{guess}"') for guess in copied(text))
    assert copied("see Zoë Café", "Zo\\u00eb") == [" Café"]


@pytest.mark.parametrize("text", ["İstanbul and Oslo", "İİİ Oslo", "OSLO in Ⓐ ẞ ﬀ ΑΣ İ"])
def test_letters_that_grow_in_lower_case_move_nothing(text: str) -> None:
    """``"İ".lower()`` is two characters long."""
    assert [guess.lower() for guess in copied(text, "OS")] == ["lo"]
    assert ends(text, "oslo") is not None


def test_such_letters_are_found_themselves() -> None:
    assert copied("to İstanbul", "İst") == ["anbul"]
    assert copied("to İstanbul", "ist") == ["anbul"]


def test_a_number_is_continued_with_digits_only() -> None:
    text = "for 12 people, 1250 kg, 3.75 m, 40pm and 1,000"

    assert copied(text, "12", kind="number") == ["50"]
    assert copied(text, "3", kind="number") == [".75"]
    assert copied(text, "4", kind="number") == ["0"]
    assert copied(text, "40", kind="number") == []
    assert ends("for 12 people", "12", "number") == copying.AT_WORD_END
    assert copied("for 12 people", "12") == [" people"]


# Copying: how a value starts.


def test_names_quotes_codes_and_numbers_may_start_a_value() -> None:
    text = 'mail zoe@example.org about "the new plan" to Zoë Quinn-Smith in room 12'

    assert set(copied(text)) == {"zoe@example.org", "the new plan", "Zoë Quinn-Smith", "12"}


def test_an_apostrophe_quotes_nothing() -> None:
    assert "Oslo" in copied("What's it like in Oslo? I'm Bob's guest.")
    assert "over there" in copied("go 'over there' now")


def test_later_things_are_likelier() -> None:
    assert copied("from Oslo, Bergen, and Paris") == ["Paris", "Bergen", "Oslo"]


def test_things_near_a_word_of_the_key_are_likelier() -> None:
    text = "the guest is Zoe. " + "so much for that, and now for something else, " * 2 + "in Oslo"

    assert copied(text, key="guest_name")[0] == "Zoe"
    assert copied(text, key="theGuest")[0] == "Zoe"
    assert copied(text, key="city")[0] == "Oslo"


def test_only_numbers_start_a_number() -> None:
    text = "in Oslo at 19:30 for 12 guests, -3.5 degrees, 007, 1,000, +5, 3rd"

    assert set(copied(text, kind="number")) == {"12", "-3.5"}


def test_a_value_is_not_offered_again_by_the_same_request() -> None:
    values = CopiedValues("from Oslo to Bergen")
    assert texts(values.guess(spot(), "string")) == ["Bergen", "Oslo"]

    values.wrote(frame("from"), "Bergen", "string")

    assert texts(values.guess(spot(), "string")) == ["Oslo"]
    assert texts(values.guess(spot("Ber"), "string")) == ["gen"]  # but followed where it is written


def test_the_chances_to_start_add_up_to_at_most_one() -> None:
    found = CopiedValues(", ".join(f"Name{i}" for i in range(50))).guess(spot(), "string").guesses

    assert len(found) == copying.MAX_STARTS
    assert sum(guess.chance for guess in found) <= copying.FIRST
    assert {guess.source for guess in found} == {"copy"}


def test_an_empty_text_gives_nothing() -> None:
    assert copied("") == copied("", "Os") == []
    assert knows_nothing(CopiedValues("").guess(spot("Os"), "string"))


# Copying: untrusted text.


def spent(work: Iterable[object]) -> float:
    """Seconds of this process for all of ``work``."""
    began = time.process_time()
    for _ in work:
        pass
    return time.process_time() - began


LONG = 1 << 20
HOSTILE = [
    "a", "A", "_", "0", "a_", "a@", "A ", "A. ", "A-", "O'", '"', "'a ", '"a', "“", "1.", "1,", "-1",
    "a.b", "é", "\n", " ", "\\", "aB",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE, ids=ascii)
def test_no_text_makes_a_guess_slow(unit: str) -> None:
    values = CopiedValues(unit * (LONG // len(unit)))
    raws = ["", unit, unit * 50, f"{unit * 50}b", f"b{unit * 50}", f"{unit * 20}b{unit * 20} {unit * 20}"]

    asked = (values.guess(spot(raw.replace("\\", "\\\\").replace('"', '\\"')), "string") for raw in raws)

    assert spent(asked) < 0.3


def test_a_long_value_does_not_slow_guesses_down() -> None:
    values = CopiedValues("some words of a long conversation, and more of them " * (LONG // 50))
    body = "these are the words of an email that nobody has ever written before " * 100

    assert spent(values.guess(spot(body[:length]), "string") for length in range(0, len(body), 50)) < 1.5
    assert len(values._known) <= copying.MAX_KNOWN


def test_asking_again_costs_no_search() -> None:
    values = CopiedValues("some words " * (LONG // 11))

    assert values.guess(spot("so"), "string") is values.guess(spot("so"), "string")


def test_what_is_kept_of_a_long_text_is_its_end() -> None:
    values = CopiedValues("Oslo " + "x " * LONG + "Bergen")

    assert len(values._text) == copying.MAX_TEXT
    assert texts(values.guess(spot("Ber"), "string")) == ["gen"]
    assert texts(values.guess(spot("Osl"), "string")) == []


def test_of_an_endless_word_only_a_part_is_offered() -> None:
    assert len(copied("token: xyz" + "abcdefgh" * 1000, "xyz")[0]) <= 64


# Shapes.


@pytest.mark.parametrize(
    ("text", "shape"),
    [("2023-03-26", "0000-00-00"), ("19:30", "00:00"), ("2023-03-26T19:30:00Z", "0000-00-00T00:00:00Z"),
     ("$5", "$0"), ("Oslo", None), ("", None), ("26 March", None), ("1" * 41, None)],
)  # fmt: skip
def test_the_shape_of_a_value(text: str, shape: str | None) -> None:
    assert shape_of(text) == shape


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("The date. Format: %Y-%m-%d", "0000-00-00"),
        ("%Y-%m-%d %H:%M:%S", "0000-00-00 00:00:00"),
        ("%Y%m%d", "00000000"),
        ("as YYYY-MM-DD", "0000-00-00"),
        ("yyyy/mm/dd hh:mm", "0000/00/00 00:00"),
        ("YYYY-MM-DDTHH:mm:ss", "0000-00-00T00:00:00"),
        ("for example 12/31/2024.", "00/00/0000"),
        ("like 19:30", "00:00"),
        ("The name of a city", None),
        ("", None),
    ],
)
def test_the_shape_that_a_description_asks_for(text: str, shape: str | None) -> None:
    assert shape_in(text) == shape


def test_a_long_description_is_read_in_part() -> None:
    assert spent(shape_in("1-" * LONG) for _ in range(100)) < 0.5
    assert shape_in("x" * LONG + " YYYY-MM-DD") is None


def test_marks_and_the_rest_of_a_shape() -> None:
    assert marks_after("0000-00-00", "2023") == "-"
    assert marks_after("0000-00-00", "202") == ""
    assert marks_after("00:00Z", "19:30") == "Z"
    assert marks_after("0000-00-00", "20/") == ""
    assert rest_of("0000-00-00", "2023-0") == "0-00"
    assert rest_of("00:00", "19:30:00") is None
    assert [shape_of_format(name) for name in ("date", "time", "email")] == ["0000-00-00", "00:00:00", None]


# Remembering.


def memory(
    *values: str, key: str = "city", tool: str = "get_weather", kind: str = "string"
) -> RememberedValues:
    found = RememberedValues()
    for value in values:
        found.wrote(frame(key, tool), value, kind)
    return found


def test_a_parameter_may_have_the_same_value_again() -> None:
    (guess,) = memory("Oslo").guess(spot(), "string").guesses

    assert guess == Guess("Oslo", remembered.SAME_AGAIN, True, "value")


def test_a_value_that_is_begun_goes_on_as_before() -> None:
    values = memory("Oslo", "Bergen", "Oskarshamn")

    assert texts(values.guess(spot("Os"), "string")) == ["karshamn", "lo"]
    assert texts(values.guess(spot("Be"), "string")) == ["rgen"]
    assert knows_nothing(values.guess(spot("Par"), "string"))


def test_the_latest_of_equally_frequent_values_comes_first_and_frequent_ones_are_likelier() -> None:
    assert texts(memory("Oslo", "Bergen").guess(spot(), "string")) == ["Bergen", "Oslo"]
    assert texts(memory("Oslo", "Oslo", "Bergen").guess(spot(), "string")) == ["Oslo", "Bergen"]


def test_a_value_that_was_written_before_may_end_there() -> None:
    values = memory("New", "New York")

    assert values.guess(spot("New"), "string").ends_here == pytest.approx(remembered.GOES_ON / 2)
    assert values.guess(spot("New"), "string").guesses[0].text == " York"
    assert memory("New York").guess(spot("New"), "string").ends_here is None


def test_each_parameter_of_each_tool_has_its_own_values() -> None:
    values = memory("Oslo")

    assert knows_nothing(values.guess(spot(key="name"), "string"))
    assert knows_nothing(values.guess(spot(tool="get_time"), "string"))


def test_items_of_an_array_share_their_values() -> None:
    values = RememberedValues()
    items = opened(frame("cities"), (), array=True)
    values.wrote(items, "Oslo", "string")

    third = Spot(Place.IN_STRING, items._replace(at=2), (), "O")

    assert texts(values.guess(third, "string")) == ["slo"]


def test_a_value_is_written_as_json() -> None:
    values = memory('say "hi"\n')

    assert texts(values.guess(spot(), "string")) == ['say \\"hi\\"\\n']
    assert texts(values.guess(spot('say \\"'), "string")) == ['hi\\"\\n']


def test_numbers_do_not_end_with_a_quote() -> None:
    found = memory("12", key="days", kind="number").guess(spot("1", key="days"), "number").guesses

    assert {(guess.text, guess.ends) for guess in found} == {("2", False)}


@pytest.mark.parametrize(
    "schema",
    [{"format": "date"}, {"description": "YYYY-MM-DD"}, {"description": "Format: %Y-%m-%d"},
     {"description": "such as 2024-12-31"}],
    ids=str,
)  # fmt: skip
def test_the_marks_of_a_date_are_known_before_the_first_date(schema: dict[str, str]) -> None:
    values = RememberedValues()

    found = values.guess(spot("2023", **schema), "string")
    assert found == Guesses([Guess("-", remembered.MARK, False, "value")], remembered.INCOMPLETE)
    assert texts(values.guess(spot("2023-1", **schema), "string")) == []
    assert texts(values.guess(spot("2023-11", **schema), "string")) == ["-"]
    whole = values.guess(spot("2023-11-05", **schema), "string")
    assert whole == Guesses([], remembered.COMPLETE)


def test_the_shape_of_an_earlier_value_is_expected_again() -> None:
    values = memory("19:30")

    assert values.guess(spot("21"), "string") == Guesses(
        [Guess(":", remembered.MARK, False, "value")], remembered.INCOMPLETE
    )
    assert values.guess(spot("21:45"), "string").ends_here == remembered.COMPLETE
    assert knows_nothing(values.guess(spot("tonight"), "string"))


def test_a_value_of_the_same_shape_elsewhere_is_offered() -> None:
    """The same year and month come again, whatever the parameter is called."""
    values = memory("2023-03-26", key="start")

    assert texts(values.guess(spot(key="end", format="date"), "string")) == ["2023-03-26"]
    assert texts(values.guess(spot("2023-0", key="end", format="date"), "string")) == ["3-26"]


def test_long_values_and_long_ways_to_them_are_not_remembered() -> None:
    values = memory("x" * (remembered.MAX_LENGTH + 1))
    assert knows_nothing(values.guess(spot("x"), "string"))

    values.wrote(frame("k" * 1000), "Oslo", "string")

    assert not values._places


def test_what_is_remembered_is_bounded_and_the_latest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("MAX_PLACES", "MAX_VALUES", "MAX_SHAPES"):
        monkeypatch.setattr(remembered, bound, 5)
    values = RememberedValues()

    for i in range(50):
        for key in (f"key{i}", "city"):
            values.wrote(frame(key), f"{'1' * (i % 30)}-{i}", "string")

    assert len(values._places) == len(values._by_shape) == 5
    assert all(len(found) <= 5 for found in values._places.values())
    assert texts(values.guess(spot(), "string"))[0] == f"{'1' * 19}-49"
    assert knows_nothing(values.guess(spot(key="key3"), "string"))


# Together.


class Fixed:
    """Always guesses the same."""

    def __init__(self, *guesses: Guess, ends_here: float | None = None):
        self.found = Guesses(guesses, ends_here)
        self.heard: list[str] = []

    def guess(self, spot: Spot, kind: str) -> Guesses:
        return self.found

    def wrote(self, frame: Frame, text: str, kind: str) -> None:
        self.heard.append(text)


def combined(*guessers: Fixed) -> Guesses:
    return CombinedGuesser(guessers).guess(spot(), "string")


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

    CombinedGuesser(guessers).wrote(frame(), "Oslo", "string")

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
    both = CombinedGuesser([RememberedValues(), CopiedValues(text)])
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
