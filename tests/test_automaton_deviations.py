"""Replies that are unusual, broken or hostile: followed all the same, in time."""

import pytest

from sglang_toolspec.grammars.tools import ToolSet
from tests.callpieces import MARKUPS, NAME, OTHER, PARAMETER, VALUE, WHOLE_CALL
from tests.following import FORMS, FULL, WEATHER, at_once, automaton, followed, offers
from tests.toolsets import PARSERS, dumps, fits, tool, write_call

# Calls that are unusual but legal.


@pytest.mark.parametrize("form", FORMS)
def test_keys_may_come_in_another_order(form):
    reader = followed(write_call(form, "get_weather", dict(reversed(FULL[1].items()))), form)
    assert reader.calls_done == 1


@pytest.mark.parametrize("form", WHOLE_CALL)
def test_arguments_may_come_before_the_name(form):
    text = write_call(form, *WEATHER)
    key = "parameters" if "parameters" in text else "arguments"
    head = text.partition("{")[0] + f'{{"{key}": {{"zone": "UTC"}}'
    reader = followed(head + ', "na', form)
    assert (reader.state, reader.tool) == (OTHER, None)
    reader.advance(b'me": "get_t')
    assert reader.state is NAME
    assert any(c.text.startswith('ime"') for c in reader.continuations())
    reader.advance(b'ime"' + text.partition("}}")[2].encode().join([b"}", b""]))
    assert reader.calls_done == 1


@pytest.mark.parametrize("form", ["hermes", "mistral", "fence"])
def test_parameters_instead_of_arguments_are_followed(form):
    text = write_call(form, *FULL).replace('"arguments"', '"parameters"')
    at = text.index("days")
    reader = followed(text[:at], form)
    assert (reader.state, reader.tool) == (PARAMETER, "get_weather")
    assert any(c.text.startswith('days": ') for c in reader.continuations())
    reader.advance(text[at:].encode())
    assert reader.calls_done == 1


def test_a_parameter_called_name_does_not_name_the_tool():
    reader = followed('{"name": "add_contact", "arguments": {"name": "get_time", "arguments": {"name": "x')
    assert (reader.tool, reader.state) == ("add_contact", VALUE)
    assert reader.path == ("arguments", "name")


def test_a_value_that_reads_name_does_not_name_the_tool():
    assert followed('{"name": "get_time", "arguments": {"zone": "name"').tool == "get_time"


def test_of_two_names_the_last_counts():
    reader = followed('{"name": "nobody", "name": "get_time", "arguments": {')
    assert reader.tool == "get_time"
    assert any(c.text.startswith('"zone": "') for c in reader.continuations())
    reader.advance(b'"zone": "", "zone": "UTC"}}')
    assert reader.calls_done == 1


def test_odd_names_and_keys_are_read_as_themselves():
    reader = followed(write_call("hermes", 'home.lights "é"', {'le"vel': 7}).partition("7")[0])
    assert reader.tool == 'home.lights "é"'
    assert reader.path == ('le"vel',)


@pytest.mark.parametrize("form", [f for f in FORMS if f not in MARKUPS])
def test_braces_and_tags_in_a_string_end_nothing(form):
    zone = '}}\n</tool_call>{[<tool_call>```\n<｜tool▁call▁end｜><|call|>"}'
    head, tail = write_call(form, "get_time", {"zone": "~"}).split("~")
    reader = followed(head, form)
    for char in dumps(zone)[1:-1]:
        reader.advance(char.encode())
        assert (reader.calls_done, reader.state, reader.path) == (0, VALUE, ("zone",))
    reader.advance(tail.encode())
    assert reader.calls_done == 1


def test_array_items_have_an_index_in_their_path():
    text = write_call("hermes", "send_email", {"to": "a", "subject": "b", "body": "c", "cc": ["x", "yz"]})
    assert followed(text.partition('z"]')[0]).path == ("cc", 1)


@pytest.mark.parametrize("text", ["éa", "ße", "日e", "\\xdf", "\u2028]", "go😀", "a b"])
def test_names_keys_and_values_outside_ascii_fit_every_format(text):
    tools = ToolSet.from_openai([tool(text, {text: {"enum": [text, "z"]}}), tool("other")])
    for form in FORMS:
        if fits(form, text):
            whole = write_call(form, text, {text: text})
            assert followed(whole, form, tools=tools).calls_done == 1, form
            at = whole.index(text) if form not in WHOLE_CALL else whole.index('"name"') + 9
            found = offers(whole[:at], form, tools=tools)
            assert any(o.startswith(whole[at : at + 1]) for o in found), (form, found)


@pytest.mark.parametrize("word", ["é", "日", "😀"])
def test_nothing_is_offered_inside_a_character(word):
    tools = ToolSet.from_openai([tool("sort", {"by": {"enum": [word, word + word]}}, ["by"])])
    start = b'{"name": "sort", "arguments": {"by": "'
    for end in range(1, len(word.encode())):
        reader = followed(start + word.encode()[:end], "bare", tools=tools)
        assert reader.continuations() == []
        assert reader.spans() == ""
    reader = followed(start + word.encode(), "bare", tools=tools)
    assert {c.text.rstrip("}") for c in reader.continuations()} == {'"', word + '"'}


