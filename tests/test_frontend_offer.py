"""What gen(tools=…) offers, and how the arguments of calls come back."""

import dataclasses
import enum
import functools
from typing import Literal

import pydantic
import pytest

from sglang_toolspec.errors import UserError
from sglang_toolspec.frontend.offer import make_offer
from sglang_toolspec.frontend.reading import Parsers, constraint, read_reply
from sglang_toolspec.frontend.written import ToolCall, tool_result


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


def get_weather(city: str, unit: Unit = Unit.CELSIUS, days: int = 1) -> str:
    """The weather of a city.

    Args:
        city: Its name.
    """
    return f"{city}: {days} in {unit.name}"


def anything(value, other=2):
    return value, other


class Trip(pydantic.BaseModel):
    """A journey."""

    to: str
    nights: int = pydantic.Field(ge=1)


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


OPENAI = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
        "strict": True,
    },
}
MCP = {"name": "read", "description": "Reads.", "inputSchema": {"type": "object", "properties": {}}}
CYCLIC = {
    "name": "tree",
    "parameters": {
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/Node"}},
    },
}
TRIP = {"type": "function", "function": {"name": "Trip"}}
ALL = [get_weather, Trip, Point, OPENAI, MCP, anything]


def call(raw, *tools, name=None):
    offer = make_offer(list(tools))
    return ToolCall(name or offer.tools.tools[0].name, raw, offer)


def test_tools_are_sent_as_an_openai_client_would_send_them():
    sent = {tool["function"]["name"]: tool["function"] for tool in make_offer(ALL).openai}

    assert list(sent) == ["get_weather", "Trip", "Point", "search", "read", "anything"]
    assert sent["search"] == OPENAI["function"]
    assert sent["read"] == {"name": "read", "description": "Reads.", "parameters": MCP["inputSchema"]}
    assert sent["get_weather"]["description"] == "The weather of a city."
    assert sent["get_weather"]["parameters"]["properties"]["city"]["description"] == "Its name."


@pytest.mark.parametrize(
    ("choice", "openai", "names", "forced"),
    [
        (None, "auto", 6, False),
        ("auto", "auto", 6, False),
        ("none", "none", 6, False),
        ("required", "required", 6, True),
        ("Trip", TRIP, 6, True),
        (TRIP, TRIP, 6, True),
        (["Trip", "read"], "required", 2, True),
        (["Trip"], TRIP, 1, True),
    ],
)
def test_choices(choice, openai, names, forced):
    offer = make_offer(ALL, choice)

    assert (offer.openai_choice, len(offer.openai), offer.forced) == (openai, names, forced)


@pytest.mark.parametrize(
    ("tools", "choice", "says"),
    [
        ("get_weather", None, "/tools is text"),
        (7, None, "/tools is of type int"),
        ([7], None, "/tools/0 is of type int"),
        ([], None, "/tools holds no tool"),
        ([get_weather, get_weather], None, "repeats the tool name 'get_weather'"),
        ([lambda x: x], None, "/tools/0 is a lambda"),
        ([{"name": "a", "parameters": []}], None, "/tools/0/parameters"),
        ([{"name": "a", "parameters": {"type": {1, 2}}}], None, "is not a JSON value"),
        ([OPENAI], "nope", "tool_choice must be one of auto, required, none"),
        ([OPENAI], ["search", "nope"], "tool_choice must be one of"),
        ([OPENAI], [], "tool_choice must be one of"),
        ([OPENAI], 7, "not '7'"),
        ([{"name": f"t{i}"} for i in range(600)], None, "more than 512 tools"),
        ([{"name": "a", "parameters": {"title": "x" * (1 << 20)}}], None, "holds more than 1048576 bytes"),
    ],
)
def test_bad_input_is_one_clear_sentence(tools, choice, says):
    with pytest.raises(UserError) as error:
        make_offer(tools, choice)

    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_odd_tools_are_offered_all_the_same():
    """300 tools, a schema that refers to itself, NUL and lone surrogates, parameters without hints."""
    many = [{"name": f"t{i}", "parameters": {"type": "object"}} for i in range(300)]
    odd = {"name": "odd", "description": "a\x00\ud800", "parameters": {"enum": ["\x00", "\udfff"]}}

    offer = make_offer([*many, CYCLIC, odd, anything])

    assert len(offer.openai) == 303
    assert offer.wire.encode()  # can be sent


def test_arguments_of_a_function_are_converted_and_run_it():
    found = call('{"city": "Oslo", "unit": "kelvin", "days": "3"}', get_weather)

    assert found.arguments == {"city": "Oslo", "unit": Unit.KELVIN, "days": 3}
    assert found.run() == "Oslo: 3 in KELVIN"


def test_defaults_are_filled_in():
    assert call('{"city": "Oslo"}', get_weather).run() == "Oslo: 1 in CELSIUS"


def test_arguments_of_a_class_make_an_instance():
    assert call('{"to": "Rome", "nights": "2"}', Trip).run() == Trip(to="Rome", nights=2)
    assert call('{"x": "1"}', Point).run() == Point(1)
    assert call('{"x": "1"}', Point).arguments == {"x": 1, "y": 0}


