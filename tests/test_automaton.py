"""The automaton follows replies byte by byte and offers only what may follow."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.formats import FORMATS
from sglang_toolspec.grammars.growth import MAX_DRAFTS, MAX_TEXT
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.tools import ToolSet
from tests.callpieces import OTHER, PARAMETER, VALUE, call_pieces
from tests.following import FORMS, FULL, NATIVE, WEATHER, at_once, automaton, followed, offers, seen
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
    fits,
    write_call,
    write_calls,
)

quick = settings(max_examples=40, deadline=None)


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
    for call in (FULL, NESTED):  # so that the layout is known
        followed(write_call(form, *call, layout), form, habits=habits)
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


def test_an_item_leaves_out_the_lists_that_cannot_hold_it():
    items = ({"type": "boolean"}, {"enum": ["on"]})
    lists = {"anyOf": [{"type": "array", "items": of} for of in items]}
    raw = {"type": "object", "properties": {"a": lists}, "required": ["a"]}
    tools = ToolSet.from_openai([{"name": "f", "parameters": raw}])
    begun = '<tool_call>\n{"name": "f", "arguments": {"a": ['

    assert any(o.startswith('"on"') for o in offers(begun, "hermes", tools=tools))
    assert not any('"on"' in o for o in offers(begun + "true, ", "hermes", tools=tools))
    assert all("true" not in o for o in offers(begun + '"on", ', "hermes", tools=tools))
