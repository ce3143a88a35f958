"""What one reply teaches the next, and what it must not."""

import json
from random import Random

import pytest

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.formats import FORMATS, formats_for
from sglang_toolspec.grammars.habits import MAX_COUNTED, MAX_PLACES, Habits
from sglang_toolspec.grammars.json_spot import opened
from sglang_toolspec.grammars.schema import Schema
from sglang_toolspec.grammars.tools import ToolSet
from tests.jsontexts import read
from tests.toolsets import GET_WEATHER, LAYOUTS, LEGAL_CALLS, PARSERS, shapes, tool, write_call, write_calls

FORMS = sorted(FORMATS)
WEATHER_ONLY = CallShapes(ToolSet.from_openai([GET_WEATHER]))
UNITS = ("celsius", "fahrenheit", "kelvin")


def replied(text, habits, parser="qwen25", form=None, tools=None):
    """An automaton that has followed a reply."""
    formats = (FORMATS[form],) if form else formats_for(parser)
    reader = ToolAutomaton(WEATHER_ONLY if tools is None else tools, formats, habits)
    reader.advance(text.encode())
    return reader


def offers(text, habits, **more):
    return [c.text for c in replied(text, habits, **more).continuations() if c.text]


def weather(form, layout="spaced", **arguments):
    return write_call(form, "get_weather", arguments, layout)


def up_to(form, value, layout="spaced", **arguments):
    """The text of a call up to ``value``."""
    return weather(form, layout, **arguments).partition(value)[0]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", FORMS)
def test_format_and_layout_of_the_last_reply_come_first(form, layout):
    habits = Habits()
    for _ in range(2):
        replied(weather(form, layout, city="Oslo", days=3), habits, PARSERS[form])
    first, *_ = offers("", habits, parser=PARSERS[form])
    assert up_to(form, "~", layout, city="~").startswith(first)
    assert len(first) > len(up_to(form, "get_weather", layout))


@pytest.mark.parametrize("form", FORMS)
def test_another_format_takes_over_after_a_few_replies(form):
    habits = Habits()
    other = "fence" if form != "fence" else "hermes"
    if other not in [f.name for f in formats_for(PARSERS[form])]:
        return
    for used, count in ((other, 1), (form, 3)):
        for _ in range(count):
            replied(weather(used, city="Oslo"), habits, PARSERS[form])
    first, *_ = offers("", habits, parser=PARSERS[form])
    assert up_to(form, "~", city="~").startswith(first[:20])


@pytest.mark.parametrize("form", FORMS)
def test_the_order_of_keys_is_kept(form):
    habits = Habits()
    arguments = {"unit": "kelvin", "days": 3, "city": "Oslo"}
    replied(weather(form, **arguments), habits, form=form)
    text = weather(form, **arguments)
    for key in arguments:
        start = text.rindex(key)
        found = offers(text[:start], habits, form=form)
        assert found[0].startswith(key), (text[:start], found)


