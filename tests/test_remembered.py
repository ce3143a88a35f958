"""Values that a parameter had before, and what their shapes say of the next one."""

from __future__ import annotations

import pytest

from sglang_toolspec.grammars.guesses import Guess, Guesses
from sglang_toolspec.grammars.json_spot import Place, Spot, opened
from sglang_toolspec.runtime.guessing import remembered
from sglang_toolspec.runtime.guessing.remembered import RememberedValues
from tests.guessing import frame, knows_nothing, spot, texts


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
