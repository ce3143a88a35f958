"""The automaton follows replies byte by byte and offers only what may follow."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.formats import FORMATS, formats_for
from sglang_toolspec.grammars.growth import MAX_DRAFTS, MAX_TEXT
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.tools import ToolSet
from tests.callpieces import MARKUPS, NAME, OTHER, PARAMETER, VALUE, WHOLE_CALL, call_pieces
from tests.jsontexts import SEEDS
from tests.toolsets import (
    ASSISTANT,
    DRAW_LINE,
    GET_WEATHER,
    LAYOUTS,
    LEGAL_CALLS,
    LIST_ALARMS,
    PARSERS,
    SHARED_BLOCK,
    chunks,
    dumps,
    fits,
    shapes,
    tool,
    write_call,
    write_calls,
)

FORMS = sorted(FORMATS)
WEATHER = ("get_weather", {"city": "Oslo"})
FULL = ("get_weather", {"city": "Oslo, {no}", "days": 31, "unit": "celsius", "hourly": False})
NATIVE = {"fence": "pretty", "fence_plain": "pretty", "harmony": "compact"}
"""The layout in which a format's first call is expected, where it is not spaced."""
quick = settings(max_examples=40, deadline=None)


def automaton(*forms, parser="qwen25", habits=None, tools=None):
    formats = tuple(FORMATS[form] for form in forms) or formats_for(parser)
    return ToolAutomaton(shapes() if tools is None else CallShapes(tools), formats, habits)


def followed(text, *forms, **more):
    reader = automaton(*forms, **more)
    for byte in text.encode() if isinstance(text, str) else text:
        reader.advance(bytes([byte]))
    return reader


def at_once(text, *forms, **more):
    reader = automaton(*forms, **more)
    reader.advance(text if isinstance(text, bytes) else text.encode())
    return reader


def seen(reader):
    """All that can be asked."""
    return (
        reader.state, reader.tool, reader.path, reader.value_so_far, reader.in_open_value,
        reader.calls_done, reader.spans(), reader.continuations(),
    )  # fmt: skip


def offers(text, *forms, **more):
    return [c.text for c in followed(text, *forms, **more).continuations()]


# Following.


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", FORMS)
def test_the_state_is_right_after_every_character_of_a_call(form, layout):
    for name, arguments in LEGAL_CALLS:
        if not fits(form, name):
            continue
        reader = automaton(form)
        for text, state, path in call_pieces(form, name, arguments, layout):
            for char in text:
                reader.advance(char.encode())
                assert reader.state is state, text
                if state in (PARAMETER, VALUE):
                    assert reader.tool == name
                if state is VALUE:
                    assert reader.path == path
                else:
                    assert (reader.value_so_far, reader.in_open_value) == ("", False)
        assert (reader.calls_done, reader.state, reader.tool, reader.path) == (1, OTHER, None, ())


@pytest.mark.parametrize("form", FORMS)
def test_the_value_so_far_is_as_it_is_written(form):
    reader = automaton(form)
    for text, state, _ in call_pieces(form, "get_time", {"zone": "Ünter"}):
        reader.advance(text.encode())
        if state is VALUE and "nter" in text:
            assert reader.value_so_far == "Ünter"
            assert reader.in_open_value


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", FORMS)
def test_calls_are_followed_among_all_formats_of_a_parser(form, layout):
    for calls in (LEGAL_CALLS[:2], LEGAL_CALLS[2:5], [LEGAL_CALLS[5]] * 3):
        text = write_calls(form, calls, layout)
        reader = followed("I look: it <b>is</b>\n" + text[:-1], parser=PARSERS[form])
        assert reader.calls_done == (0 if form in SHARED_BLOCK else len(calls) - 1)
        assert reader.point is not None
        reader.advance(text[-1:].encode())
        assert (reader.calls_done, reader.state, reader.tool, reader.path) == (len(calls), OTHER, None, ())
        reader.advance(b"\nDone.")
        assert (reader.calls_done, reader.state) == (len(calls), OTHER)
        assert reader.continuations() == []


