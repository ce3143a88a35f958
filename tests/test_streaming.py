"""Streamed calls are those of the whole reply, however its text is cut; SGLang's parsers lose some."""

import inspect
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.entrypoints.openai.protocol import Function, Tool
from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
from sglang.srt.function_call.function_call_parser import FunctionCallParser
from sglang.srt.function_call.json_array_parser import JsonArrayParser

from sglang_toolspec.grammars import formats
from sglang_toolspec.runtime.engine import streaming
from sglang_toolspec.runtime.engine.call_readers import READERS
from tests.replies import FORMS, MARKUPS, PARSERS, TOOLS, TRICKY, reply, some_calls
from tests.toolsets import dumps


def sgl_tool(name, **parameters):
    return Tool(type="function", function=Function(name=name, parameters={"type": "object", **parameters}))


SGL_TOOLS = [sgl_tool(name, properties=properties) for name, properties in TOOLS.items()]
CALLS = [
    ("get_weather", {"city": "Rome", "days": 3}),
    ("get_time", {}),
    ("get_weather", {"city": "Oslo", "days": 1}),
]
BEFORE, AFTER = "I will check [it] now.\n", "\nDone {so far}.\n"
KEEPS_UNKNOWN = ("kimi_k2", "qwen3_coder", "step3p5", "nanbeige")


def new_parser(name, tools=SGL_TOOLS):
    return FunctionCallParser(tools, name)


def streamed(parser, pieces):
    """``(content, [(name, arguments)])`` of a stream, under OpenAI's field rules."""
    results = [streaming.parse_stream_chunk(FunctionCallParser.parse_stream_chunk, parser, p) for p in pieces]
    return joined([*results, streaming.parse_stream_end(FunctionCallParser.parse_stream_end, parser)])


def joined(results):
    names, arguments = [], []
    for item in (item for _, items in results for item in items):
        if item.name is not None:
            assert item.tool_index == len(names), "names come once, in order"
            names.append(item.name)
            arguments.append("")
        arguments[item.tool_index] += item.parameters
    return "".join(content or "" for content, _ in results), list(zip(names, arguments, strict=True))


def streamed_array(pieces):
    parser = JsonArrayParser()
    results = [streaming.parse_streaming_increment(None, parser, piece, SGL_TOOLS) for piece in pieces]
    return joined([(r.normal_text, r.calls) for r in (*results, streaming.finish(None, parser, SGL_TOOLS))])


def sglang_alone(name, text):
    original = inspect.unwrap(FunctionCallParser.parse_non_stream)  # another test may have loaded the plugin
    content, items = original(new_parser(name), text)
    return content, [(item.name, item.parameters) for item in items]


def in_one_shot(name, text):
    parser = new_parser(name)
    if not streaming.has_tool_call(FunctionCallParser.has_tool_call, parser, text):
        return text, []  # as SGLang's server has it
    content, items = streaming.parse_non_stream(FunctionCallParser.parse_non_stream, parser, text)
    return content, [(item.name, item.parameters) for item in items]


def loaded(result):
    """Without what a stream cannot know: whether white space at its start stands before a call."""
    content, calls = result
    return (content or "").lstrip(), [(name, json.loads(arguments)) for name, arguments in calls]


def cuts(text, sizes):
    """``text`` in pieces of ``sizes``, again and again."""
    at = 0
    while at < len(text):
        for size in sizes:
            yield text[at : at + size]
            at += size


def tokens(text):
    """Pieces about as a tokenizer makes them."""
    return re.findall(r"<[^<>]*>|\s?\w+|\s+|.", text, re.DOTALL)


CHUNKINGS = {
    "characters": lambda text: cuts(text, [1]),
    "tokens": tokens,
    "sevens": lambda text: cuts(text, [7]),
    "whole": lambda text: [text],
}
each_parser = pytest.mark.parametrize(("parser", "form"), PARSERS, ids=lambda value: value)


def test_every_parser_whose_format_we_draft_is_covered():
    assert set(FORMS) == set(formats._BY_PARSER)
    for name in FORMS:
        assert type(new_parser(name).detector).__name__ in READERS


def test_every_reader_is_of_a_detector_that_sglang_has():
    classes = {cls.__name__ for cls in FunctionCallParser.ToolCallParserEnum.values()}
    assert set(READERS) <= {*classes, "JsonArrayParser"}


@each_parser
@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize(("before", "after"), [("", ""), (BEFORE, ""), ("", AFTER), (BEFORE, AFTER)])
def test_calls_and_text_are_whole_in_each_chunking(parser, form, chunking, count, before, after):
    text = reply(parser, form, CALLS[:count], before, after)

    got = streamed(new_parser(parser), CHUNKINGS[chunking](text))

    assert loaded(got) == loaded(sglang_alone(parser, text))
    assert loaded(got)[1] == CALLS[:count]


