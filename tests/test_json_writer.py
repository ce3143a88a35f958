"""The writer's ways on: right for values that fit the schema, and the same as the reader's spots."""

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.guesses import Guess, Guesses
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.json_spot import Place
from sglang_toolspec.grammars.json_writer import JsonWriter, shared_start
from sglang_toolspec.grammars.layout import COMPACT, PRETTY, SPACED, TIGHT_COLON, Layout
from sglang_toolspec.grammars.schema import Schema
from tests.jsontexts import CONTAINERS, OBJECT_SCHEMAS, SEEDS, STYLES, instance, read

PRESETS = {"spaced": SPACED, "pretty": PRETTY, "compact": COMPACT, "tight_colon": TIGHT_COLON}
STRUCTURAL = (Place.VALUE, Place.KEY, Place.AFTER, Place.COLON)
quick = settings(max_examples=40, deadline=None)


class Silent:
    def guess(self, spot, kind):
        return Guesses()

    def wrote(self, frame, text, kind):
        pass


class Knowing(Silent):
    """Guesses the same of every value."""

    def guess(self, spot, kind):
        text = "7" if kind == "number" else 'x\\"y'
        return Guesses([Guess(text, 0.5, True, "prompt"), Guess(text + "1", 0.3, False, "memory")], 0.2)


def ways_at(reader, habits=None, guesser=None, least=0.0):
    writer = JsonWriter(reader.layout, habits or Habits(), guesser or Silent())
    return writer.ways(reader.spot, least)


def offers(text, raw=None, style="spaced", **more):
    return [way.text for way in ways_at(read(text, raw, Layout(PRESETS[style])), **more)]


# Properties.


@quick
@given(OBJECT_SCHEMAS, SEEDS, st.sampled_from(list(PRESETS)))
def test_what_a_fitting_value_has_next_is_among_the_ways(raw, seed, style):
    text = json.dumps(instance(raw, Random(seed)), ensure_ascii=False, **STYLES[style])
    reader = read("", raw, Layout(PRESETS[style]))
    for i, char in enumerate(text):
        spot = reader.spot
        if spot.place in STRUCTURAL and not spot.gap:
            ways = ways_at(reader)
            assert any(text.startswith(way.text, i) for way in ways), (text[:i], text[i:], ways)
            assert all(way.text or way.spot is None for way in ways)
        reader.feed(char)
    assert reader.place is Place.DONE


def keys_of(frame):
    return () if frame is None else (frame.key, frame.at, frame.seen, frame.array, *keys_of(frame.above))


def standing(spot):
    in_value = spot.place in (Place.VALUE, Place.IN_STRING, Place.IN_SCALAR)
    arms = [(arm.kinds, arm.values, list(arm.properties)) for arm in spot.arms] if in_value else []
    return spot.place, spot.path, keys_of(spot.frame), spot.raw, spot.gap, arms


@quick
@given(OBJECT_SCHEMAS, SEEDS, st.sampled_from(list(PRESETS)), st.booleans(), st.booleans())
def test_each_way_leads_where_the_reader_gets(raw, seed, style, guesses, ensure_ascii):
    random, schema, habits = Random(seed), Schema.root(raw), Habits()
    text = json.dumps(instance(raw, random), ensure_ascii=ensure_ascii, **STYLES[style])
    read(text, schema, habits=habits)
    start = random.randrange(len(text))
    reader = read(text[:start], schema, Layout(PRESETS[style]))
    for char in text[start : start + 8]:
        for way in ways_at(reader, habits, Knowing() if guesses else Silent(), random.choice([0, 0.1, 0.6])):
            if way.spot is not None:
                there = read(text[:start] + way.text, schema, Layout(PRESETS[style])).spot
                if there.place is Place.IN_SCALAR and way.spot.place is Place.AFTER:
                    # Only a mark shows the reader that a number or literal has ended.
                    there = read(text[:start] + way.text + " ", schema).spot._replace(gap="")
                assert standing(there) == standing(way.spot), (text[:start], way)
        reader.feed(char)
        start += 1