@pytest.mark.parametrize("form", FORMS)
def test_calls_with_text_between_are_followed(form):
    call = write_call(form, *WEATHER)
    reader = followed(f"First\n{call}\nThen, <i>once</i> more:\n{call}", parser=PARSERS[form])
    assert reader.calls_done == 2


CALLS = st.lists(st.sampled_from(LEGAL_CALLS[:7]), min_size=1, max_size=3)
NOISE = st.sampled_from(
    ["", "text\n", "<b>", "```python\nx\n```\n", "{x}\n", "[1]\n", "{{\n", "[link](x) ",
     "<think>\nhm {\n</think>\n", '{"a": 1}\n', ";", " ", "\n\n", "日本\n", "[TOOL",
     "<tool_call>\n<tool_call>\n"]
)  # fmt: skip


@quick
@given(st.sampled_from(FORMS), CALLS, NOISE, NOISE, SEEDS)
def test_chunks_change_nothing(form, calls, before, after, seed):
    random = Random(seed)
    text = (before + write_calls(form, calls, random.choice(list(LAYOUTS))) + after + "\nBye").encode()
    text = text[: random.randint(0, len(text))]
    in_chunks = automaton(parser=PARSERS[form])
    for chunk in chunks(text, random, longest=60):
        in_chunks.advance(chunk)
    by_byte = followed(text, parser=PARSERS[form])
    assert seen(in_chunks) == seen(by_byte)
    assert seen(at_once(text, parser=PARSERS[form])) == seen(by_byte)


GARBAGE = st.binary(max_size=12) | st.text('{}[]",:<`|;>\n abcTOL_', max_size=16).map(str.encode)


@quick
@given(st.sampled_from(FORMS), st.sampled_from(LEGAL_CALLS[:7]), GARBAGE, SEEDS)
def test_nothing_raises_and_offers_are_well_formed(form, call, garbage, seed):
    random = Random(seed)
    whole = write_call(form, *call).encode()
    at = random.randint(0, len(whole))
    reader, by_byte = automaton(parser=PARSERS[form]), automaton(parser=PARSERS[form])
    for chunk in chunks(whole[:at] + garbage + whole[at:] + b"\n" + whole, random):
        reader.advance(chunk)
        for byte in chunk:
            by_byte.advance(bytes([byte]))
        found = reader.continuations()
        assert found == by_byte.continuations()
        assert len(found) <= MAX_DRAFTS + 1
        assert all(0 < c.weight <= 1 and len(c.text) <= MAX_TEXT + 1 for c in found)
        weights = [c.weight for c in found if c.text]
        assert weights == sorted(weights, reverse=True)
        assert all(0 <= c.weight <= 1 for c in reader.branches())
        assert len(reader.spans()) <= 2 * MAX_TEXT


# What it offers.


@quick
@given(st.sampled_from(FORMS), st.sampled_from(LEGAL_CALLS[:7]), SEEDS)
def test_every_offer_leads_on_in_a_call(form, call, seed):
    random = Random(seed)
    text = write_call(form, *call, random.choice(list(LAYOUTS)))
    text = text[: random.randint(0, len(text))]
    reader = at_once(text, parser=PARSERS[form])
    for offer in reader.continuations():
        there = at_once(text + offer.text, parser=PARSERS[form])
        assert there.point is not None or there.calls_done > 0
        if offer.ends:
            assert there.point is None
            assert there.calls_done > 0
    if sure := reader.spans():
        assert at_once(text + sure, parser=PARSERS[form]).point or reader.calls_done == 0


NESTED, EMPTY = ("draw_line", {"start": {"x": -1, "y": 2}}), ("list_alarms", {})


