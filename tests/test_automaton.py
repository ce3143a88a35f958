"""The automaton follows replies byte by byte and offers only what may follow."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.grammars.automaton import MAX_PATHS, State, ToolAutomaton
from sglang_toolspec.grammars.compile import DraftGrammar, forced_text, matcher
from sglang_toolspec.grammars.formats import DIALECTS, dialects_for
from sglang_toolspec.grammars.tools import ToolSet
from tests.toolsets import LEGAL_CALLS, assistant, chunks, grammar, tool, write_call

DIALECT_NAMES = sorted(DIALECTS)
FLAT = {"city": "Oslo, {no}", "days": 31, "unit": "celsius", "hourly": False}
CASES = [pytest.param(name, call, id=f"{name}-{call[0]}") for name in DIALECT_NAMES for call in LEGAL_CALLS]
quick = settings(max_examples=40, deadline=None)


def automaton(*dialects, prior=None):
    names = dialects or [d.name for d in dialects_for("qwen25")]
    return ToolAutomaton(assistant(), [grammar(name) for name in names], prior)


def followed(text, *dialects):
    reader = automaton(*dialects)
    for byte in text.encode() if isinstance(text, str) else text:
        reader.advance(bytes([byte]))
    return reader


def seen(reader):
    return reader.state, reader.tool, reader.path, reader.value_so_far, reader.calls_done, reader.dialect_seen


def offers(text, *dialects):
    return [c.text for c in followed(text, *dialects).continuations()]


def weather(dialect, city="Oslo"):
    return write_call(dialect, "get_weather", {"city": city})


def annotated(dialect, name, arguments):
    """A call of flat arguments in pieces ``(text, state, key)``: what holds after each byte."""
    text = write_call(dialect, name, arguments)
    begin = text.index(f'"{name}"')
    body = text.index("{", begin)
    pieces = [
        (text[:begin], State.OTHER, None),
        (f'"{name}', State.TOOL_NAME, None),
        (text[begin + len(name) + 1 : body], State.OTHER, None),
        ("{", State.PARAMETER_NAME, None),
    ]
    for i, (key, value) in enumerate(arguments.items()):
        space = "\n    " if dialect == "fence_pretty" else " " * bool(i)
        pieces += [
            ("," * bool(i) + space + f'"{key}', State.PARAMETER_NAME, None),
            ('"', State.OTHER, None),
            (":" if dialect == "tag_forced_tight" else ": ", State.PARAMETER_VALUE, key),
            (json.dumps(value).removesuffix('"'), State.PARAMETER_VALUE, key),
            ('"' * isinstance(value, str), State.OTHER, None),
        ]
    done = "".join(piece for piece, _, _ in pieces)
    assert text.startswith(done)
    return [*pieces, (text[len(done) :], State.OTHER, None)]


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_the_state_is_right_after_every_byte_of_a_call(dialect):
    reader = automaton()
    reader.advance(b"Let me look.\n")
    for piece, state, key in annotated(dialect, "get_weather", FLAT):
        for i in range(len(piece)):
            reader.advance(piece[i].encode())
            assert reader.state is state, piece[: i + 1]
            if key:
                assert reader.path[1:] == (key,)
                assert reader.value_so_far.decode() == piece[: i + 1].lstrip(': "')
                assert reader.tool == "get_weather"
            else:
                assert reader.value_so_far == b""
    assert (reader.calls_done, reader.dialect_seen) == (1, dialect)


@pytest.mark.parametrize(("dialect", "call"), CASES)
def test_every_tool_is_followed_through_text_and_a_second_call(dialect, call):
    written = write_call(dialect, *call)
    reader = followed("I look: it <b>is</b>\n" + written[:-1])
    assert (reader.calls_done, reader.tool) == (0, call[0])
    reader.advance(written[-1:].encode())
    assert (reader.calls_done, reader.state, reader.tool, reader.path) == (1, State.OTHER, None, ())
    reader.advance(f"\n{written}\nDone.".encode())
    assert (reader.calls_done, reader.state) == (2, State.OTHER)
    assert reader.continuations() == []


@quick
@given(st.sampled_from(DIALECT_NAMES), st.data())
def test_chunks_change_nothing(dialect, data):
    calls = data.draw(st.lists(st.sampled_from(LEGAL_CALLS), min_size=1, max_size=3))
    noise = data.draw(st.sampled_from(["", "text\n", "<b>", "```python\nx\n```\n", "{x}\n", "[1]\n", "{{\n"]))
    text = (noise + "\n".join(write_call(dialect, *c) for c in calls) + "\nBye").encode()
    text = text[: data.draw(st.integers(0, len(text)))]
    reader = automaton()
    for chunk in chunks(text, data.draw(st.randoms(use_true_random=False)), longest=60):
        reader.advance(chunk)
    by_byte = followed(text)
    assert seen(reader) == seen(by_byte)
    assert reader.continuations() == by_byte.continuations()


# What it offers.


def structural(dialect, name, arguments):
    """The text so far and the text that follows, wherever the call's shape decides what follows."""
    free = {"city", "days"}
    text = ""
    pieces = annotated(dialect, name, arguments)
    whole = "".join(piece for piece, _, _ in pieces)
    for piece, state, key in pieces:
        for byte in piece:
            text += byte
            inside = state is State.PARAMETER_VALUE and key in free and not text.endswith((":", ": "))
            if len(text) < len(whole) and not inside:
                yield text, whole[len(text) :]


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_what_the_shape_decides_is_offered_everywhere(dialect):
    for text, following in structural(dialect, "get_weather", FLAT):
        if not following.startswith("31"):  # digits are the model's
            offered = offers(text, dialect)
            assert any(o and o[0] == following[0] for o in offered), text


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@pytest.mark.parametrize("name", ["get_weather", "send_email", "book_table", "get_time"])
def test_a_reply_starts_with_a_draft_up_to_the_first_open_value(dialect, name):
    first = next(iter(assistant().by_name[name].properties))
    skeleton = write_call(dialect, name, {first: "~"}).partition("~")[0]
    assert skeleton in offers("", dialect)


