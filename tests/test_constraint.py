"""Constraints hold a reply to its tools: their names, their schemas, and bounded white space."""

import json
import time
from functools import cache

import pytest
import xgrammar

from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.compile import TEXT_ONLY, matcher
from sglang_toolspec.grammars.constraint import constraint_tag
from sglang_toolspec.grammars.tools import ToolSet
from tests.callpieces import MARKUPS
from tests.toolsets import GET_TIME, GET_WEATHER, assistant, tool, write_calls

NATIVE = {
    "qwen25": "hermes", "hermes": "hermes", "mistral": "mistral", "deepseekv3": "deepseekv3",
    "deepseekv31": "deepseekv31", "kimi_k2": "kimi_k2", "qwen3_coder": "qwen3_coder",
    "step3p5": "qwen3_coder", "glm47": "glm47", "llama3": "bare_parameters", None: "array", "glm45": "array",
}  # fmt: skip
"""The format in which SGLang reads a required call, by its parser."""
TWO_CALLS = [("get_time", {"zone": "Europe/Oslo"}), ("get_weather", {"city": "Oslo", "days": 3})]


@cache
def mask(parser, tool_choice="required", strict=True, tools=(GET_TIME["function"]["name"], "get_weather")):
    declared = ToolSet.from_checked((t.name, t) for t in assistant().tools if t.name in tools)
    return compiled(declared, parser, tool_choice, strict)


def compiled(tools, parser, tool_choice="required", strict=True):
    tag = constraint_tag(tools, parser, tool_choice, strict)
    return xgrammar.GrammarCompiler(TEXT_ONLY, cache_enabled=False).compile_structural_tag(json.dumps(tag))


def accepts(grammar, text):
    walk = matcher(grammar)
    return walk.accept_string(text) and walk.is_completed()


@pytest.mark.parametrize("parser", NATIVE)
def test_several_calls_are_possible_in_the_models_own_format(parser):
    assert accepts(mask(parser), write_calls(NATIVE[parser], TWO_CALLS))


@pytest.mark.parametrize("parser", NATIVE)
def test_a_tool_that_nobody_declared_cannot_be_called(parser):
    text = write_calls(NATIVE[parser], [("get_tim", {"zone": "x"})])
    assert not matcher(mask(parser)).accept_string(text)


@pytest.mark.parametrize("parser", [*NATIVE, "gpt-oss"])
def test_required_means_at_least_one_call(parser):
    assert not accepts(mask(parser), "")


@pytest.mark.parametrize("parser", NATIVE)
def test_strict_refuses_what_the_schema_refuses(parser):
    text = write_calls(NATIVE[parser], [("get_weather", {"city": "Oslo", "days": "three"})])
    assert not accepts(mask(parser), text)
    assert accepts(mask(parser, strict=False), text)


@pytest.mark.parametrize("parser", NATIVE)
def test_arguments_are_an_object_even_without_strict(parser):
    if NATIVE[parser] in MARKUPS:
        pytest.skip("markup holds nothing else")
    text = write_calls(NATIVE[parser], [("get_time", {"zone": "x"})]).replace('{"zone": "x"}', '["x"]')
    assert not accepts(mask(parser, strict=False), text)


@pytest.mark.parametrize("parser", NATIVE)
def test_a_named_tool_is_the_only_one(parser):
    only = mask(parser, "get_time")
    assert accepts(only, write_calls(NATIVE[parser], TWO_CALLS[:1]))
    assert not accepts(only, write_calls(NATIVE[parser], TWO_CALLS[1:]))


@pytest.mark.parametrize("parser", ["qwen25", "mistral", "deepseekv3", "kimi_k2", "llama3"])
def test_white_space_is_bounded(parser):
    call = write_calls(NATIVE[parser], TWO_CALLS[:1])
    loop = call.replace('{"zone"', "{" + "\n" * 100 + '"zone"')
    assert not matcher(mask(parser)).accept_string(loop)


def test_pretty_printing_stays_possible():
    call = '<tool_call>\n{"name": "get_time", "arguments": {\n        "zone": "x"\n    }}\n</tool_call>'
    assert accepts(mask("qwen25"), call)


def test_strict_auto_allows_text_and_only_whole_calls():
    auto = mask("qwen25", "auto")
    assert accepts(auto, "I will check.")
    assert accepts(auto, "I will check.\n" + write_calls("hermes", TWO_CALLS))
    assert not matcher(auto).accept_string('<tool_call>\n{"name": "nope"')


@pytest.mark.parametrize("parser", NATIVE)
def test_auto_is_free_unless_strict(parser):
    assert constraint_tag(assistant(), parser, "auto", strict=False) is None


def test_other_parsers_keep_the_constraint_of_sglang():
    assert constraint_tag(assistant(), "pythonic", "required", strict=True) is None


def test_a_name_is_written_as_json_where_it_stands_in_json():
    odd = ToolSet.from_openai([tool('a "b" c')])
    for parser in ("qwen25", "llama3", None):
        assert accepts(compiled(odd, parser), write_calls(NATIVE[parser], [('a "b" c', {})]))


def test_a_tool_that_declares_nothing_takes_nothing():
    tools = ToolSet.from_openai([{"name": "ping"}])
    assert accepts(compiled(tools, "qwen25"), write_calls("hermes", [("ping", {})]))
    assert not accepts(compiled(tools, "qwen25"), write_calls("hermes", [("ping", {"a": 1})]))


def test_a_choice_that_names_no_tool_is_refused():
    with pytest.raises(UserError, match="tool_choice names 'nope', which /tools lacks"):
        constraint_tag(ToolSet.from_openai([GET_TIME, GET_WEATHER]), "qwen25", "nope", True)


def test_a_required_call_needs_tools():
    with pytest.raises(UserError, match="send tools"):
        constraint_tag(ToolSet.from_openai([]), "qwen25", "required", True)


def test_text_before_a_call_is_masked_by_its_trigger_in_time():
    """A rule for text that avoids a mark cost other servers seconds before the first token."""
    tag = constraint_tag(assistant(), "qwen25", "auto", True)
    assert tag["format"]["type"] == "triggered_tags"
    walk = matcher(mask("qwen25", "auto"))
    bits = xgrammar.allocate_token_bitmask(1, 2)
    began = time.process_time()
    for _ in range(2000):
        assert walk.accept_string("I think < tool_call> of it. ")
        walk.fill_next_token_bitmask(bits)
    assert time.process_time() - began < 3
