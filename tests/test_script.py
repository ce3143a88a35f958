"""Formats as scripts, and literals that are followed with free white space."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.formats import FORMATS, formats_for, pieces
from sglang_toolspec.grammars.script import (
    MAX_SPACE,
    EndBlock,
    EndCall,
    Fork,
    Index,
    Json,
    Key,
    Literal,
    Match,
    Name,
    Parameters,
    Value,
    after_call,
    match,
    next_block,
    parameter_or,
    script,
)
from tests.toolsets import PARSERS, SHARED_BLOCK

quick = settings(max_examples=60, deadline=None)


@pytest.mark.parametrize(
    ("literal", "data", "found"),
    [
        ("<a>", "", Match(None, "<a>")),
        ("<a>", "<", Match(None, "a>")),
        ("<a>", "<a>", Match(3, "")),
        ("<a>", "<a>b", Match(3, "")),
        ("<a>", "  \n<a", Match(None, ">")),
        ("<a>", "b", None),
        ("<a>", "< a>", None),
        ("<a>\n", "<a>", Match(None, "\n")),
        ("<a>\n", "<a>\n", Match(4, "")),
        ("<a>\n", "<a> x", Match(4, "")),
        ("<a>\n", "<a>\n  x", Match(4, "")),
        ("<a>\n", "<a>x", Match(3, "")),
        ("\n</a>", "", Match(None, "\n</a>")),
        ("\n</a>", "\n", Match(None, "</a>")),
        ("\n</a>", "</a>", Match(4, "")),
        ("\n</a>", " \n\n </a>", Match(8, "")),
        ("\n</a>", " ", Match(None, "</a>")),
        ("\n</a>", "x", None),
        ("a b", "ab", Match(2, "")),
        ("a b", "a \n b", Match(5, "")),
        ("a\n\nb", "a\n", Match(None, "\nb")),
        ("\n", "\n", Match(1, "")),
        ("\n", "x", Match(0, "")),
        ("<a>", " " * MAX_SPACE + "<a>", Match(MAX_SPACE + 3, "")),
        ("<a>", " " * (MAX_SPACE + 1), None),
        ("\n<a>", "\n" * (MAX_SPACE + 1) + "<a>", None),
    ],
)
def test_a_literal_is_followed_with_free_white_space(literal, data, found):
    assert match(literal, data) == found


LITERALS = st.sampled_from(["<a>", "<a>\n", "\n</a>\n", "a b\nc", "```json\n", "\n```", ", ", " <|x|>", "\n"])


@quick
@given(LITERALS, st.text("<>a b\nc/`x,", max_size=12))
def test_following_character_by_character_finds_the_same(literal, data):
    whole = match(literal, data)
    for end in range(len(data) + 1):
        found = match(literal, data[:end])
        if found is None or found.used is not None:
            break
    assert found == whole or (found and whole and found.used == whole.used)


@quick
@given(LITERALS, st.text(" \n\t", max_size=3), st.data())
def test_what_is_missing_completes_the_literal(literal, space, data):
    start = space + literal[: data.draw(st.integers(0, len(literal)))]
    found = match(literal, start)
    if found is not None and found.used is None:
        assert found.missing
        whole = match(literal, start + found.missing)
        assert whole == Match(len(start + found.missing), "")


# Formats.


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_every_format_is_a_script_of_one_call(form):
    steps = script(form)
    assert isinstance(steps[-1], EndCall)
    assert sum(isinstance(step, Json | Parameters) for step in steps) == 1
    named = sum(isinstance(step, Name) for step in steps)
    assert named == (0 if any(isinstance(s, Json) and s.whole_call for s in steps) else 1)
    for before, after in pairwise(steps):
        assert not (isinstance(before, Literal) and isinstance(after, Literal))
    assert all(step.text for step in steps if isinstance(step, Literal))


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_after_a_call_comes_another_or_the_end(form):
    steps = after_call(form)
    if form.name not in SHARED_BLOCK:
        assert steps == (EndBlock(),)
        return
    (fork,) = steps
    assert isinstance(fork, Fork)
    assert fork.done == (Literal(form.close), EndBlock())
    assert isinstance(fork.more[-1], EndCall)
    assert isinstance(next_block(form)[0], Literal)


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_another_block_ends_with_its_call_too(form):
    assert isinstance(next_block(form)[-1], EndCall)


def test_the_mark_that_opens_llamas_calls_stands_once():
    assert script(FORMATS["llama3"])[0] == Literal("<|python_tag|>")
    assert next_block(FORMATS["llama3"])[0] == Literal(";")


def test_a_markup_reads_key_and_value():
    (*_, parameters, _, _) = script(FORMATS["qwen3_coder"])
    opening, key, middle, value = parameters.parameter
    assert (opening, key, middle) == (Literal("\n<parameter="), Key(">"), Literal(">\n"))
    assert value == Value("\n</parameter>")


def test_one_more_parameter_comes_before_what_follows_the_last():
    parameters = next(s for s in script(FORMATS["glm"]) if isinstance(s, Parameters))
    fork = parameter_or((Literal("</tool_call>"), EndCall()), parameters)
    assert fork.more[-3:] == (parameters, Literal("</tool_call>"), EndCall())
    assert fork.done == (Literal("</tool_call>"), EndCall())


@pytest.mark.parametrize(
    ("form", "ends"),
    [
        ("glm", "\n<"), ("glm47", "\n<"), ("deepseekv3", "\n`"), ("kimi_k2", ":"), ("harmony", " <"),
        ("qwen3_coder", ">"),
    ],
)  # fmt: skip
def test_a_name_ends_where_its_format_goes_on(form, ends):
    (name,) = (step for step in script(FORMATS[form]) if isinstance(step, Name))
    assert set(name.ends) == set(ends)


def test_kimi_counts_its_calls():
    assert any(isinstance(step, Index) for step in script(FORMATS["kimi_k2"]))


def test_a_template_is_cut_at_its_holes():
    assert pieces("<{name}>{arguments} {other}") == [
        ("<", False), ("name", True), (">", False), ("arguments", True), (" {other}", False),
    ]  # fmt: skip


@pytest.mark.parametrize(("form", "parser"), PARSERS.items())
def test_every_format_has_a_parser_that_knows_it(form, parser):
    assert FORMATS[form] in formats_for(parser)


@pytest.mark.parametrize("parser", [None, "", "no such parser", *sorted(set(PARSERS.values()))])
@pytest.mark.parametrize("constrained", [False, True])
def test_every_parser_has_formats(parser, constrained):
    found = formats_for(parser, constrained)
    assert found
    assert len({form.name for form in found}) == len(found)


def test_a_parsers_own_format_comes_first():
    own = {"qwen25": "hermes", "kimi_k2": "kimi_k2", "glm47": "glm47", "gpt-oss": "harmony"}
    assert {parser: formats_for(parser)[0].name for parser in own} == own


def test_a_forced_call_of_hermes_has_no_space_after_its_name():
    (form, *_) = formats_for("qwen25", constrained=True)
    assert form.tight_name
    assert form.fresh_layout() != FORMATS["hermes"].fresh_layout()
