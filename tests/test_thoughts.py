"""What a reasoning model thinks is no call, until it calls."""

import pytest

from sglang_toolspec.grammars.formats import THOUGHTS, open_thought
from tests.callpieces import OTHER
from tests.following import FORMS, WEATHER, at_once, automaton, followed, seen
from tests.toolsets import PARSERS, write_call

MARKS = [(form.call, closing) for form, closing in THOUGHTS.items()]
TAGGED = [form for form in FORMS if write_call(form, *WEATHER).startswith(("<", "[TOOL"))]
LOOK_ALIKE = [
    "\n{", '\n{"name": ', '\n{"name": "get_weather", "arguments": {', "\n[", '\n```json\n{"name": "',
    "<tool_call>", '<tool_call>\n{"name": "', "[TOOL_CALLS]", "a <tool_call> is what I need", "\n```\n{",
]  # fmt: skip


@pytest.mark.parametrize("text", LOOK_ALIKE)
@pytest.mark.parametrize(("opening", "_closing"), MARKS)
def test_nothing_is_offered_where_a_thought_looks_like_a_call(opening, _closing, text):
    reader = followed(f"{opening}\nThe user wants the weather.{text}")
    assert reader.continuations() == reader.branches() == []
    assert (reader.spans(), reader.point, reader.state) == ("", None, OTHER)


@pytest.mark.parametrize("text", ["", *LOOK_ALIKE, "<think>", "<b>", "```", "</thin", '{"x": "<'])
@pytest.mark.parametrize("form", FORMS)
def test_a_call_begins_right_after_a_thought(form, text):
    opening, closing = MARKS[0]
    thought = f"{opening}\nHm.{text}{closing}"
    reader, call = followed(thought, parser=PARSERS[form]), write_call(form, *WEATHER)
    assert [o.text for o in reader.continuations()] == [
        o.text for o in automaton(parser=PARSERS[form]).continuations()
    ]
    reader.advance(b"\n\n" + call.encode())
    assert reader.calls_done == 1
    assert reader.continuations()[0].ends


@pytest.mark.parametrize(("opening", "closing"), MARKS)
@pytest.mark.parametrize("form", FORMS)
def test_thoughts_may_stand_between_calls(form, opening, closing):
    call = write_call(form, *WEATHER)
    thought = f'\n{opening}Now {{"name": "get_time", "arguments": {{"zone": {closing}\n'
    reader = followed(call + thought + call, parser=PARSERS[form])
    assert reader.calls_done == 2


@pytest.mark.parametrize("form", TAGGED)
def test_a_call_within_a_thought_is_drafted_once_it_names_a_tool(form):
    """Some models call without having closed their thought."""
    call = write_call(form, "get_weather", {"city": "Oslo", "days": 3})
    at = call.index("days")
    reader = followed(f"<think>\nI call it.\n{call[:at]}", parser=PARSERS[form])
    assert any(c.text.startswith("days") for c in reader.continuations())
    assert reader.tool == "get_weather"
    reader.advance(call[at:].encode())
    assert reader.calls_done == 1
    assert reader.continuations()[0].ends


def test_a_call_to_nobody_within_a_thought_stays_silent():
    reader = followed('<think>\nLike <tool_call>\n{"name": "example", "arguments": {"x": ')
    assert reader.continuations() == []


@pytest.mark.parametrize("form", FORMS)
def test_an_open_call_of_a_thought_ends_with_it(form):
    """Its text would be a string that goes on for ever."""
    call = write_call(form, "get_time", {"zone": "x"})
    for cut in range(1, len(call), 3):
        reader = followed(f"<think>\n{call[:cut]}</think>\n", parser=PARSERS[form])
        done = reader.calls_done
        reader.advance(call.encode())
        assert reader.calls_done == done + 1


@pytest.mark.parametrize(("opening", "closing"), MARKS)
def test_a_reply_may_begin_in_a_thought_that_its_prompt_has_opened(opening, closing):
    assert open_thought(f"user: hi\nassistant: {opening}\n") == closing
    reader = automaton("hermes", thinks=closing)
    assert reader.continuations() == []
    reader.advance(b'Hm.\n{"name": "get_weather", "arguments": {')
    assert reader.continuations() == []
    reader.advance(closing.encode())
    assert any(c.text.startswith("<tool_call>") for c in reader.continuations())


@pytest.mark.parametrize("prompt", ["", "think", "<think>\n\n</think>\n\n", "<think> so", "</think>"])
def test_a_prompt_that_opens_no_thought(prompt):
    assert open_thought(prompt) == ""


@pytest.mark.parametrize("value", ["<think>", "a <think> b", "</think>", "<think>x</think>"])
def test_marks_of_thoughts_within_a_value_are_its_text(value):
    call = write_call("hermes", "get_time", {"zone": value})
    at = call.index('"}}')
    reader = followed(call[:at])
    assert reader.value_so_far == value
    reader.advance(call[at:].encode())
    assert reader.calls_done == 1


@pytest.mark.parametrize(("opening", "closing"), MARKS)
def test_chunks_of_thoughts_change_nothing(opening, closing):
    text = f'{opening}a {{\n<tool_call>\n{{"name": "get_time"{closing[:3]}{closing}\n<tool_call>\n{{"na'
    for end in range(len(text)):
        assert seen(at_once(text[:end])) == seen(followed(text[:end])), text[:end]
        halves = automaton()
        for part in (text[: end // 2], text[end // 2 : end]):
            halves.advance(part.encode())
        assert seen(halves) == seen(followed(text[:end]))


def test_an_endless_thought_is_read_in_time():
    reader = automaton()
    reader.advance(b"<think>")
    for _ in range(2000):
        reader.advance(b'{"a": <tool_call> <thi [')
    assert reader.continuations() == []
    reader.advance(b"</think>")
    assert reader.continuations()