def test_choices_that_share_a_part_of_a_character_are_offered_whole():
    tools = ToolSet.from_openai([tool("sort", {"by": {"enum": ["é", "è"]}}, ["by"])])
    found = offers('{"name": "sort", "arguments": {"by": ', "bare", tools=tools)
    assert {o.rstrip("}") for o in found} >= {'"é"', '"è"'}


def test_a_lone_surrogate_among_the_choices_does_no_harm():
    tools = ToolSet.from_openai([tool("sort", {"by": {"enum": ["\ud800", "up"]}, "\ud801": {}})])
    reader = followed('{"name": "sort", "arguments": {', "bare", tools=tools)
    assert all(c.text.encode() for c in reader.continuations())
    reader.advance(b'"by": ')
    assert any(c.text.startswith('"up"') for c in reader.continuations())


@pytest.mark.parametrize("faulty", [True, None, "by", 3])
def test_a_malformed_required_does_no_harm(faulty):
    entry = {"name": "sort", "parameters": {"properties": {"by": {}, "at": True}, "required": faulty}}
    found = offers('{"name": "sort", "arguments": {', "bare", tools=ToolSet.from_openai([entry]))
    assert any(o.startswith('"by": ') for o in found)


# Deviations: the call is followed all the same, and drafting resumes.

RESUMES = {
    "undeclared key": ('{"name": "get_time", "arguments": {"zones": "UTC", ', '"zone": "'),
    "undeclared key of the call": ('{"name": "get_time", "id": 7, ', '"arguments": {'),
    "odd spacing": ('{ "name" :"get_time" ,"arguments" : { "zone" : "UTC', '"}'),
    "odd kind": ('{"name": "get_weather", "arguments": {"days": "3", "hourly": "yes", ', '"city": "'),
    "odd case": ('{"name": "get_weather", "arguments": {"unit": "Celsius", ', '"city": "'),
    "unknown tool": ('{"name": "get_wea7her", ', '"arguments": {'),
    "python constant": ('{"name": "get_weather", "arguments": {"hourly": True, ', '"city": "'),
    "repeated key": ('{"name": "get_time", "arguments": {"zone": "a", "zone": "UTC', '"}'),
}


@pytest.mark.parametrize(("text", "following"), RESUMES.values(), ids=RESUMES)
def test_drafting_resumes_after_a_deviation(text, following):
    assert any(o.replace(" ", "").startswith(following.replace(" ", "")) for o in offers(text)), offers(text)


FOLLOWED = {
    "trailing comma": '<tool_call>\n{"name": "get_time", "arguments": {"zone": "UTC",},}\n</tool_call>',
    "no line breaks": '<tool_call>{"name": "get_time", "arguments": {"zone": "UTC"}}</tool_call>',
    "odd spacing": '<tool_call>\n\n{ "name" :"get_time" ,\t"arguments":{"zone" :"UTC" } }\n\n</tool_call>',
    "unknown tool": '<tool_call>\n{"name": "nobody", "arguments": {"zone": "UTC"}}\n</tool_call>',
    "no arguments": '<tool_call>\n{"name": "get_time"}\n</tool_call>',
    "arguments as text": '<tool_call>\n{"name": "get_time", "arguments": "{\\"zone\\": 1}"}\n</tool_call>',
    "indented": '  <tool_call>\n    {"name": "get_time", "arguments": {}}\n  </tool_call>',
    "windows lines": '<tool_call>\r\n{"name": "get_time", "arguments": {}}\r\n</tool_call>',
    "missing quote": '<tool_call>\n{"name": get_time", "arguments": {}}\n</tool_call>',
    "more keys": '<tool_call>\n{"type": "function", "name": "get_time", "arguments": {}}\n</tool_call>',
}


@pytest.mark.parametrize("text", FOLLOWED.values(), ids=FOLLOWED)
def test_a_call_with_a_deviation_is_followed(text):
    reader = followed("Sure:\n" + text)
    assert (reader.calls_done, reader.state) == (1, OTHER)