@pytest.mark.parametrize(
    ("layout", "calls"), [("spaced", [FULL]), ("pretty", [NESTED, EMPTY]), ("compact", [FULL])]
)
@pytest.mark.parametrize("form", FORMS)
def test_what_the_schema_decides_is_offered_everywhere(form, layout, calls):
    habits, tools = Habits(), ToolSet.from_openai([GET_WEATHER, DRAW_LINE, LIST_ALARMS])
    followed(write_call(form, *FULL, layout), form, habits=habits)  # so that the layout is known
    for name, arguments in calls:
        reader, text = automaton(form, habits=habits, tools=tools), ""
        whole = write_call(form, name, arguments, layout)
        for piece, _, _ in call_pieces(form, name, arguments, layout):
            for char in piece:
                reader.advance(char.encode())
                text += char
                following = whole[len(text) :]
                if following and not reader.in_open_value and following[0] not in "-23":
                    found = [c.text for c in reader.continuations()]
                    assert any(o and o[0] == following[0] for o in found), (text, found)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["get_weather", "send_email", "book_table", "get_time"])
def test_a_reply_starts_with_a_draft_up_to_the_first_open_value(form, name):
    tools = ToolSet.from_openai([entry for entry in ASSISTANT if entry["function"]["name"] == name])
    first = next(iter(tools.tools[0].properties))
    skeleton = write_call(form, name, {first: "~"}, NATIVE.get(form, "spaced")).partition("~")[0]
    assert skeleton in offers("", form, tools=tools)


@pytest.mark.parametrize("form", FORMS)
def test_a_call_without_arguments_is_offered_whole(form):
    text = write_call(form, "list_alarms", {}, NATIVE.get(form, "spaced"))
    at = text.index("alarms")
    assert any(text[at:].startswith(c.text) and c.ends for c in followed(text[:at], form).continuations())


def test_what_is_certain_is_one_text():
    start = '<tool_call>\n{"name": "get_ti'
    assert followed(start).spans() == 'me", "arguments": {"zone": "'
    assert followed("<tool").spans() == '_call>\n{"name": "'
    assert followed(start + 'me", "arguments": {"zone": "UTC').spans() == ""
    assert followed(start + 'me", "arguments": {"zone": "UTC"').spans() == "}}\n</tool_call>"
    assert followed('<tool_call>\n{"name": "list_alarms", "arguments": {}').spans() == "}\n</tool_call>"


def test_the_choices_at_a_place_are_its_branches():
    reader = followed('<tool_call>\n{"name": "get_weather", "arguments": {"unit": ')
    assert [c.text for c in reader.branches()] == ['"celsius"', '"fahrenheit"', '"kelvin"']
    assert [c.text for c in followed("Hello").branches()] == []


def test_a_begun_choice_is_completed():
    text = '{"name": "get_weather", "arguments": {"city": "Oslo", "unit": "fa'
    assert all(o.startswith('hrenheit"') for o in offers(text))


def test_booleans_are_offered():
    text = '{"name": "get_weather", "arguments": {"city": "Oslo", "hourly": '
    assert {o.partition("}")[0] for o in offers(text)} >= {"true", "false"}


def test_an_open_string_may_end_where_it_stands():
    assert any(o.startswith('"}}') for o in offers('{"name": "get_time", "arguments": {"zone": "UTC'))


def test_required_keys_come_before_optional_ones():
    first, *_ = offers('{"name": "book_table", "arguments": {')
    assert first.startswith('"restaurant": "')


def test_written_keys_are_not_offered_again():
    text = '{"name": "get_weather", "arguments": {"city": "Oslo", '
    assert not any(o.startswith('"city"') for o in offers(text))


def test_text_is_offered_nothing():
    assert offers("The weather is fine") == []
    assert offers("The weather is\n") == []


@pytest.mark.parametrize("space", ["\n", "\n\n", " "])
def test_white_space_before_a_reply_changes_nothing(space):
    assert offers(space) == offers("")


def test_an_empty_tool_set_offers_no_name():
    reader = automaton(tools=ToolSet.from_openai([]))
    reader.advance(b'{"name": "')
    assert all("get" not in c.text for c in reader.continuations())
    reader.advance(b'x"}')
    assert (reader.state, reader.calls_done) == (OTHER, 0)


@pytest.mark.parametrize("form", FORMS)
def test_after_a_call_the_reply_may_end_or_call_again(form):
    best, *more = followed(write_call(form, *WEATHER), form).continuations()
    assert (best.text, best.ends) == ("", True)
    assert any(c.text for c in more)
    two = write_calls(form, [WEATHER, WEATHER])
    if form not in SHARED_BLOCK:
        again = two[len(write_call(form, *WEATHER)) :].partition("get_weather")[0]
        assert any(c.text.startswith(again[: len(c.text)]) for c in more), more


