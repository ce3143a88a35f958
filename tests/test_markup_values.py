"""Parameters of markups: text without quotes, and JSON for all that is no text."""

import json

import pytest
from sglang.srt.entrypoints.openai.protocol import Tool
from sglang.srt.function_call.function_call_parser import FunctionCallParser

from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.layout import USUAL_WORDS
from sglang_toolspec.grammars.tools import ToolSet
from tests.callpieces import MARKUPS, OTHER, PARAMETER, VALUE
from tests.following import followed
from tests.toolsets import PARSERS, tool, write_call

SCHEMAS = {
    "flag": {"type": "boolean"},
    "maybe": {"type": ["boolean", "null"]},
    "text": {"type": ["string", "null"]},
    "level": {"enum": [1, 2, 30]},
    "word": {"enum": ["high", "low"]},
    "either": {"anyOf": [{"enum": ["all", "none"]}, {"type": "boolean"}]},
    "any": {},
    "count": {"type": "integer"},
    "tags": {"type": "array", "items": {"enum": ["red", "green"]}},
    "point": {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "label": {"type": "string"}, "on": {"type": "boolean"}},
        "required": ["x", "label"],
    },
}
ENDS = {"glm": "</arg_value>", "glm47": "</arg_value>", "qwen3_coder": "\n</parameter>"}


def tools():
    return ToolSet.from_openai([tool("set", SCHEMAS)])


def started(form, key, text="", habits=None):
    """A reader behind the start of the value of ``key``."""
    call = write_call(form, "set", {key: "~"})
    return followed(call.partition("~")[0] + text, form, tools=tools(), habits=habits)


def branches(form, key, text="", habits=None):
    return [c.text for c in started(form, key, text, habits).branches()]


@pytest.mark.parametrize("form", MARKUPS)
@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("flag", "", {"true", "false"}), ("flag", "t", {"rue"}), ("flag", "fal", {"se"}),
        ("maybe", "", {"true", "false", "null"}), ("level", "", {"1", "2", "30"}), ("level", "3", {"0"}),
        ("word", "", {"high", "low"}), ("word", "h", {"igh"}), ("text", "nu", {"ll"}),
        ("either", "", {"all", "none", "true", "false"}),
    ],
)  # fmt: skip
def test_finite_values_are_offered_as_the_format_writes_them(form, key, text, words):
    assert {word + ENDS[form] for word in words} <= set(branches(form, key, text))


@pytest.mark.parametrize("form", MARKUPS)
@pytest.mark.parametrize("key", ["flag", "word", "level", "either"])
def test_finite_values_are_what_parsers_read(form, key):
    """What is offered, read by SGLang's detectors, is a value of the schema."""
    declared = [Tool.model_validate(tool("set", SCHEMAS))]
    head = write_call(form, "set", {key: "~"}).partition("~")[0]
    tail = write_call(form, "set", {key: "~"}).partition("~")[2].removeprefix(ENDS[form])
    for offered in branches(form, key):
        if offered.endswith(ENDS[form]):
            parser = FunctionCallParser(declared, PARSERS[form])
            _, calls = parser.parse_non_stream(head + offered + tail)
            value = json.loads(calls[0].parameters)[key]
            if key == "flag":
                assert isinstance(value, bool)
            else:
                assert str(value).lower() in ("1", "2", "30", "high", "low", "all", "none", "true", "false")


def test_both_spellings_of_constants_are_offered_where_models_mix_them():
    found = {text.removesuffix(ENDS["qwen3_coder"]) for text in branches("qwen3_coder", "flag")}
    assert found == {"true", "false", "True", "False"}
    assert len(branches("glm", "flag")) == 2


@pytest.mark.parametrize(("written", "usual"), [("True", ("True", "False")), ("false", ("true", "false"))])
def test_the_spelling_of_the_last_constant_is_the_likeliest(written, usual):
    habits = Habits()
    followed(write_call("qwen3_coder", "set", {"flag": written}), "qwen3_coder", tools=tools(), habits=habits)
    found = sorted(started("qwen3_coder", "flag", habits=habits).branches(), key=lambda c: -c.weight)
    assert {c.text.partition("\n")[0] for c in found[:2]} == set(usual)
    assert found[0].weight > 0.4 * USUAL_WORDS


@pytest.mark.parametrize("form", MARKUPS)
def test_a_text_that_no_choice_begins_with_stays_open(form):
    assert branches(form, "word", "medium") == [ENDS[form]]
    assert branches(form, "any") == [""]
    assert started(form, "text").in_open_value
    assert not started(form, "flag").in_open_value


@pytest.mark.parametrize("form", MARKUPS)
def test_objects_and_arrays_are_json(form):
    reader = started(form, "point", '{"x": 1, ')
    assert (reader.state, reader.path) == (PARAMETER, ("point", "x"))
    assert reader.spans() == '"label": "'
    assert started(form, "point").spans() == '{"x": '
    reader.advance(b'"label": "a')
    assert (reader.state, reader.path, reader.value_so_far) == (VALUE, ("point", "label"), "a")
    assert reader.in_open_value
    reader.advance(b'"')
    assert reader.state is OTHER
    assert {c.text[:7] for c in reader.branches()} >= {', "on":', "}" + ENDS[form][:6]}
    reader.advance(b', "on": true')
    reader.advance(b"}")
    assert (reader.state, reader.path) == (VALUE, ("point",))
    assert reader.spans().startswith(ENDS[form])


@pytest.mark.parametrize("form", MARKUPS)
def test_choices_within_an_array_are_offered(form):
    assert set(branches(form, "tags", '["red", ')) == {'"red"', '"green"'}
    assert "]" + ENDS[form] in branches(form, "tags", '["red"')
    assert set(branches(form, "tags", '["red"]')) == {ENDS[form]}


@pytest.mark.parametrize("form", MARKUPS)
@pytest.mark.parametrize(
    "value", ["{'x': 1}", "[1, 2", '{"x": "</arg>"}', "x, y", "", "{", '{"x": 1}}', "1 2", "True", " [1]"]
)
@pytest.mark.parametrize("key", ["point", "tags", "count", "flag"])
def test_what_is_no_json_is_followed_as_text(form, key, value):
    call = write_call(form, "set", {key: value, "word": "low"})
    reader = followed(call[:-1], form, tools=tools())
    assert reader.calls_done == 0
    reader.advance(call[-1:].encode())
    assert reader.calls_done == 1


@pytest.mark.parametrize("form", MARKUPS)
def test_pretty_json_in_a_markup_is_indented_from_its_own_start(form):
    habits = Habits()
    value = {"x": 1, "label": "a"}
    followed(write_call(form, "set", {"point": value}, "pretty"), form, tools=tools(), habits=habits)
    assert started(form, "point", habits=habits).spans() == '{\n  "x": '
    closing = started(form, "point", '{\n  "x": 1,\n  "label": "a"', habits).branches()
    assert any(c.text == "\n}" + ENDS[form] for c in closing)


@pytest.mark.parametrize("form", MARKUPS)
def test_the_parts_of_what_ends_a_value_are_completed(form):
    for key, value in (("count", "12"), ("point", '{"x": 1}'), ("word", "low")):
        for length in range(1, len(ENDS[form])):
            found = branches(form, key, value + ENDS[form][:length])
            assert ENDS[form][length:] in found, (key, length, found)
