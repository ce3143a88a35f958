"""The reader against ``json`` and against a writer that knows where each character stands."""

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.json_reader import scalar, unquoted
from sglang_toolspec.grammars.json_spot import MAX_DEPTH, Place, path_of
from tests.jsontexts import CONTAINERS, SEEDS, STYLES, TEXTS, pieces, read
from tests.toolsets import chunks

quick = settings(max_examples=40, deadline=None)
ALMOST_JSON = st.text('{}[]",:\\ \n\tntu1e-.aé', max_size=80)


def keys_of(frame):
    """All that an open container knows, down to the root."""
    return () if frame is None else (frame.key, frame.at, frame.seen, *keys_of(frame.above))


def standing(reader):
    return reader.spot.place, reader.spot.path, reader.spot.raw, reader.spot.gap, keys_of(reader.frame)


# Where it stands.


@quick
@given(CONTAINERS, st.sampled_from(list(STYLES)), st.booleans())
def test_place_and_path_are_right_after_every_character(value, style, ensure_ascii):
    reader = read("")
    for text, place, path in pieces(value, style, ensure_ascii=ensure_ascii):
        for char in text:
            assert reader.feed(char) == ""
            assert (reader.place, reader.spot.path) == (place, path)


@quick
@given(CONTAINERS, st.sampled_from(list(STYLES)), SEEDS)
def test_chunks_change_nothing(value, style, seed):
    in_chunks, by_character = read(""), read("")
    for chunk in chunks(json.dumps(value, **STYLES[style]), Random(seed)):
        in_chunks.feed(chunk)
        for char in chunk:
            by_character.feed(char)
        assert standing(in_chunks) == standing(by_character)
        assert in_chunks.layout == by_character.layout


@quick
@given(
    CONTAINERS,
    st.sampled_from(list(STYLES)),
    st.sampled_from(["", "\n</tool_call>", "é", "{", " }", "```", '"']),
    st.booleans(),
)
def test_what_follows_the_value_is_given_back(value, style, after, ensure_ascii):
    text = json.dumps(value, ensure_ascii=ensure_ascii, **STYLES[style])
    reader = read("")
    assert reader.feed(text + after) == after
    assert (reader.place, reader.frame, reader.spot.path) == (Place.DONE, None, ())
    assert reader.feed(after) == after


@quick
@given(TEXTS, st.booleans())
def test_raw_is_the_string_so_far(text, ensure_ascii):
    inner = json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]
    assert read('{"k": "' + inner).spot.raw == inner


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ('{"ci', "ci"), ('{"city": ', ""), ('{"n": -1.5', "-1.5"), ('{"n": 1, ', ""), ('["a", ', ""),
        ('{"o": {', ""), ('"\\"', '\\"'), ('{"a": "x"', ""), ('["a\\n\\u00', "a\\n\\u00"), ("[tru", "tru"),
        ('[1.5', "1.5"), ('{"a": "x", "', ""), ('{"a": {"b": 1}', ""),
    ],
)  # fmt: skip
def test_raw_holds_nothing_of_what_came_before(text, raw):
    assert read(text).spot.raw == raw


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ('{"a": ', " "), ('{"a":', ""), ("{\n  ", "\n  "), ('{"a": 1,\n ', "\n "), ('{"a": "x"\n', "\n"),
        ("[ ", " "),
    ],
)  # fmt: skip
def test_the_gap_is_the_white_space_since_the_last_mark(text, gap):
    assert read(text).spot.gap == gap


@pytest.mark.parametrize("key", ['"quoted"', "back\\slash", "é", "日本", "😀", "tab\t", "", "{", ":"])
def test_an_escaped_key_reads_as_itself(key):
    assert read("{" + json.dumps(key) + ": ").spot.path == (key,)


@pytest.mark.parametrize("text", ['{"\\u12": ', '{"\\x": ', '{"a\nb": ', '{"\\": 1, ": '])
def test_a_key_that_is_not_json_still_names_a_place(text):
    reader = read(text)
    assert reader.place is Place.VALUE
    assert len(reader.spot.path) == 1


def test_the_keys_seen_are_those_of_the_innermost_object():
    assert read('{"a": 1, "b": {"c": 2, "d').frame.seen == ("c",)
    assert read('{"a": 1, "b": {"c": 2}, ').frame.seen == ("a", "b")
    assert read('{"a": 1, "a": ').frame.seen == ("a", "a")


def test_items_are_counted():
    assert read('{"a": [1, [2, 3], {"b": 4}, 5').spot.path == ("a", 3)
    assert read("[[[], [], [").spot.path == (0, 2, 0)


def test_the_outermost_container_is_kept_when_it_has_ended():
    assert read('{"a": {"b": 1}}').root.seen == ("a",)
    assert read('{"a": {"b": 1}').root is None


# With a schema.

RAW = {
    "type": "object",
    "properties": {
        "tags": {"type": "array", "prefixItems": [{"const": "x"}], "items": {"enum": [1, 2]}},
        "shape": {"oneOf": [
            {"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "integer"}}},
            {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}}},
        ]},
    },
    "additionalProperties": {"type": "boolean"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ('{"tags": ', {"array"}), ('{"tags": ["x"', set()), ('{"tags": [', {"string"}),
        ('{"tags": ["x", ', {"integer"}), ('{"tags": ["x", 1, ', {"integer"}), ('{"other": ', {"boolean"}),
        ('{"shape": {"kind": "circle", "radius": ', {"integer"}),
        ('{"shape": {"kind": "square", "side": ', {"number"}),
    ],
)  # fmt: skip
def test_the_alternatives_are_those_of_the_value_that_is_written(text, kinds):
    assert {kind for arm in read(text, RAW).arms for kind in arm.kinds} == kinds


