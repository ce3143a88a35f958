"""Values copied from the conversation: how they go on, how they start, and hostile text."""

from __future__ import annotations

import json

import pytest

from sglang_toolspec.runtime.guessing import copying
from sglang_toolspec.runtime.guessing.copying import CopiedValues
from tests.guessing import LONG, frame, knows_nothing, spent, spot, texts


def copied(text: str, raw: str = "", key: str = "city", kind: str = "string") -> list[str]:
    return texts(CopiedValues(text).guess(spot(raw, key), kind))


def ends(text: str, raw: str, kind: str = "string") -> float | None:
    """The chance that a value copied from ``text`` ends after ``raw``."""
    return CopiedValues(text).guess(spot(raw), kind).ends_here


# How a value goes on.


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


# How a value starts.


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


# Untrusted text.

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