@pytest.mark.parametrize("form", FORMS)
def test_optional_keys_are_written_again_and_left_out_again(form):
    habits = Habits()
    for _ in range(3):
        replied(weather(form, city="Oslo", days=3), habits, form=form)
    start = up_to(form, "hourly", city="Rome", hourly=True)
    best = offers(start, habits, form=form)[0]
    assert best.startswith("days")
    before = weather(form, city="Rome", days=4, hourly=True)
    ends = offers(before[: before.index("4") + 1], habits, form=form)
    assert not ends[0].lstrip(', \n"<').startswith(("hourly", "unit"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("unit", UNITS)
def test_the_usual_choice_comes_first(form, unit):
    habits = Habits()
    replied(weather(form, city="Oslo", unit=unit), habits, form=form)
    start = up_to(form, unit, city="Rome", unit=unit)
    assert offers(start, habits, form=form)[0].startswith(unit)


@pytest.mark.parametrize("form", FORMS)
def test_the_usual_tool_comes_first(form):
    habits = Habits()
    text = write_call(form, "draw_line", {"start": {"x": 1}})
    replied(text, habits, form=form, tools=shapes())
    found = offers(text.partition("draw_line")[0], habits, form=form, tools=shapes())
    assert found[0].startswith("draw_line")


def test_nested_objects_have_habits_of_their_own():
    habits = Habits()
    replied(write_call("hermes", "draw_line", {"start": {"y": 2, "x": 1}}), habits, tools=shapes())
    text = write_call("hermes", "draw_line", {"start": {"y": 2, "x": 1}, "end": {"x": 3}})
    found = offers(text.partition('"y"')[0], habits, tools=shapes())
    assert found[0].startswith('"y": ')
    found = offers(text[: text.rindex('"x"')], habits, tools=shapes())
    assert found[0].startswith('"x": ')


def test_items_and_the_values_of_a_map_share_their_habits():
    item = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
    raw = {"properties": {"l": {"type": "array", "items": item}, "m": {"additionalProperties": item}}}
    habits = Habits()
    read('{"l": [{"b": 1, "a": 2}], "m": {"Ann": {"b": 1}}}', raw, habits=habits)
    for text in ('{"l": [{}, {', '{"m": {"Bob": {'):
        assert habits.next_keys(read(text, raw).frame)[0][0] == "b"


def test_what_was_learned_of_another_schema_is_not_offered():
    habits = Habits()
    old = CallShapes(ToolSet.from_openai([tool("search", {"zq_old": {}, "q": {}})]))
    new = CallShapes(ToolSet.from_openai([tool("search", {"q": {}, "n": {}})]))
    replied(write_call("hermes", "search", {"zq_old": 1}), habits, tools=old)
    text = '<tool_call>\n{"name": "search", "arguments": {'
    assert not any("zq_old" in o for o in offers(text, habits, tools=new))


def test_a_key_that_is_written_twice_stays_a_chance():
    habits = Habits()
    raw = {"properties": {"a": {}, "b": {}}}
    for _ in range(3):
        read('{"a": 1, "a": 2, "b": 3, "a": 4}', raw, habits=habits)
    chances = [chance for _, chance in habits.next_keys(read("{", raw).frame)]
    assert all(0 <= chance <= 1 for chance in chances)
    assert sum(chances) < 1.01


@pytest.mark.parametrize("seed", range(5))
def test_chances_of_keys_add_up_whatever_was_written(seed):
    random, habits = Random(seed), Habits()
    raw = {"properties": {key: {} for key in "abcdef"}, "required": ["a", "d"]}
    for _ in range(20):
        keys = random.sample("abcdefxyz", random.randint(0, 6))
        read(json.dumps(dict.fromkeys(keys, 1)), raw, habits=habits)
        text = json.dumps(dict.fromkeys(random.sample("abcdef", 2), 1))[:-1]
        chances = habits.next_keys(read(text, raw).frame)
        assert all(0 <= chance <= 1 for _, chance in chances)
        assert sum(chance for _, chance in chances) < 1.2
        assert len({key for key, _ in chances}) == len(chances)
        assert [None for key, _ in chances if key is None] == [None]


# Bounds and secrets.


def test_places_are_bounded_and_the_longest_unused_go():
    habits = Habits()
    raw = Schema.root({"properties": {"a": {}, "b": {}, "u": {"enum": [1, 2]}}})
    for i in range(MAX_PLACES + 50):
        read('{"b": 1, "u": 2}', raw, habits=habits, tool=f"tool{i}")
    assert len(habits._keys) == len(habits._choices) == MAX_PLACES
    fresh = opened(None, raw.arms, False, f"tool{MAX_PLACES + 49}")
    assert habits.next_keys(fresh)[0][0] == "b"
    assert habits.next_keys(fresh._replace(tool="tool0"))[0][0] == "a"


def test_keys_and_choices_of_one_place_are_bounded():
    habits = Habits()
    for i in range(3 * MAX_COUNTED):
        raw = {"properties": {f"key{i}": {}, "u": {"enum": [f"choice{i}"]}}}
        read(json.dumps({f"key{i}": 1, "u": f"choice{i}"}), raw, habits=habits, tool="t")
    (keys,), (choices,) = habits._keys.values(), habits._choices.values()
    assert len(keys.present) <= MAX_COUNTED + 1
    assert len(choices) <= MAX_COUNTED + 1


SECRET = "zq-secret"
PEOPLE = {"type": "object", "additionalProperties": {"type": "object", "properties": {"age": {}}}}
SECRETS = {
    "value": {"city": SECRET},
    "undeclared key": {"city": "Oslo", SECRET: 1},
    "value of an undeclared key": {"city": "Oslo", "note": SECRET},
    "value outside the choices": {"city": "Oslo", "unit": SECRET},
    "nested key": {"city": "Oslo", "more": {SECRET: {"a": [SECRET]}}},
    "key of a map": {"city": "Oslo", "people": {SECRET: {"age": 3}}},
    "another kind": {"city": {SECRET: SECRET}, "days": [SECRET]},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("arguments", SECRETS.values(), ids=SECRETS)
def test_no_word_of_a_user_is_kept(form, arguments):
    properties = {**GET_WEATHER["function"]["parameters"]["properties"], "people": PEOPLE}
    tools = CallShapes(ToolSet.from_openai([tool("get_weather", properties, ["city"])]))
    habits = Habits()
    for _ in range(2):
        replied(
            f"{SECRET}\n" + write_calls(form, [("get_weather", arguments)] * 2),
            habits,
            form=form,
            tools=tools,
        )
    assert SECRET not in repr(vars(habits))
    later = write_call(form, "get_weather", {"city": "Rome", "people": {"Bob": {"age": 1}}, "unit": "kelvin"})
    reader = ToolAutomaton(tools, (FORMATS[form],), habits)
    for at in range(0, len(later), 4):
        assert not any(SECRET in c.text for c in reader.continuations())
        reader.advance(later[at : at + 4].encode())


@pytest.mark.parametrize("form", FORMS)
def test_the_name_of_an_unknown_tool_is_not_kept(form):
    habits = Habits()
    for _ in range(2):
        replied(write_call(form, SECRET, {"a": {"b": 1}}), habits, form=form, tools=shapes())
    assert SECRET not in repr(vars(habits))
    assert not any(SECRET in o for o in offers("", habits, form=form, tools=shapes()))


def test_habits_hold_only_words_of_the_schema():
    habits = Habits()
    for call in LEGAL_CALLS:
        replied(write_call("hermes", *call), habits, tools=shapes())
    held = repr(vars(habits))
    for word in ("Oslo", "a@b.c", "Zoë", "19:30", "groß", "see "):
        assert word not in held
