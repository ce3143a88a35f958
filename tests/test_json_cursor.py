"""The cursor against ``json`` and against a writer that knows where each byte stands."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.json_cursor import JsonCursor, Place
from tests.toolsets import chunks

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
CONTAINERS = VALUES.filter(lambda value: isinstance(value, dict | list))
STYLES = [
    {},
    {"separators": (",", ":")},
    {"indent": 2},
    {"indent": "\t", "ensure_ascii": False},
    {"ensure_ascii": False},
]
quick = settings(max_examples=40, deadline=None)


def fed(text: str | bytes) -> JsonCursor:
    cursor = JsonCursor()
    cursor.feed(text.encode() if isinstance(text, str) else text)
    return cursor


def spans(value, space, ascii_only, path=()):
    """``(text, place, path)``: where a reader stands after each byte of ``text``."""
    end = Place.AFTER_VALUE if path else Place.DONE
    text = json.dumps(value, ensure_ascii=ascii_only)
    if isinstance(value, dict) and value:
        yield "{", Place.KEY_START, (*path, "")
        yield from members(value, space, ascii_only, path)
        yield "}", end, path
    elif isinstance(value, list) and value:
        yield "[", Place.VALUE_START, (*path, 0)
        for i, item in enumerate(value):
            yield "," * bool(i) + space, Place.VALUE_START, (*path, i)
            yield from spans(item, space, ascii_only, (*path, i))
            yield space, Place.AFTER_VALUE, (*path, i)
        yield "]", end, path
    elif isinstance(value, dict | list):
        yield text[0], *((Place.KEY_START, (*path, "")) if value == {} else (Place.VALUE_START, (*path, 0)))
        yield text[1], end, path
    elif isinstance(value, str):
        yield text[:-1], Place.IN_STRING, path
        yield '"', end, path
    else:
        yield text, Place.IN_SCALAR, path


def members(value, space, ascii_only, path):
    before = ""
    for i, (key, item) in enumerate(value.items()):
        yield "," * bool(i) + space, Place.KEY_START, (*path, before)
        yield json.dumps(key, ensure_ascii=ascii_only)[:-1], Place.IN_KEY, (*path, before)
        yield '"' + space, Place.AFTER_KEY, (*path, key)
        yield ":" + space, Place.VALUE_START, (*path, key)
        yield from spans(item, space, ascii_only, (*path, key))
        yield space, Place.AFTER_VALUE, (*path, key)
        before = key


@quick
@given(CONTAINERS, st.sampled_from(["", " ", "\n  ", "\r\n\t"]), st.booleans())
def test_place_and_path_are_right_after_every_byte(value, space, ascii_only):
    written = list(spans(value, space, ascii_only))
    assert json.loads("".join(text for text, _, _ in written)) == value
    cursor = JsonCursor()
    for text, place, path in written:
        for byte in text.encode():
            cursor.feed(bytes([byte]))
            assert (cursor.place, cursor.path) == (place, path)


@quick
@given(
    CONTAINERS | st.text(),
    st.sampled_from(STYLES),
    st.randoms(use_true_random=False),
    st.sampled_from(["", "\n</tool_call>", "é", "{"]),
)
def test_any_chunking_ends_at_the_end_of_the_value(value, style, random, after):
    data = json.dumps(value, **style).encode()
    cursor = JsonCursor()
    assert [cursor.feed(chunk) for chunk in chunks(data, random, longest=5)].count(b"") >= 1
    assert cursor.place is Place.DONE
    assert cursor.path == ()
    assert cursor.feed(after.encode()) == after.encode()
    assert JsonCursor().feed(data + after.encode()) == after.encode()


@quick
@given(st.binary(max_size=80), st.text('{}[]",:\\ ntu1', max_size=80))
def test_garbage_never_raises(noise, almost_json):
    for data in (noise, almost_json.encode(), b'{"a": ' + noise, noise + almost_json.encode()):
        cursor = JsonCursor()
        cursor.feed(data)
        assert isinstance(cursor.path, tuple)
        assert isinstance(cursor.seen_keys, list)


@quick
@given(st.text(), st.booleans())
def test_raw_is_the_string_so_far(text, ascii_only):
    inner = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    cursor = fed('{"k": "' + inner)
    assert cursor.raw.decode() == inner


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ('{"ci', b"ci"),
        ('{"city": ', b""),
        ('{"n": -1.5', b"-1.5"),
        ('{"n": 1, ', b""),
        ('["a", ', b""),
        ('{"o": {', b""),
        ('"\\"', b'\\"'),
    ],
)
def test_raw_holds_nothing_of_what_came_before(text, raw):
    assert fed(text).raw == raw


def test_a_string_may_be_cut_inside_a_character():
    data = '{"k": "é"}'.encode()
    at = data.index("é".encode()) + 1
    cursor = fed(data[:at])
    assert (cursor.place, cursor.path) == (Place.IN_STRING, ("k",))
    cursor.feed(data[at:])
    assert cursor.place is Place.DONE


@pytest.mark.parametrize("key", ['"quoted"', "back\\slash", "é", "😀", "tab\t", "", "{", ":"])
def test_an_escaped_key_reads_as_itself(key):
    assert fed("{" + json.dumps(key) + ": ").path == (key,)


@pytest.mark.parametrize("raw", [b'{"\\u12": ', b'{"\\x": ', b'{"\xff": ', b'{"a\nb": '])
def test_a_key_that_is_not_json_still_names_a_place(raw):
    cursor = fed(raw)
    assert cursor.place is Place.VALUE_START
    assert len(cursor.path) == 1


def test_seen_keys_are_those_of_the_innermost_object():
    assert fed('{"a": 1, "b": {"c": 2, "d').seen_keys == ["c"]
    assert fed('{"a": 1, "b": {"c": 2}, ').seen_keys == ["a", "b"]
    assert fed("").seen_keys == []


def test_members_are_the_complete_strings_of_the_root():
    cursor = fed('{"name": "a\\"b", "n": 1, "arguments": {"name": "inner"}, "l": ["x"], "open": "ye')
    assert cursor.members == {"name": 'a"b'}


@quick
@given(CONTAINERS, st.data())
def test_a_fork_goes_its_own_way(value, data):
    text = json.dumps(value).encode()
    cut = data.draw(st.integers(0, len(text) - 1))
    cursor = fed(text[:cut])
    before = (cursor.place, cursor.path, bytes(cursor.raw), list(cursor.seen_keys), dict(cursor.members))
    fork = cursor.fork()
    fork.feed(text[cut:])
    assert (cursor.place, cursor.path, bytes(cursor.raw), cursor.seen_keys, cursor.members) == before
    assert fork.place is Place.DONE
    cursor.feed(text[cut:])
    assert (cursor.place, cursor.members) == (fork.place, fork.members)
