"""Draft grammars accept calls as models write them, and force what follows from the schema."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.grammars.compile import compiled, draft_grammar, forced_text, matcher
from sglang_toolspec.grammars.formats import FORMATS, Format
from sglang_toolspec.grammars.layout import COMPACT, PRETTY, SPACED, TIGHT_COLON
from sglang_toolspec.grammars.tools import ToolSet
from tests.toolsets import GET_TIME, GET_WEATHER, LEGAL_CALLS, assistant, tool, write_calls

PRESETS = {"spaced": SPACED, "pretty": PRETTY, "compact": COMPACT, "tight_colon": TIGHT_COLON}


def draft(*tools, form="bare", preset=SPACED, any_order=False):
    return compiled(draft_grammar(ToolSet.from_openai(tools), FORMATS[form], preset, any_order))


def accepts(grammar, text):
    walk = matcher(grammar)
    return walk.accept_string(text) and walk.is_completed()


def forced_after(grammar, text):
    walk = matcher(grammar)
    assert walk.accept_string(text), text
    return forced_text(walk)


@pytest.mark.parametrize("layout", PRESETS)
@pytest.mark.parametrize("form", FORMATS)
def test_at_every_byte_of_a_call_the_forced_text_is_what_comes_next(form, layout):
    grammar = compiled(draft_grammar(assistant(), FORMATS[form], PRESETS[layout]))
    data = write_calls(form, LEGAL_CALLS, layout).encode()
    walk = matcher(grammar)
    forced = 0
    for i in range(len(data)):
        text = forced_text(walk).encode()
        assert data[i:].startswith(text) or text.startswith(data[i:]), (data[:i], text)
        forced += bool(text)
        assert walk.accept_string(data[i : i + 1]), data[:i]
    assert walk.is_completed()
    assert forced > 0.6 * len(data)


@given(st.data())
def test_any_value_that_fits_its_schema_is_accepted(data):
    text, whole = st.text(st.characters(codec="utf-8"), max_size=6), st.integers(-(10**6), 10**6)
    arguments = {"city": data.draw(text)}
    if data.draw(st.booleans()):
        arguments["days"] = data.draw(whole)
    if data.draw(st.booleans()):
        arguments["unit"] = data.draw(st.sampled_from(["celsius", "kelvin"]))
    call = write_calls("hermes", [("get_weather", arguments)])
    assert accepts(draft(GET_WEATHER, form="hermes"), call)


def test_the_frame_of_the_only_tool_is_forced():
    start = '<tool_call>\n{"name": "get_time", "arguments": {"zone": "'
    assert forced_after(draft(GET_TIME, form="hermes"), "") == start


def test_tools_that_share_a_prefix_force_only_that():
    assert forced_after(draft(GET_TIME, GET_WEATHER), "") == '{"name": "get_'


def test_names_that_share_the_first_byte_of_a_character_force_whole_characters():
    grammar = draft(tool("dä"), tool("dö"))
    assert forced_after(grammar, "") == '{"name": "d'


def test_keys_out_of_order_need_the_any_order_grammar():
    call = write_calls("bare", [("get_weather", {"days": 1, "city": "Oslo"})])
    assert not accepts(draft(GET_WEATHER), call)
    assert accepts(draft(GET_WEATHER, any_order=True), call)


@pytest.mark.parametrize("form", ["glm", "glm47", "qwen3_coder"])
def test_parameters_of_a_markup_too(form):
    call = write_calls(form, [("get_weather", {"days": 1, "city": "Oslo"})])
    assert not accepts(draft(GET_WEATHER, form=form), call)
    assert accepts(draft(GET_WEATHER, form=form, any_order=True), call)


def test_a_required_parameter_of_a_markup_must_stand():
    assert not accepts(draft(GET_TIME, form="glm"), write_calls("glm", [("get_time", {})]))


def test_the_first_colons_may_be_tight():
    form = Format("hermes", "<tool_call>\n{object}\n</tool_call>", tight_name=True)
    grammar = compiled(draft_grammar(ToolSet.from_openai([GET_TIME]), form, SPACED))
    text = '<tool_call>\n{"name":"get_time", "arguments":{"zone": "x"}}\n</tool_call>'
    assert accepts(grammar, text)


def test_a_name_whose_bytes_xgrammar_prints_as_one_character_repeats_whole():
    # Printed, "ß" + "e" is \xdfe, which xgrammar would read back as one character.
    calls = [("große", {}), ("große", {})]
    assert accepts(draft(tool("große"), form="hermes"), write_calls("hermes", calls))


def test_a_schema_that_xgrammar_refuses_reads_as_any_object():
    grammar = draft({"name": "odd", "parameters": {"properties": {"a": {"type": "dict"}}}})
    assert accepts(grammar, '{"name": "odd", "arguments": {"b": [1]}}')


def test_a_compound_choice_may_stand_in_the_layout_of_the_rest():
    grammar = draft(tool("f", {"at": {"enum": [{"x": 1, "y": 2}]}}, required=["at"]))
    assert accepts(grammar, json.dumps({"name": "f", "arguments": {"at": {"x": 1, "y": 2}}}))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"title": {"type": "string"}}, {"description": {"type": "string"}}),
        (
            {"x": {"type": "string"}, "y": {"type": "string"}},
            {"y": {"type": "string"}, "x": {"type": "string"}},
        ),
    ],
    ids=["names that xgrammar skips", "another order"],
)
def test_objects_that_xgrammar_takes_for_the_same_are_told_apart(one, other):
    schemas = {k: {"type": "object", "properties": p} for k, p in (("a", one), ("b", other))}
    grammar = draft(tool("f", schemas, required=["a", "b"]))
    arguments = {"a": dict.fromkeys(one, "v"), "b": dict.fromkeys(other, "v")}
    assert accepts(grammar, json.dumps({"name": "f", "arguments": arguments}))