@pytest.mark.parametrize("between", ["\n", "\n\n", " ", "\n" * 300])
def test_space_after_a_call_is_not_offered_again(between):
    second = [o for o in offers(write_call("hermes", *WEATHER) + between, "hermes") if o]
    assert second
    assert all(o.startswith("<tool_call>") for o in second)


def test_text_after_a_call_ends_its_offers():
    assert offers(write_call("hermes", *WEATHER) + "\nThat is all", "hermes") == []


@pytest.mark.parametrize("form", SHARED_BLOCK)
def test_within_a_block_another_call_or_its_end_is_offered(form):
    two = write_calls(form, [WEATHER, WEATHER])
    closing = FORMATS[form].close
    one = write_call(form, *WEATHER).removesuffix(closing)
    found = offers(one, form)
    assert closing in found
    again = two[len(one) :].partition("get_weather")[0]
    assert any(o.startswith(again[: len(o)]) for o in found if o != closing)


def test_the_tool_of_a_block_is_that_of_its_last_call():
    text = write_call("array", *WEATHER)[:-1] + ', {"name": "get_time", "parameters": {"zone": "'
    reader = followed(text)
    assert (reader.tool, reader.path, reader.state) == ("get_time", ("zone",), VALUE)


def test_the_format_of_the_last_call_is_offered_first():
    text = write_call("bare_parameters", *WEATHER)
    first = next(o for o in offers(text) if o)
    assert first.startswith('\n{"name": "')
    assert followed(text + "\n").continuations()[1].text.startswith('{"name": "')


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


# What users of this field ran into.


def test_forced_text_never_commits_a_choice_between_keys_that_share_a_start():
    """``order`` is common to both keys, but only the model knows which one it will write."""
    tools = ToolSet.from_openai(
        [tool("find", {"orderId": {"type": "string"}, "orderName": {"type": "string"}})]
    )
    start = '{"name": "find", "arguments": '
    for begun in ("{", '{"', '{"ord'):
        text = start + begun
        reader = followed(text, "bare", tools=tools)
        assert not any(key in text + reader.spans() for key in ("orderId", "orderName"))
        found = [c.text for c in reader.continuations()]
        for key in ("orderId", "orderName"):
            rest = f'{{"{key}": "'[len(begun) :]
            assert any(o.startswith(rest) for o in found), (text, found)


@pytest.mark.parametrize("form", FORMS)
def test_two_tools_leave_a_draft_wherever_text_is_forced(form):
    """No single token is legal at the name, but all before it is forced."""
    tools = ToolSet.from_openai([tool("alpha", {"a": {}}), tool("beta", {"b": {}})])
    head = write_call(form, "alpha", {}, NATIVE.get(form, "spaced")).partition("alpha")[0]
    reader = followed("", form, tools=tools)
    assert any(c.text.startswith(head) for c in reader.continuations())
    assert reader.spans().startswith(head)
    assert {c.text[:1] for c in followed(head, form, tools=tools).continuations() if c.text} >= {"a", "b"}


@pytest.mark.parametrize("space", [" ", "\n", "\t", "\r\n"])
@pytest.mark.parametrize("start", ["", '{"name":', '{"name": "get_time", "arguments": {', "<tool_call>"])
def test_white_space_is_never_drafted_without_end(start, space):
    """A model that loops on white space gets no draft of more of it."""
    reader = followed(start + space * 200)
    for offer in reader.continuations():
        assert offer.text.strip() or offer.ends
        assert len(offer.text) - len(offer.text.lstrip()) < 8


def test_a_draft_stops_before_free_text():
    tools = ToolSet.from_openai(
        [tool("area", {"base": {"type": "integer"}, "height": {"type": "integer"}}, ["base", "height"])]
    )
    reader = followed('<tool_call>\n{"name": "area", "arguments": {', tools=tools)
    assert reader.spans() == '"base": '
    assert reader.continuations()[0].text == '"base": '