def test_a_call_without_arguments_is_offered_whole():
    assert write_call("tag", "list_alarms", {}) in offers("", "tag")
    (whole,) = (c for c in automaton("tag").continuations() if "list_alarms" in c.text)
    assert whole.ends


def test_choices_of_an_enum_come_in_declared_order():
    text = weather("bare").replace('"}}', '", "unit": "')
    starts = [o.split('"')[0] for o in offers(text, "bare") if o]
    assert list(dict.fromkeys(starts)) == ["celsius", "fahrenheit", "kelvin"]


def test_a_begun_choice_is_completed():
    text = weather("bare").replace('"}}', '", "unit": "fa')
    assert all(o.startswith('hrenheit"') for o in offers(text, "bare"))


def test_booleans_are_offered():
    text = weather("bare").replace('"}}', '", "hourly": ')
    assert {o.rstrip("}") for o in offers(text, "bare")} >= {"true", "false"}


def test_an_open_string_may_end_where_it_stands():
    assert any(o.startswith('"}}') for o in offers(weather("bare").removesuffix('"}}'), "bare"))


def test_required_keys_come_before_optional_ones():
    text = '{"name": "book_table", "arguments": {'
    first, *_ = offers(text, "bare")
    assert first.startswith('"restaurant": "')


def test_written_keys_are_not_offered_again():
    text = '{"name": "get_weather", "arguments": {"city": "Oslo", '
    assert not any(o.startswith('"city"') for o in offers(text, "bare"))


def test_a_reply_that_started_with_text_is_offered_nothing():
    assert offers("The weather is fine") == []


def test_an_empty_tool_set_offers_nothing():
    reader = ToolAutomaton(ToolSet.from_openai([]), [])
    assert reader.continuations() == []
    reader.advance(b'{"name": "x"}')
    assert seen(reader) == (State.OTHER, None, (), b"", 0, None)


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_after_a_call_the_reply_may_end_or_call_again(dialect):
    best, *more = followed(weather(dialect), dialect).continuations()
    assert (best.text, best.ends) == ("", True)
    assert any(c.text.startswith("\n" + weather(dialect).partition("name")[0]) for c in more)


