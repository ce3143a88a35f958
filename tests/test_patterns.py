"""Patterns in the form that xgrammar enforces: it matches the strings in which they are found."""

import json
import re

import pytest
import xgrammar
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.compile import compiled, matcher
from sglang_toolspec.grammars.patterns import read

_ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "é",
        "[ab]",
        "[^a]",
        ".",
        r"\d",
        r"\w",
        r"\S",
        r"\.",
        "-",
        "(a|b)",
        "(?:ab)",
        "[a-c1]",
        "[à-ü]",
    ]
)
_PIECES = st.tuples(_ATOMS, st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"]))
PATTERNS = st.builds(
    lambda start, pieces, other, end: start + "".join(map("".join, pieces)) + other + end,
    st.sampled_from(["", "^"]),
    st.lists(_PIECES, max_size=4),
    st.sampled_from(["", "", "|b", "|^a$"]),
    st.sampled_from(["", "$"]),
)


def grammar(pattern):
    schema = {"type": "string", "pattern": read(pattern).whole}
    return compiled(xgrammar.Grammar.from_json_schema(json.dumps(schema)))


def accepts(grammar, written):
    walk = matcher(grammar)
    return walk.accept_string(written) and walk.is_completed()


@settings(max_examples=60)
@given(PATTERNS, st.lists(st.text("aab1é- .xü/", max_size=5), min_size=5, max_size=20))
def test_what_is_found_is_matched(pattern, texts):
    assume(not read(pattern).fault)
    made = grammar(pattern)
    for text in texts:
        found = re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None
        assert accepts(made, json.dumps(text, ensure_ascii=False)) == found, text


@pytest.mark.parametrize("pattern", ["^a*a{2}", "^a*(?:ab){1,3}", "^b*ba", "^[a]*a+"])
def test_a_repeated_character_before_the_same_one_counts(pattern):
    made = grammar(pattern)
    for text in ("", "a", "b", "aa", "ab", "ba", "aab"):
        assert accepts(made, json.dumps(text)) == (re.search(pattern, text) is not None), text


@settings(max_examples=60)
@given(PATTERNS, st.text('"\\\n\taé', max_size=4))
def test_nothing_but_json_is_matched(pattern, raw):
    assume(not read(pattern).fault)
    written = f'"{raw}"'
    if accepts(grammar(pattern), written):
        assert isinstance(json.loads(written), str)


@pytest.mark.parametrize(
    ("pattern", "whole"),
    [
        ("^a$", "^a$"),
        ("^a", r"^a[\s\S]*$"),
        ("a", r"^[\s\S]*a[\s\S]*$"),
        ("^a|b$", r"^(?:a[\s\S]*|[\s\S]*b)$"),
        ("^(a|b)$", "^(a|b)$"),
        ("^é$", r"^\u00e9$"),
        ("^a*?$", "^a{0,}$"),
        ("", r"^[\s\S]*$"),
    ],
)
def test_the_whole_of_a_pattern(pattern, whole):
    assert read(pattern).whole == whole


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        (r"^(?=.*\d).{8}$", "look-around"),
        (r"\bword\b", "word boundaries"),
        (r"^(a)\1$", "back references"),
        (r"^\p{L}+$", "Unicode classes"),
        ("(?i)a", "flags"),
        ('^"', "backslash"),
        (r"^C:\\", "backslash"),
        (r"^\n$", "backslash"),
        ('^["]$', "backslash"),
        ("^(^a)$", "'^' inside"),
        ("^é+$", "beyond ASCII"),
        ("😀", "U+FFFF"),
        ("^.{1,100}$", "repetitions"),
        ("((a{1,100}){1,100}){1,100}", "repetitions"),
        ("[a", "without an end"),
        ("a)", "parenthesis"),
        ("*a", "repetition"),
        ("a{3,1}", "repetition"),
        ("a{,2}", "bare"),
        (r"\A", "escape"),
        ("a" * 300, "256 characters"),
    ],
)
def test_what_cannot_be_enforced_is_told(pattern, fault):
    assert fault in read(pattern).fault
    assert not read(pattern).whole


@pytest.mark.parametrize(
    ("pattern", "broad"), [("^[a-z]+$", False), ("^.*$", True), (r"^\s$", True), ("a", True)]
)
def test_patterns_that_reach_characters_json_escapes_are_told(pattern, broad):
    assert read(pattern).broad is broad


@given(st.text(max_size=20))
def test_reading_never_raises(pattern):
    assert bool(read(pattern).whole) != bool(read(pattern).fault)