BROKEN = {
    "no call": '{"foo": 1}',
    "a call to nobody": '{"name": "Bob", "age": 5}',
    "empty object": "{}",
    "list": "[1, 2]",
    "list of objects": '[{"a": 1}, {"b": 2}]',
    "braces": "{{{",
    "half a tag": "<tool_cal",
    "two tags": "<<tool_call",
    "another fence": "```python\nprint()\n```",
    "a fence of prose": "```\nJust text, {curly}.\n```",
    "a fence of other JSON": '```json\n{"a": [1, 2]}\n```',
    "bytes": b"\xff\xfe{\x00",
    "half a character": b'<tool_call>\n{"a": 1}\xc3',
    "single quotes": "{'name': 'get_time', 'arguments': {}}",
    "missing brace": '<tool_call>\n{"name": "get_time", "arguments": {"zone": "UTC"}\n</tool_call>',
    "wrong bracket": '{"name": "get_time", "arguments": {"zone": "UTC"]}',
    "missing comma": '{"name": "get_time" "arguments": {}}',
    "html": "<b>bold</b> <",
    "empty lines": "\n\n \n",
    "thoughts": "<think>\nI could call {get_time} or <tool_call>.\n</think>\n",
    "a long broken call": '{"name": "get_time", "arguments": {"zone": "' + "x" * 400 + '"}',
    "two fences": "```python\nx\n```\nand\n```\ny\n```",
    "inline code": "`x` and\n`y`",
    "a long name": "[TOOL_CALLS]" + "n" * 400 + "<tool_call>" + "n" * 400,
    "long broken markup": '<tool_call>\n{"name": "get_time", "arguments": {"zone": "' + "x" * 400 + '"]}',
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_drafting_resumes_at_the_call_after_a_broken_one(form, broken):
    data = broken.encode() if isinstance(broken, str) else broken
    data += b"\n" + write_call(form, *WEATHER).encode()
    for reader in (at_once(data, parser=PARSERS[form]), followed(data, parser=PARSERS[form])):
        assert reader.calls_done == 1
        assert reader.continuations()[0].ends


@pytest.mark.parametrize("form", ["hermes", "bare", "array"])
@pytest.mark.parametrize("length", [1, 400])
def test_drafting_resumes_after_a_call_that_is_not_closed(form, length):
    call = write_call("hermes", "get_time", {"zone": "x" * length}).removesuffix("\n</tool_call>")
    for cut in (0, 1):
        data = (call[: len(call) - cut] + "\n" + write_call(form, *WEATHER)).encode()
        for reader in (at_once(data), followed(data)):
            assert reader.calls_done >= 1
            assert reader.continuations()[0].ends


@pytest.mark.parametrize("form", [f for f in FORMS if write_call(f, *WEATHER).startswith(("<", "[TOOL"))])
@pytest.mark.parametrize("before", ["Sure: ", "x<", "<<", "a < b: ", "see [1] ", "[TOOL", "<|"])
def test_a_tag_opens_a_call_in_the_middle_of_a_line(form, before):
    call = write_call(form, *WEATHER)
    assert followed(before + call, parser=PARSERS[form]).calls_done == 1
    reader = automaton(parser=PARSERS[form])
    for chunk in (before, call):
        reader.advance(chunk.encode())
    assert reader.calls_done == 1


@pytest.mark.parametrize("form", ["bare", "array", "fence"])
def test_a_brace_in_the_middle_of_a_line_opens_nothing(form):
    assert followed("Use " + write_call(form, *WEATHER), form).calls_done == 0


def test_an_indented_call_is_followed():
    assert followed("Look:\n  " + write_call("bare", *WEATHER)).calls_done == 1


@pytest.mark.parametrize("form", ["hermes", "bare_parameters", "array"])
def test_a_call_of_another_format_is_followed_inside_a_fence(form):
    assert followed("```json\n" + write_call(form, *WEATHER) + "\n```").calls_done == 1


def test_text_right_behind_a_call_is_text():
    reader = followed(write_call("bare", *WEATHER) + "} and so on " + write_call("hermes", *WEATHER))
    assert reader.calls_done == 2


@pytest.mark.parametrize("mark", [";", ",", "<|start|>", "<|start|>assistant", "[", "`", "<", "{"])
@pytest.mark.parametrize("form", FORMS)
def test_a_mark_alone_after_a_call_does_no_harm(form, mark):
    reader = automaton(parser=PARSERS[form])
    for chunk in (write_call(form, *WEATHER), mark, " ", mark, "\n" + write_call(form, *WEATHER)):
        reader.advance(chunk.encode())
        assert isinstance(reader.continuations(), list)
    assert reader.calls_done == 2


# Nothing takes long.


def test_an_endless_string_stays_a_string():
    reader = automaton()
    reader.advance(b'{"name": "get_time", "arguments": {"zone": "')
    for _ in range(70):
        reader.advance(b"x" * 1000)
        assert len(reader.continuations()) < 20
    reader.advance(b'"}}')
    assert reader.calls_done == 1


@pytest.mark.parametrize("odd", ["\n", "{", "[", "<", "`", '{"a":\n', "```\n", "<tool_call>", " ", "[{", '"'])
def test_odd_text_without_end_is_read_in_time(odd):
    reader = automaton()
    data = (odd * (60_000 // len(odd))).encode()
    reader.advance(data[:20_000])
    for at in range(20_000, len(data), 50):
        reader.advance(data[at : at + 50])
    assert reader.calls_done == 0
    reader.advance(b"\n" + write_call("hermes", *WEATHER).encode())
    assert reader.calls_done == 1