@quick
@given(OBJECT_SCHEMAS, CONTAINERS, SEEDS, st.sampled_from(list(STYLES)))
def test_a_value_that_fits_no_schema_does_no_harm(raw, value, seed, style):
    text = json.dumps(value, **STYLES[style])
    reader = read(text[: seed % len(text)], raw)
    for way in ways_at(reader):
        assert 0 <= way.chance <= 1


@quick
@given(OBJECT_SCHEMAS, SEEDS)
def test_only_unlikely_ways_are_left_out(raw, seed):
    random = Random(seed)
    text = json.dumps(instance(raw, random))
    reader = read(text[: random.randrange(len(text))], raw)
    for least in (0.02, 0.3, 0.9):
        found = ways_at(reader, least=least)
        for way in ways_at(reader):
            likely = [other.chance for other in found if other.text == way.text]
            assert way.chance < least or max(likely) >= way.chance


# Single places.

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"enum": ["celsius", "fahrenheit", "kelvin"]},
        "hourly": {"type": "boolean"},
        "days": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "at": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}]},
    },
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("text", "style", "expected"),
    [
        ("", "spaced", ["{"]),
        ('{"city"', "spaced", [": "]),
        ('{"city"', "compact", [":"]),
        ('{"city":', "spaced", [' "']),
        ('{"city": ', "spaced", ['"']),
        ('{"city": "', "spaced", ['"']),
        ('{"unit": ', "spaced", ['"celsius"', '"fahrenheit"', '"kelvin"']),
        ('{"unit": "', "spaced", ['celsius"', 'fahrenheit"', 'kelvin"']),
        ('{"unit": "ke', "spaced", ['lvin"']),
        ('{"unit": "kelvin', "spaced", ['"']),
        ('{"unit": "x', "spaced", ['"']),
        ('{"hourly": ', "spaced", ["true", "false"]),
        ('{"hourly": t', "spaced", ["rue"]),
        ('{"days": ', "spaced", [""]),
        ('{"tags": ', "spaced", ["["]),
        ('{"tags": [', "spaced", ['"a"', '"b"', "]"]),
        ('{\n  "tags": [\n', "pretty", ['    "a"', '    "b"']),
        ('{"tags": ["a"', "spaced", ["]", ", "]),
        ('{\n  "tags": [\n    "a"', "pretty", ["\n  ]", ",\n    "]),
        ('{"tags":["a",', "compact", ['"a"', '"b"']),
        ('{"at": [1', "spaced", ["]", ", "]),
        ('{"city', "spaced", ['": ']),
        ('{"un', "spaced", ['it": ']),
    ],
)  # fmt: skip
def test_ways_at(text, style, expected):
    assert offers(text, WEATHER, style) == expected


def test_an_object_begins_with_a_key_or_ends():
    found = offers("{", WEATHER)
    assert found[0] == '"city": '
    assert set(found) == {'"city": ', '"unit": ', '"hourly": ', '"days": ', '"tags": ', '"at": ', "}", '"'}


def test_after_a_member_comes_another_key_or_the_end():
    found = offers('{"city": "x", "unit": "kelvin"', WEATHER)
    assert "}" in found
    assert ', "hourly": ' in found
    assert not any('"city"' in text or '"unit"' in text for text in found)


def test_white_space_after_a_member_of_a_pretty_object_leads_to_its_end():
    assert offers('{"city": "x"\n', WEATHER, "pretty") == ["}"]


def test_a_required_key_is_likelier_than_an_optional_one():
    ways = {way.text: way.chance for way in ways_at(read("{", WEATHER))}
    assert ways['"city": '] > 0.9 > ways['"unit": ']


def test_an_object_with_required_keys_left_hardly_ends():
    ways = {way.text: way.chance for way in ways_at(read('{"unit": "kelvin"', WEATHER))}
    assert ways["}"] < ways[', "city": '] < ways[', "hourly": ']


def test_a_closed_object_offers_no_undeclared_key():
    assert '"' not in offers("{", {**WEATHER, "additionalProperties": False})