def test_arguments_without_hints_are_taken_as_they_come():
    assert call('{"value": [1]}', anything).run() == ([1], 2)


def test_partial_functions_and_methods_run():
    class Shelf:
        def take(self, count: int) -> int:
            return count + 1

    half = functools.partial(get_weather, unit=Unit.KELVIN)
    assert call('{"city": "Oslo", "days": "2"}', half).run() == "Oslo: 2 in KELVIN"
    assert call('{"count": "2"}', Shelf().take).run() == 3


@pytest.mark.parametrize(
    ("raw", "tool", "says"),
    [
        ('{"days": 1}', get_weather, "/city Missing required argument"),
        ('{"city": "Oslo", "days": "many"}', get_weather, "/days Input should be a valid integer"),
        ('{"city": "Oslo", "month": 1}', get_weather, "/month Unexpected keyword argument"),
        ('{"to": "Rome", "nights": 0}', Trip, "/nights Input should be greater than or equal to 1"),
        ('{"q": 1}', OPENAI, "/q 1 is not of type 'string'"),
        ("{}", OPENAI, "/ 'q' is a required property"),
        ('{"city": "Os', get_weather, "are no JSON"),
        ("[1]", get_weather, "must be an object, not list"),
    ],
)
def test_arguments_that_do_not_fit_are_one_sentence_that_a_model_can_be_told(raw, tool, says):
    found = call(raw, tool)

    for use in (lambda: found.arguments, found.run):
        with pytest.raises(UserError) as error:
            use()
        assert says in str(error.value)
        assert "\n" not in str(error.value)


def test_a_schema_cannot_run():
    found = call('{"q": "x"}', OPENAI)

    assert found.arguments == {"q": "x"}
    with pytest.raises(UserError, match="given as a schema"):
        found.run()


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "dict", "properties": {"a": {"type": "any"}}},
        {"$ref": "http://127.0.0.1:9/never"},
        {"properties": {"a": {"pattern": "("}}},
        CYCLIC["parameters"],
    ],
)
def test_schemas_that_cannot_be_read_allow_everything(parameters):
    assert call('{"a": "x"}', {"name": "odd", "parameters": parameters}).arguments == {"a": "x"}


def test_a_call_of_what_was_not_offered_says_so():
    with pytest.raises(UserError, match="'nope', which was not offered"):
        call("{}", OPENAI, name="nope").run()


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("sunny", "sunny"),
        ({"a": "é"}, '{"a": "é"}'),
        (3, "3"),
        (None, "null"),
        (Trip(to="X", nights=1), '{"to":"X","nights":1}'),
        ([Unit.KELVIN], '["Unit.KELVIN"]'),
    ],
)
def test_results_become_text(result, text):
    begin, content, end = tool_result(result).expr_list

    assert (begin.role, content.value, end.role) == ("tool", text, "tool")


def test_literal_choices_are_checked():
    def pick(side: Literal["left", "right"]) -> str:
        return side

    assert call('{"side": "left"}', pick).run() == "left"
    with pytest.raises(UserError, match="/side Input should be 'left' or 'right'"):
        call('{"side": "up"}', pick).run()


SEARCH = '<tool_call>\n{{"name": "search", "arguments": {{"query": "{}"}}}}\n</tool_call>\n'
THINKING = ("qwen3", "deepseek-r1", "glm45", "step3", "nemotron_3")


@pytest.mark.parametrize("opening", ["<think>\n", ""], ids=["by itself", "opened by the prompt"])
@pytest.mark.parametrize("reasoning", THINKING)
def test_calls_within_a_thought_are_none(reasoning, opening):
    text = f"{opening}I could {SEARCH.format('thought')}</think>\n{SEARCH.format('meant')}"

    content, calls = read_reply(text, make_offer([OPENAI]), Parsers("qwen25", reasoning))

    assert calls == [("search", '{"query": "meant"}')]
    assert "I could" not in content


@pytest.mark.parametrize("reasoning", THINKING)
def test_a_forced_call_is_read_although_the_model_did_not_think(reasoning):
    """Some of SGLang's parsers take a reply without the end of a thought for one thought."""
    offer = make_offer([OPENAI], "required")

    _, calls = read_reply(SEARCH.format("now"), offer, Parsers("qwen25", reasoning))

    assert calls == [("search", '{"query": "now"}')]


@pytest.mark.parametrize("parser", ["qwen25", "hermes", "llama3", "mistral", "deepseekv3", "glm45"])
def test_a_free_choice_of_tools_that_are_not_strict_is_drafted_and_not_masked(parser):
    assert constraint(make_offer([MCP], "auto"), Parsers(parser)) == {}


def test_the_mask_of_glm47_has_a_place_for_the_thought_that_its_prompt_begins():
    """As the server's OpenAI path has it, which masks whole turns of this parser."""
    thinking, strict = (constraint(make_offer([tool], "auto"), Parsers("glm47")) for tool in (MCP, OPENAI))

    assert "thinking_block_content" in thinking["ebnf"]
    assert "thinking" not in str(strict)