@pytest.mark.parametrize("between", ["\n", "\n\n", " "])
def test_space_after_a_call_is_not_offered_again(between):
    second = [o for o in offers(weather("tag") + between, "tag") if o]
    assert second
    assert all(o.startswith("<tool_call>") for o in second)


def test_text_after_a_call_ends_its_offers():
    assert offers(weather("tag") + "\nThat is all") == []


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_one_array_holds_any_number_of_calls(count):
    call = weather("array")[1:-1]
    text = "[" + ", ".join([call] * count)
    assert {o[:2] for o in offers(text, "array")} >= {"]", ", "}
    reader = followed(text + "]")
    assert (reader.calls_done, reader.state) == (1, State.OTHER)


def test_the_tool_of_an_array_is_that_of_its_last_call():
    text = "[" + weather("array")[1:-1] + ', {"name": "get_time", "parameters": {"zone": "'
    reader = followed(text)
    assert (reader.tool, reader.path) == ("get_time", ("parameters", "zone"))
    assert reader.state is State.PARAMETER_VALUE


def test_the_dialect_of_the_last_call_is_offered_first():
    texts = offers(weather("bare_parameters"))
    assert next(t for t in texts if "get_weather" in t).startswith('\n{"name": "get_weather", "parameters"')


def test_more_calls_make_their_dialect_no_less_likely():
    def weight(calls):
        found = followed("\n".join([weather("bare")] * calls)).continuations()
        return max(c.weight for c in found if '"arguments"' in c.text)

    assert weight(3) >= weight(1)


def test_a_prior_decides_what_is_offered_first():
    offered = automaton(prior={"fence": 100.0}).continuations()
    assert offered[0].text.startswith("```json\n{")
    assert not offered[0].text.startswith("```json\n{\n")


def test_the_list_of_grammars_stays_the_callers():
    grammars = [grammar(name) for name in ("tag", "bare")]
    reader = ToolAutomaton(assistant(), grammars)
    reader.advance(weather("bare").encode())
    assert reader.calls_done == 1
    assert [g.dialect.name for g in grammars] == ["tag", "bare"]


# The automaton and xgrammar agree.


def is_legal(dialect, text):
    both = (grammar(dialect).ordered, grammar(dialect).any_order)
    return any(matcher(compiled).accept_string(text.encode()) for compiled in both)


@quick
@given(st.sampled_from(DIALECT_NAMES), st.sampled_from(LEGAL_CALLS), st.booleans(), st.data())
def test_every_offer_is_legal_and_begins_with_what_is_forced(dialect, call, reverse, data):
    name, arguments = call
    arguments = dict(reversed(arguments.items())) if reverse else arguments
    whole = write_call(dialect, name, arguments)
    text = whole[: data.draw(st.integers(0, len(whole) - 1))]
    offered = offers(text, dialect)
    assert all(is_legal(dialect, text + o) for o in offered)
    ordered = matcher(grammar(dialect).ordered)
    if ordered.accept_string(text.encode()):
        forced = forced_text(ordered)
        assert all(o.startswith(forced) for o in offered)
        assert offered or not forced


@pytest.mark.parametrize(("dialect", "call"), CASES)
def test_the_writers_calls_are_legal(dialect, call):
    compiled = matcher(grammar(dialect).ordered)
    assert compiled.accept_string(write_call(dialect, *call).encode())
    assert compiled.is_completed()


# Calls that are unusual but legal.


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_keys_may_come_in_another_order(dialect):
    arguments = dict(reversed(FLAT.items()))
    reader = followed(write_call(dialect, "get_weather", arguments))
    assert (reader.calls_done, reader.dialect_seen) == (1, dialect)


