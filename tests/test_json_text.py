"""JSON rewritten while it arrives is what ``json.dumps`` writes, however it is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.grammars.json_text import JsonText
from tests.jsontexts import STYLES, VALUES

ESCAPED = st.text(st.sampled_from('a"\\/\n\t\x00é😀'))


def cut(text, sizes):
    """``text`` in pieces of ``sizes``, the last to its end."""
    at = 0
    for size in sizes:
        yield text[at : at + size]
        at += size
    yield text[at:]


def fed(*pieces):
    value = JsonText()
    rest = [value.feed(piece) for piece in pieces]
    return value, "".join(rest)


@given(
    VALUES | ESCAPED,
    st.sampled_from(sorted(STYLES)),
    st.booleans(),
    st.lists(st.integers(0, 5), max_size=60),
)
def test_any_value_in_any_pieces_is_rewritten_as_json_dumps_has_it(value, style, ascii_only, sizes):
    written = json.dumps(value, ensure_ascii=ascii_only, **STYLES[style])

    text, rest = fed(*cut(written + " behind", sizes))

    assert text.done
    assert text.text == json.dumps(value, ensure_ascii=False)
    assert rest == " behind"


@given(VALUES, st.data())
def test_what_is_rewritten_so_far_is_a_beginning_of_all(value, data):
    written = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    end = data.draw(st.integers(0, len(written)))

    text, _ = fed(written[:end])

    assert not text.broken
    assert json.dumps(value, ensure_ascii=False).startswith(text.text)


@pytest.mark.parametrize("number", ["10e-5", "0.99999999999999999", "1.100", "-0", "1E400", "5.678901234567"])
def test_a_number_that_goes_on_is_not_written_too_early(number):
    text, _ = fed('{"a": ', *number, "}")

    assert text.text == json.dumps(json.loads(f'{{"a": {number}}}'))


@pytest.mark.parametrize(
    "broken",
    [
        '{"a" 1}', "{1: 2}", '{"a": 1,}', "[1,]", "[1}", "{]", ",", ":", "nul ", '"a\nb"', '"\\x41" ',
        '"\\u12g4"', "{'a': 1}", '{"a": 01}', "[1 2]", '{"a": "b" "c"}', "\xa0 ",
    ],
)  # fmt: skip
def test_what_json_loads_refuses_breaks(broken):
    with pytest.raises(ValueError, match=r"."):
        json.loads(broken)

    for pieces in ((broken,), broken):
        value = JsonText()
        for piece in pieces:
            if not value.broken:
                value.feed(piece)
        assert value.broken


def test_members_of_the_outermost_object_are_known_as_they_come():
    value = JsonText()
    value.feed('{"name":"a","arguments":{"name": "inner", "x": [1')

    assert value.member("name") == ('"a"', True)
    assert value.member("arguments") == ('{"name": "inner", "x": [', False)
    assert value.member("x") is None


def test_a_lone_surrogate_stays_escaped_so_that_it_can_be_sent():
    value, _ = fed('"\\ud83d \\ude00', "\\ud83d", '\\ude00"')

    assert value.text == '"\\ud83d \\ude00😀"'
    assert json.loads(value.text) == json.loads('"\\ud83d \\ude00\\ud83d\\ude00"')


def test_nesting_that_would_exhaust_recursion_is_no_json():
    deep = "[" * 500 + "]" * 500

    assert fed(deep)[0].done
    assert fed("[" + deep + "]")[0].broken


@pytest.mark.parametrize(
    "text", ['"' + "\\n" * 50_000 + '"', "[" + "1," * 50_000 + "1]", "{" * 50_000, "1" * 50_000]
)
def test_long_text_costs_time_in_proportion(text):
    value = JsonText()
    for at in range(0, len(text), 7):
        if value.broken or value.done:
            break
        value.feed(text[at : at + 7])

    assert value.broken or value.done