def test_a_discriminator_rules_out_the_other_branches():
    frame = read('{"shape": {"kind": "square"', RAW).frame
    assert [set(arm.properties) for arm in frame.arms] == [{"kind", "side"}]


def test_a_discriminator_that_fits_no_branch_rules_out_none():
    assert len(read('{"shape": {"kind": "heart", ', RAW).frame.arms) == 2


def test_a_value_of_another_kind_than_declared_is_followed():
    assert read('{"tags": {"a": [1, {"b": "', RAW).spot.path == ("tags", "a", 1, "b")


# What is not JSON.


@quick
@given(st.text(max_size=80), ALMOST_JSON, SEEDS)
def test_garbage_never_raises_and_is_accounted_for(noise, almost_json, seed):
    random = Random(seed)
    for text in (noise, almost_json, '{"a": ' + noise, noise + almost_json, '{"a": [' + almost_json):
        reader = read("")
        done = ""
        rest = text
        while rest and reader.place not in (Place.DONE, Place.BROKEN):
            size = random.randint(1, len(rest))
            left = reader.feed(rest[:size])
            assert rest[:size].endswith(left)
            done += rest[: size - len(left)]
            rest = left + rest[size:]
        assert done + rest == text
        assert isinstance(reader.spot.path, tuple)
        by_character = read("")
        for char in done:
            by_character.feed(char)
        if reader.place not in (Place.DONE, Place.BROKEN):
            assert standing(by_character) == standing(reader)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("{'a': 1}", "'a': 1}"), ('{"a" 1}', "1}"), ('{"a": 1 "b": 2}', '"b": 2}'), ('{"a": }', "}"),
        ('{"a": 1]', "]"), ('["a"}', "}"), ("{1: 2}", "1: 2}"), ("[,]", ",]"), ('{"a": 1,, "b"}', ', "b"}'),
        ("}", "}"), ('{"a": 1}', None), ('{"a": "x" y}', "y}"), ("{,}", ",}"), ('{"a"::1}', ":1}"),
    ],
)  # fmt: skip
def test_what_is_no_json_is_given_back_from_where_it_breaks(text, rest):
    reader = read("")
    left = reader.feed(text)
    assert left == (rest or "")
    assert (reader.place is Place.BROKEN) == (rest is not None)


@pytest.mark.parametrize("text", ['{"a": 1,}', "[1, 2,]", '{"a": [1,],}'])
def test_a_trailing_comma_is_forgiven(text):
    assert read(text).place is Place.DONE


@pytest.mark.parametrize("scalar", ["nul", "True", "None", "1.2.3", "--1", "NaN", "0x1F", "1_000", "a b"])
def test_an_odd_scalar_is_followed(scalar):
    reader = read('{"a": ' + scalar.split()[0] + ', "b": ')
    assert (reader.place, reader.spot.path) == (Place.VALUE, ("b",))


def test_nesting_has_a_limit():
    assert read("[" * MAX_DEPTH).place is Place.VALUE
    assert read("[" * (MAX_DEPTH + 1)).place is Place.BROKEN
    assert read('{"a": ' * 5000).place is Place.BROKEN


def test_endless_white_space_costs_nothing():
    reader = read('{"a":' + "\n" * 100_000)
    assert len(reader.spot.gap) <= 64
    reader.feed("1}")
    assert reader.place is Place.DONE


def test_a_long_string_is_followed_piece_by_piece():
    reader = read('{"a": "')
    for _ in range(2000):
        reader.feed("word \\n")
    assert len(reader.spot.raw) == 7 * 2000
    assert reader.feed('"}rest') == "rest"


@pytest.mark.parametrize(
    ("raw", "text"),
    [("a", "a"), ("\\n", "\n"), ("\\u00e9", "é"), ("\\u12", "\\u12"), ("\\", "\\"), ("a\tb", "a\tb")],
)
def test_a_string_stands_for_its_text(raw, text):
    assert unquoted(raw) == text


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("1", 1), ("-7", -7), ("1.5", 1.5), ("1e3", 1000.0), ("true", True), ("null", None), ("x", "x"),
        ("--1", "--1"),
    ],
)  # fmt: skip
def test_a_scalar_stands_for_its_value(raw, value):
    assert scalar(raw) == value
    assert type(scalar(raw)) is type(value)


@pytest.mark.parametrize("raw", ["9" * 100, "9" * 5000, "1e999", "-", "1" + "0" * 63])
def test_an_endless_number_is_read_as_something(raw):
    assert scalar(raw) is not None


# What it tells others.


def test_choices_and_keys_become_habits():
    habits = Habits()
    raw = {"type": "object", "properties": {"a": {}, "b": {}, "u": {"enum": ["x", "y"]}}}
    read('{"b": 1, "u": "y", "secret": 2}', raw, habits=habits)
    frame = read("{", raw).frame
    assert next(iter(dict(habits.next_keys(frame)))) == "b"
    weights = habits.weights(frame.with_key("u"), ["x", "y"])
    assert weights[1] > weights[0]


class Listener:
    def __init__(self):
        self.heard = []

    def wrote(self, frame, text, kind):
        self.heard.append((path_of(frame), text, kind))


def test_open_values_are_told_to_the_guesser_unquoted():
    listener = Listener()
    raw = {"properties": {"u": {"enum": ["x"]}}}
    read('{"a": "b\\nc", "u": "x", "n": [1.50, true], "o": {}}', raw, guesser=listener)
    assert listener.heard == [
        (("a",), "b\nc", "string"),
        (("n", 0), "1.50", "number"),
        (("n", 1), "true", "number"),
    ]