@pytest.mark.parametrize("dialect", ["tag", "bare", "fence", "array"])
def test_arguments_may_come_before_the_name(dialect):
    key = "parameters" if dialect == "array" else "arguments"
    head = f'{{"{key}": {{"zone": "UTC"}}'
    text = weather(dialect).partition("{")[0] + head
    reader = followed(text + ', "na')
    assert (reader.state, reader.tool) == (State.OTHER, None)
    reader.advance(b'me": "get_t')
    assert reader.state is State.TOOL_NAME
    assert {c.text for c in reader.continuations()} >= {'ime"}' + weather(dialect).partition("}}")[2]}


def test_a_parameter_called_name_does_not_name_the_tool():
    reader = followed('{"name": "add_contact", "arguments": {"name": "get_time", "arguments": {"name": "x')
    assert (reader.tool, reader.state) == ("add_contact", State.PARAMETER_VALUE)
    assert reader.path == ("arguments", "arguments", "name")


def test_a_value_that_reads_name_does_not_name_the_tool():
    reader = followed('{"name": "get_time", "arguments": {"zone": "name"')
    assert reader.tool == "get_time"


def test_odd_names_and_keys_are_read_as_themselves():
    reader = followed(write_call("tag", 'home.lights "é"', {'le"vel': 7}).partition("7")[0])
    assert reader.tool == 'home.lights "é"'
    assert reader.path == ("arguments", 'le"vel')


def test_braces_and_tags_in_a_string_end_nothing():
    reader = followed('<tool_call>\n{"name": "get_time", "arguments": {"zone": "}}\\n</tool_call>{[')
    assert (reader.calls_done, reader.state) == (0, State.PARAMETER_VALUE)
    reader.advance(b'"}}\n</tool_call>')
    assert reader.calls_done == 1


def test_nested_objects_keep_their_whole_path():
    reader = followed('{"name": "draw_line", "arguments": {"start": {"x": 1, "y": 2')
    assert (reader.path, reader.value_so_far) == (("arguments", "start", "y"), b"2")


def test_array_items_have_an_index_in_their_path():
    text = write_call("tag", "send_email", {"to": "a", "subject": "b", "body": "c", "cc": ["x", "yz"]})
    reader = followed(text.partition('z"]')[0])
    assert reader.path == ("arguments", "cc", 1)


def test_choices_that_share_a_part_of_a_character_are_offered():
    tools = ToolSet.from_openai([tool("sort", {"by": {"enum": ["é", "è"]}}, ["by"])])
    reader = ToolAutomaton(tools, [DraftGrammar(tools, DIALECTS["bare"])])
    reader.advance(b'{"name": "sort", "arguments": {"by": ')
    assert {c.text for c in reader.continuations()} == {'"', '"é"}}', '"è"}}'}
    reader.advance(b'"\xc3')
    assert reader.continuations() == []
    reader.advance("é".encode()[1:])
    assert [c.text for c in reader.continuations()] == ['"}}']


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
def test_a_name_outside_the_basic_plane_is_offered(dialect):
    tools = ToolSet.from_openai([tool("go😀")])
    reader = ToolAutomaton(tools, [DraftGrammar(tools, DIALECTS[dialect])])
    assert write_call(dialect, "go😀", {}) in [c.text for c in reader.continuations()]


def test_a_lone_surrogate_among_the_choices_does_no_harm():
    tools = ToolSet.from_openai([tool("sort", {"by": {"enum": ["\ud800", "up"]}, "\ud801": {}})])
    reader = ToolAutomaton(tools, [DraftGrammar(tools, DIALECTS["bare"])])
    reader.advance(b'{"name": "sort", "arguments": {')
    assert isinstance(reader.continuations(), list)
    reader.advance(b'"by": ')
    assert any(c.text.startswith('"up"') for c in reader.continuations())


@pytest.mark.parametrize("faulty", [True, None, "by", 3])
def test_a_malformed_required_does_no_harm(faulty):
    entry = {"name": "sort", "parameters": {"properties": {"by": {}, "at": True}, "required": faulty}}
    tools = ToolSet.from_openai([entry])
    reader = ToolAutomaton(tools, [DraftGrammar(tools, DIALECTS["bare"])])
    reader.advance(b'{"name": "sort", "arguments": {')
    assert any(c.text.startswith('"by": ') for c in reader.continuations())


