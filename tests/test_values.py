"""What patterns and formats force inside a value."""

import time

import pytest

from sglang_toolspec.grammars.cache import GrammarCache, Limits
from sglang_toolspec.grammars.values import MAX_RAW, ValueGrammars, _recipe


@pytest.fixture(scope="module")
def values():
    return ValueGrammars(GrammarCache())


def forced(values, schema, raw):
    """As ``values.forced`` says once the grammar is there."""
    values.forced(schema, raw)
    recipe = _recipe(schema.get("format"), schema.get("pattern"))
    if recipe is not None:
        values._cache.compile_now([recipe])
    return values.forced(schema, raw)


@pytest.mark.parametrize(
    ("schema", "raw", "text"),
    [
        ({"format": "date"}, "2024", "-"),
        ({"format": "date"}, "2024-01-0", ""),
        ({"format": "date"}, "2024-01-01", '"'),
        ({"format": "date-time"}, "2024-01-01", "T"),
        ({"format": "uuid"}, "123e4567", "-"),
        ({"format": "time"}, "10", ":"),
        ({"format": "ipv4"}, "192.168", "."),
        ({"pattern": "^INV-[0-9]{4}$"}, "", "INV-"),
        ({"pattern": "^INV-[0-9]{4}$"}, "INV-2024", '"'),
        ({"pattern": "^https://"}, "", "https://"),
        ({"pattern": "^https://"}, "https://", ""),
        ({"pattern": "ab$"}, "", ""),
        ({"format": "date", "pattern": "^2024"}, "2023", "-"),
        ({"format": "unheard of", "pattern": "^ab$"}, "a", 'b"'),
    ],
)
def test_forced_text(values, schema, raw, text):
    assert forced(values, schema, raw) == text


@pytest.mark.parametrize(
    ("schema", "raw"),
    [
        ({}, "a"),
        ({"format": "unheard of"}, "a"),
        ({"format": "date"}, "tomorrow"),
        ({"format": "date"}, '2024-01-01"'),
        ({"pattern": r"^(?=a)\w+$"}, ""),
        ({"pattern": "^a{1,200}$"}, "a" * (MAX_RAW + 1)),
    ],
    ids=str,
)
def test_nothing_is_forced(values, schema, raw):
    assert forced(values, schema, raw) == ""


def test_nothing_is_forced_before_the_grammar_is_there():
    values = ValueGrammars(GrammarCache())
    assert values.forced({"format": "date"}, "2024") == ""
    values._cache.compile_now([_recipe("date", None)])
    assert values.forced({"format": "date"}, "2024") == "-"


@pytest.mark.parametrize(
    "pattern",
    ["((a{1,100}){1,100}){1,100}", "^(é*)*b$", "^(a|a)*b$", "^((a?){50}){50}$", "(.*)(.*)(.*)(.*)(.*)x.{15}"],
)
def test_a_catastrophic_pattern_takes_no_time(values, pattern):
    began = time.thread_time()
    for length in (1, 20, MAX_RAW):
        forced(values, {"pattern": pattern}, "a" * length)
        forced(values, {"pattern": pattern}, "é" * length)
    assert time.thread_time() - began < 0.5


def test_a_pattern_that_cost_too_much_is_not_asked_again(monkeypatch):
    values = ValueGrammars(GrammarCache())
    assert forced(values, {"format": "date"}, "2024") == "-"
    monkeypatch.setattr("sglang_toolspec.grammars.values._MAX_SECONDS", -1.0)
    assert values.forced({"format": "date"}, "2024") == "-"
    assert values.forced({"format": "date"}, "2024") == ""


def test_a_failure_is_asked_for_once():
    values = ValueGrammars(GrammarCache(limits=Limits(source_bytes=1)))
    for _ in range(3):
        assert forced(values, {"format": "date"}, "2024") == ""
    assert values._cache.counts.failed == 1