@each_parser
@settings(max_examples=30)
@given(st.data())
def test_any_calls_in_any_pieces_are_those_of_one_shot(parser, form, data):
    calls = data.draw(some_calls(form, (*TOOLS, "nope")))
    before = data.draw(st.sampled_from(["", BEFORE, " \n", "a < b <tool", "1. [x]"]))
    after = data.draw(st.sampled_from(["", AFTER, "\n", "\n</tool_call>", "\n{"]))
    layout = data.draw(st.sampled_from(["spaced", "pretty", "compact"]))
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    text = reply(parser, form, calls, before, after, layout)

    got = streamed(new_parser(parser), cuts(text, sizes))

    assert got == streamed(new_parser(parser), [text])
    assert loaded(got) == loaded(in_one_shot(parser, text))
    if form not in MARKUPS:
        kept = [call for call in calls if call[0] in TOOLS or parser in KEEPS_UNKNOWN]
        assert loaded(got)[1] == kept


@pytest.mark.parametrize(("parser", "form"), [p for p in PARSERS if p[1] in MARKUPS], ids=lambda value: value)
@settings(max_examples=30)
@given(st.data())
def test_values_that_a_markup_cannot_quote_are_those_of_one_shot_in_any_pieces(parser, form, data):
    """``</tool_call>`` in a value ends the call, for SGLang too: docs/upstream.md."""
    city = data.draw(st.lists(TRICKY, min_size=1, max_size=3).map("".join))
    calls = [("get_weather", {"city": city}), *data.draw(st.sampled_from([[], CALLS[:2]]))]
    before, after = data.draw(st.sampled_from([("", ""), (BEFORE, ""), ("", AFTER)]))
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    text = reply(parser, form, calls, before, after)

    got = streamed(new_parser(parser), cuts(text, sizes))

    assert got == streamed(new_parser(parser), [text])
    assert loaded(got) == loaded(in_one_shot(parser, text))


@each_parser
@given(st.data())
def test_a_reply_without_calls_is_content_to_the_last_character(parser, form, data):
    text = data.draw(st.sampled_from(["Yes.\n", " \n", "a <tool_cal", "x [TOOL", "commentary on <|", "{"]))
    if parser == "llama3" and text == "{":
        text = " {"  # what begins with a brace may be a call
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))

    assert streamed(new_parser(parser), cuts(text, sizes)) == (text, [])


@each_parser
def test_a_call_of_an_unknown_tool_leaves_no_trace_in_the_content(parser, form):
    calls = [("nope", {"city": "{x}"}), CALLS[0]]
    text = reply(parser, form, calls, BEFORE)

    content, got = streamed(new_parser(parser), cuts(text, [1]))

    assert content.strip() == BEFORE.strip()
    kept = ["nope"] if parser in KEEPS_UNKNOWN else []
    assert [name for name, _ in got] == [*kept, "get_weather"]


@each_parser
def test_arguments_come_in_pieces_before_the_call_has_ended(parser, form):
    calls = [("write_file", {"path": "a.txt", "lines": [1, 2], "options": {"k": 1}})]
    text = reply(parser, form, calls)
    end = text.rindex("options")
    stream = new_parser(parser)

    _, items = streaming.parse_stream_chunk(FunctionCallParser.parse_stream_chunk, stream, text[:end])

    assert [item.name for item in items][:1] == ["write_file"]
    assert "".join(item.parameters for item in items).startswith('{"path": "a.txt", "lines": [1, 2]')


@each_parser
def test_sglang_has_nothing_to_add_at_the_end_of_a_stream(parser, form):
    """``_check_for_unstreamed_tool_args`` would send the last call's arguments again."""
    stream = new_parser(parser)
    streamed(stream, [reply(parser, form, CALLS)])

    assert OpenAIServingChat._check_for_unstreamed_tool_args(None, stream, {}, None, 0, 0) is None


@each_parser
def test_a_reply_that_breaks_off_keeps_what_came(parser, form):
    text = reply(parser, form, [CALLS[0], ("write_file", {"path": "a.txt", "lines": []})])
    end = text.rindex("a.txt") + 3

    whole = streamed(new_parser(parser), [text[:end]])

    assert streamed(new_parser(parser), cuts(text[:end], [1])) == whole
    assert json.loads(whole[1][0][1]) == CALLS[0][1]
    assert in_one_shot(parser, text[:end])[1][0][0] == "get_weather"