# Calls and text that are not legal.

BROKEN = {
    "unknown tool": '{"name": "get_wea7her", "arguments": {}}',
    "unknown key": '{"name": "get_time", "arguments": {"zones": "UTC"}}',
    "no call": '{"foo": 1}',
    "empty object": "{}",
    "list": "[1, 2]",
    "braces": "{{{",
    "half a tag": "<tool_cal",
    "two tags": "<<tool_call",
    "another fence": "```python\nprint()\n```",
    "bytes": b"\xff\xfe{\x00",
    "half a character": b'{"name": "get_time", "arguments": {"zone": "\xc3',
    "cut inside a string": '{"name": "get_time", "arguments": {"zone": "U',
    "bad escape": '{"name": "get_time", "arguments": {"zone": "\\x',
    "html": "<b>bold</b> <",
    "empty lines": "\n\n \n",
}


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_drafting_resumes_at_the_call_after_a_broken_one(dialect, broken):
    data = broken.encode() if isinstance(broken, str) else broken
    data += b"\n" + weather(dialect).encode()
    at_once = automaton()
    at_once.advance(data)
    for reader in (at_once, followed(data)):
        assert (reader.calls_done, reader.dialect_seen) == (1, dialect)


def test_a_tag_opens_a_call_in_the_middle_of_a_line():
    for before in ("Sure: ", "x<", "<<", "a < b: "):
        reader = followed(before + weather("tag"))
        assert reader.calls_done == 1, before
    reader = automaton()
    for chunk in ("Sure: ", weather("tag")):
        reader.advance(chunk.encode())
    assert reader.calls_done == 1


def test_a_brace_in_the_middle_of_a_line_opens_nothing():
    assert followed("Use " + weather("bare")).calls_done == 0


def test_an_indented_call_is_followed():
    assert followed("Look:\n  " + weather("bare")).calls_done == 1


@pytest.mark.parametrize("dialect", ["tag", "bare_parameters", "array"])
def test_a_call_of_another_dialect_is_followed_inside_a_fence(dialect):
    reader = followed("```json\n" + weather(dialect) + "\n```")
    assert (reader.calls_done, reader.dialect_seen) == (1, dialect)


def test_text_right_behind_a_call_is_text():
    reader = automaton()
    reader.advance((weather("bare") + "} and so on " + weather("tag")).encode())
    assert reader.calls_done == 2


@pytest.mark.parametrize("text", ["éa", "ße", "日e", "\\xdf", "\u2028]"])
def test_names_keys_and_values_outside_ascii_fit_every_dialect(text):
    tools = ToolSet.from_openai([tool(text, {text: {"enum": [text, "z"]}}), tool("other")])
    for name, dialect in DIALECTS.items():
        reader = ToolAutomaton(tools, [DraftGrammar(tools, dialect)])
        reader.advance(write_call(name, text, {text: text}).encode())
        assert reader.calls_done == 1, name


def test_a_call_that_never_ends_is_given_up():
    reader = followed('{"name": "get_time", "arguments": {"zone": "')
    for _ in range(70):
        reader.advance(b"x" * 1000)
    assert (reader.state, reader.tool) == (State.OTHER, None)


@settings(quick, max_examples=20)
@given(st.data())
def test_nothing_raises_and_offers_are_well_formed(data):
    dialect = data.draw(st.sampled_from(DIALECT_NAMES))
    whole = write_call(dialect, *data.draw(st.sampled_from(LEGAL_CALLS))).encode()
    head = whole[: data.draw(st.integers(0, len(whole)))]
    garbage = data.draw(st.binary(max_size=12) | st.text('{}[]",:<`\n abc', max_size=12).map(str.encode))
    reader = automaton()
    for chunk in chunks(head + garbage + whole, data.draw(st.randoms(use_true_random=False))):
        reader.advance(chunk)
        weights = [c.weight for c in reader.continuations()]
        assert len(weights) <= MAX_PATHS
        assert weights == sorted(weights, reverse=True)
        assert all(0 <= weight <= 1 for weight in weights)