def test_an_object_that_declares_nothing_is_likely_empty():
    ways = ways_at(read("{", {"type": "object"}))
    assert max(ways, key=lambda way: way.chance).text == "}"


def test_a_map_goes_on_with_any_key():
    found = offers('{"a": 1', {"type": "object", "additionalProperties": {"type": "integer"}})
    assert set(found) >= {', "', "}"}


def test_a_finite_container_is_written_in_the_layout():
    raw = {"properties": {"at": {"const": {"x": [1, 2]}}}}
    assert offers('{\n  "at": ', raw, "pretty") == ['{\n    "x": [\n      1,\n      2\n    ]\n  }']


def test_null_and_boolean_are_offered_beside_others():
    found = offers('{"a": ', {"properties": {"a": {"type": ["string", "null", "boolean"]}}})
    assert set(found) == {'"', "true", "false", "null"}


def test_a_number_may_end_where_it_stands():
    found = offers('{"days": 3', WEATHER)
    assert {"}", ', "city": '} <= set(found)


def test_a_finite_number_that_begins_another_may_go_on():
    raw = {"properties": {"n": {"enum": [1, 12]}}, "additionalProperties": False}
    assert set(offers('{"n": 1', raw)) == {"2", "}"}
    assert set(offers('{"n": 12', raw)) == {"}"}


@pytest.mark.parametrize("text", ['{"a\\', '{"a": "b\\', '{"city": "\\\\\\'])
def test_a_quote_does_not_end_an_escape(text):
    assert offers(text, WEATHER) == []


@pytest.mark.parametrize("text", ['{"city": "b\\\\', '{"city": "b\\"', '{"city": "\\n'])
def test_a_quote_ends_a_string_with_whole_escapes(text):
    assert offers(text, WEATHER) == ['"']


def test_a_value_of_another_kind_is_still_closed():
    assert offers('{"city": [1', WEATHER) == ["]", ", "]


def test_a_broken_or_finished_text_has_no_ways():
    assert offers("{'", WEATHER) == []
    assert offers("{}", WEATHER) == []


MANY = {
    "type": "object",
    "properties": {f"key_{i}": {"enum": [f"value_{j}" for j in range(50)]} for i in range(50)},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "text_of_all"),
    [
        ('{"key_1": ', '"value_'),
        ('{"key_1": "', "value_"),
        ('{"key_1": "val', "ue_"),
        ('{"', "key_"),
        ('{"k', "ey_"),
    ],
)
def test_what_many_unlikely_choices_share_is_likely(text, text_of_all):
    (way,) = ways_at(read(text, MANY), least=0.5)
    assert way.text == text_of_all
    assert standing(read(text + way.text, MANY).spot) == standing(way.spot)


def test_a_key_may_come_where_none_is_likely():
    (way,) = ways_at(read("{", MANY), least=0.5)
    assert (way.text, way.spot.place) == ('"', Place.IN_KEY)


@pytest.mark.parametrize("text", ['{"key_1": "value_', '{"key_', '{"key_1": "value_1'])
def test_nothing_is_left_of_unlikely_choices_that_part_here(text):
    assert ways_at(read(text, MANY), least=0.9) == []


def test_guesses_come_with_their_source():
    ways = ways_at(read('{"city": "', WEATHER), guesser=Knowing())
    assert [(way.text, way.source) for way in ways] == [
        ('"', ""), ('x\\"y"', "prompt"), ('x\\"y1', "memory"),
    ]  # fmt: skip
    numbers = ways_at(read('{"days": ', WEATHER), guesser=Knowing())
    assert [(way.text, way.source) for way in numbers] == [("", ""), ("7", "prompt"), ("71", "memory")]


def test_choices_are_not_guessed():
    assert offers('{"unit": "', WEATHER, guesser=Knowing()) == ['celsius"', 'fahrenheit"', 'kelvin"']


@pytest.mark.parametrize(
    ("texts", "shared"),
    [([], ""), (["abc"], "abc"), (["abc", "abd", "ab"], "ab"), (["x", "y"], ""), (["", "a"], "")],
)
def test_the_shared_start_of_texts(texts, shared):
    assert shared_start(texts) == shared