END_TAG = '{"city": "</tool_call>"}'
CALL = f'{{"name": "get_weather", "arguments": {END_TAG}}}'


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        ("hermes", f"<tool_call>{CALL}</tool_call>"),
        ("hermes", f"<tool_call>[{CALL}]</tool_call>"),
        ("qwen25", f"<tool_call>\n{CALL}</tool_call>"),
        ("deepseekv31", f"<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{END_TAG}<｜tool▁call▁end｜>"),
        ("gpt-oss", f"<|channel|>commentary to=get_weather<|constrain|>json<|message|>{END_TAG}<|call|>"),
        ("mistral", f"[TOOL_CALLS][{CALL}]"),
    ],
)
def test_calls_that_sglang_loses_in_one_shot_are_found_both_ways(parser, text):
    expected = [("get_weather", {"city": "</tool_call>"})]

    assert sglang_alone(parser, text)[1] == [], "fixed in SGLang: drop it from docs/upstream.md"
    for chunking in CHUNKINGS.values():
        assert loaded(streamed(new_parser(parser), chunking(text)))[1] == expected
    assert loaded(in_one_shot(parser, text))[1] == expected


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ('{"name": "get_time"}', {}),
        ('{"name": "get_time", "arguments": {}}', {}),
        ('{"name": "get_time", "parameters": null}', {}),
        ('{"arguments": {"city": "Rome"}, "name": "get_weather"}', {"city": "Rome"}),
        ('{"name": "get_weather", "arguments": "{\\"city\\": 1}"}', '{"city": 1}'),
        ('{"name": "switch", "arguments": {"level": 10e-5}}', {"level": 0.0001}),
        ('{"id": "x", "name": "switch", "arguments": {"on": true}, "type": "function"}', {"on": True}),
    ],
)
def test_unusual_call_objects_are_read_as_sglang_reads_them(call, arguments):
    text = f"<tool_call>\n{call}\n</tool_call>\n<tool_call>\n{call}\n</tool_call>"

    for chunking in CHUNKINGS.values():
        got = loaded(streamed(new_parser("qwen25"), chunking(text)))
        assert got == loaded(sglang_alone("qwen25", text))
        assert [found for _, found in got[1]] == [arguments, arguments]


@pytest.mark.parametrize(
    "text",
    [
        "{'name': 'get_weather', 'parameters': {'city': 'Rome'}}",
        '<|python_tag|>{"name": "get_weather", "parameters": {\'city\': \'Rome\'}}',
        '{"name": "get_weather", "parameters": {"city": "Rome"}}',
    ],
)
def test_llama_calls_as_python_writes_them(text):
    for chunking in CHUNKINGS.values():
        got = loaded(streamed(new_parser("llama3"), chunking(text)))
        assert got == loaded(sglang_alone("llama3", text)) == ("", [("get_weather", {"city": "Rome"})])


def test_kimi_calls_without_a_name_are_told_by_their_arguments():
    text = reply("kimi_k2", "kimi_k2", CALLS[:1]).replace("functions.get_weather:0", "3")

    for chunking in CHUNKINGS.values():
        got = loaded(streamed(new_parser("kimi_k2"), chunking(text)))
        assert got == loaded(sglang_alone("kimi_k2", text)) == ("", CALLS[:1])


def test_values_whose_type_depends_on_a_later_one_wait_for_it():
    """GLM-4.7 writes no types: SGLang settles unions by the other arguments."""
    branches = [
        {"properties": {"value": {"type": "integer"}, "kind": {"const": "number"}}},
        {"properties": {"value": {"type": "string"}, "kind": {"const": "text"}}},
    ]
    tools = [sgl_tool("put", oneOf=branches)]
    pairs = [("value", "7"), ("kind", "text")]
    written = "".join(f"<arg_key>{k}</arg_key><arg_value>{v}</arg_value>" for k, v in pairs)
    text = f"<tool_call>put{written}</tool_call>"

    for chunking in CHUNKINGS.values():
        got = loaded(streamed(new_parser("glm47", tools), chunking(text)))
        assert got == ("", [("put", {"value": "7", "kind": "text"})])


@pytest.mark.parametrize("layout", ["spaced", "pretty", "compact"])
@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize("gap", ["", " ", "\n"])
def test_calls_that_a_mask_forces_into_an_array(layout, chunking, gap):
    objects = [dumps({"name": name, "parameters": arguments}, layout) for name, arguments in CALLS]
    text = f"[{gap}{f'{gap},{gap}'.join(objects)}{gap}]"

    assert loaded(streamed_array(CHUNKINGS[chunking](text))) == ("", CALLS)


@pytest.mark.parametrize("text", ["I cannot.\n", "", '{"name": "get_time", "parameters": {}}', "[]"])
def test_other_replies_where_a_mask_should_have_forced_an_array(text):
    expected = ("", [("get_time", {})]) if text.startswith("{") else ("" if text == "[]" else text, [])

    for chunking in CHUNKINGS.values():
        assert loaded(streamed_array(chunking(text))) == expected


def test_parsers_that_we_do_not_draft_for_are_left_to_sglang():
    parser = new_parser("pythonic")
    text = '[get_weather(city="Rome")]'

    assert streaming.parse_stream_chunk(lambda *given: given, parser, text) == (parser, text)
    assert streaming.parse_stream_end(lambda *given: given, parser) == (parser,)
    assert not streaming.has_tool_call(lambda *given: False, parser, text)


def test_without_tools_text_is_left_to_sglang():
    parser = FunctionCallParser([], "qwen25")
    text = "<tool_call>\n{"

    assert streaming.parse_stream_chunk(FunctionCallParser.parse_stream_chunk, parser, text) == (text, [])


def test_a_long_argument_costs_time_in_proportion():
    text = reply("qwen25", "hermes", [("write_file", {"path": "x" * 60_000})])

    got = streamed(new_parser("qwen25"), cuts(text, [4]))

    assert len(json.loads(got[1][0][1])["path"]) == 60_000
