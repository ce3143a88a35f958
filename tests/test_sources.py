"""One tool set from every way to describe tools, and what the user reads about the rest."""

import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, RootModel

from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.sources import tool_set
from sglang_toolspec.grammars.tools import MAX_BYTES, MAX_TOOLS, Tool, ToolSet

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OPENAI = {"type": "function", "function": {"name": "forecast", "description": "Rain?", "parameters": CITY}}
MCP = {"name": "sun", "description": "Sun?", "inputSchema": CITY}
SCHEMA = {"title": "wind", "description": "Wind?", **CITY}


class Moon(BaseModel):
    """The moon's phase."""

    city: str
    night: int = 0


class Titled(BaseModel):
    model_config = ConfigDict(title="tide_table")
    harbour: str


class Tree(BaseModel):
    name: str
    kids: list["Tree"] = []


class Wrapped(BaseModel):
    """As SGLang's and OpenAI's own classes hold a tool."""

    type: str = "function"
    function: dict[str, Any]


@dataclasses.dataclass
class Point:
    x: int


Days = Annotated[int, Field(description="How many.")]


def snow(city: str, days: Days = 3, unit: Literal["cm", "in"] = "cm"):
    """How much snow falls
    in the next days.

    Args:
        city: Where to look.
        days: Not this text.
    """


def loose(a, b=None, *, properties: str, type: int = 1): ...


class Station:
    """A weather station."""

    def read(self, sensor: str): ...

    @classmethod
    def build(cls, place: str): ...

    def __call__(self, sensor: int): ...


def only(tools: Any) -> Tool:
    (tool,) = tool_set(tools).tools
    return tool


def refusal(tools: Any, **where: str) -> str:
    with pytest.raises(UserError) as caught:
        tool_set(tools, **where)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_mixture_keeps_its_order():
    mixed = [OPENAI, MCP, Moon, snow, SCHEMA, Tool("fog", CITY), ToolSet.from_openai([{"name": "hail"}])]
    names = [tool.name for tool in tool_set(mixed).tools]
    assert names == ["forecast", "sun", "Moon", "snow", "wind", "fog", "hail"]


@pytest.mark.parametrize(
    "item",
    [OPENAI, MCP, Moon, snow, SCHEMA, Tool("fog", CITY)],
    ids=["openai", "mcp", "model", "callable", "schema", "tool"],
)
def test_a_single_item_needs_no_list(item):
    assert tool_set(item) == tool_set([item]) == tool_set(iter([item]))


def test_openai_tools_read_as_from_openai():
    tools = [OPENAI, {"name": "bare", "parameters": CITY}, {"name": "ping"}]
    assert tool_set(tools) == ToolSet.from_openai(tools)


def test_a_tool_set_is_itself():
    tools = ToolSet.from_openai([OPENAI])
    assert tool_set(tools) is tools
    assert tool_set([tools]) == tools


def test_no_tools_are_a_tool_set_too():
    assert tool_set([]).tools == ()


@pytest.mark.parametrize("item", [OPENAI, MCP, SCHEMA], ids=["openai", "mcp", "schema"])
def test_a_description_is_kept_and_tells_no_tools_apart(item):
    assert only(item).description.endswith("?")
    plain = Tool("forecast", CITY)
    assert only(OPENAI) == plain
    assert hash(only(OPENAI)) == hash(plain)
    assert "Rain?" not in tool_set(OPENAI).wire


@pytest.mark.parametrize(
    "item",
    [
        MCP,
        {"name": "sun", "input_schema": CITY},
        SimpleNamespace(name="sun", inputSchema=CITY),
        SimpleNamespace(name="sun", parameters=CITY, description=None),
        Wrapped(function={"name": "sun", "parameters": CITY}),
        {"name": "sun", **CITY},
    ],
)
def test_the_schema_is_found_where_others_write_it(item):
    assert only([item]) == Tool("sun", CITY)


def test_mcp_tools_may_lack_a_schema():
    assert only({"name": "ping", "inputSchema": None}).parameters == {}


def test_a_model_is_named_by_its_class_or_title():
    assert only(Moon).parameters == Moon.model_json_schema()
    assert only(Moon).description == "The moon's phase."
    assert only(Titled).name == "tide_table"
    assert only(Point).properties == {"x": {"title": "X", "type": "integer"}}


def test_a_recursive_model_shows_its_properties():
    tool = only(Tree)
    assert (tool.name, list(tool.properties)) == ("Tree", ["name", "kids"])
    assert tool.properties["kids"]["items"] == {"$ref": "#/$defs/Tree"}


def test_a_function_gives_its_signature():
    tool = only(snow)
    assert tool.description == "How much snow falls in the next days."
    assert tool.parameters["required"] == ["city"]
    assert tool.properties["city"]["type"] == "string"
    assert tool.properties["days"] == {
        "type": "integer", "description": "How many.", "default": 3, "title": "Days",
    }  # fmt: skip
    assert tool.properties["unit"]["enum"] == ["cm", "in"]


def test_a_docstring_describes_its_parameters():
    pytest.importorskip("docstring_parser")
    assert only(snow).properties["city"]["description"] == "Where to look."


def test_a_parameter_without_a_type_takes_any_json():
    tool = only(loose)
    assert "type" not in tool.properties["a"]
    assert list(tool.properties) == ["a", "b", "properties", "type"]
    assert tool.parameters["required"] == ["a", "properties"]


@pytest.mark.parametrize(
    ("function", "name", "parameters"),
    [
        (Station().read, "read", ["sensor"]),
        (Station.read, "read", ["sensor"]),
        (Station.build, "build", ["place"]),
        (Station(), "Station", ["sensor"]),
        (functools.partial(snow, "Oslo"), "snow", ["days", "unit"]),
        (functools.lru_cache(snow), "snow", ["city", "days", "unit"]),
        (functools.partial(functools.partial(loose, 1), b=2), "loose", ["b", "properties", "type"]),
    ],
)
def test_methods_and_wrapped_functions_are_functions(function, name, parameters):
    tool = only(function)
    assert (tool.name, list(tool.properties)) == (name, parameters)


def test_a_default_that_is_no_json_is_left_out():
    def with_default(a: Any = object()): ...  # noqa: B008

    assert only(with_default).properties == {"a": {"title": "A"}}


def starred(*names): ...
def double_starred(a, **more): ...
def positional(a, /): ...
def calls_back(then: Callable[[], None]): ...
def misspelt(a: "Strnig"): ...  # noqa: F821


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (starred, "/tools/0 (tool 'starred') takes *names, which"),
        (double_starred, "/tools/0 (tool 'double_starred') takes **more, which"),
        (positional, "/tools/0 (tool 'positional') takes the positional-only 'a', which"),
        (calls_back, "/tools/0 (tool 'calls_back') has no JSON Schema: "),
        (misspelt, "/tools/0 (tool 'misspelt') has no JSON Schema: name 'Strnig' is not defined; change"),
        (lambda a: a, "/tools/0 is a lambda, which has no name; write it with def"),
        (max, "/tools/0 (tool 'max') has no readable signature; wrap"),
        (Station, "/tools/0 (tool 'Station') has no JSON Schema: "),
        (int, "/tools/0 (tool 'int') describes 'integer'; make it an object"),
        (RootModel[list[int]], "/tools/0 (tool 'RootModel[list[int]]') describes 'array'; make it an object"),
    ],
)
def test_a_signature_that_no_call_can_fill_is_refused(function, sentence):
    assert refusal([function]).startswith(sentence)


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (7, "/tools/1 is of type int; give an OpenAI or MCP tool"),
        ("ping", "/tools/1 is of type str; give"),
        (None, "/tools/1 is of type NoneType; give"),
        ([OPENAI], "/tools/1 is of type list; give"),
        (Moon(city="Oslo"), "/tools/1 is of type Moon; give"),
        ({}, "/tools/1 has none of 'function', 'name' and 'properties'; give"),
        ({"type": "web_search"}, "/tools/1 has none of"),
        (CITY, "/tools/1 is a JSON Schema without a 'title'; add one, it names the tool"),
        ({**CITY, "title": 5}, "/tools/1/title must be a string of 1 to 256 characters"),
        ({**CITY, "title": "x", "type": "array"}, "/tools/1 (tool 'x') describes 'array'; make"),
        ({"name": "", "inputSchema": CITY}, "/tools/1/name must be a string of 1 to 256 characters"),
        ({"name": "x", "inputSchema": []}, "/tools/1/inputSchema (tool 'x') must be a JSON Schema"),
        ({"function": []}, "/tools/1/function must be an object, not list"),
        ({"function": {"name": "x", "parameters": 3}}, "/tools/1/function/parameters (tool 'x') must be a"),
        (Tool("x", {"a": b""}), "/tools/1/parameters/a (tool 'x') holds a bytes, which"),
        ({"name": "x", "inputSchema": {"a/b": {1: 2}}}, "/tools/1/inputSchema/a~1b (tool 'x') has a key of"),
        ({"name": "x", "inputSchema": {"a": 10**5000}}, "/tools/1/inputSchema/a (tool 'x') holds an integer"),
        (OPENAI, "/tools/1 repeats the tool name 'forecast'; names must differ"),
        ({"name": "forecast", "inputSchema": {}}, "/tools/1 repeats the tool name 'forecast'; names"),
    ],
)
def test_a_fault_is_named_by_pointer_tool_and_remedy(item, sentence):
    assert refusal([OPENAI, item]).startswith(sentence)


def test_the_pointer_starts_where_the_caller_says():
    assert refusal(5, where="a/b").startswith("/a/b is of type int; ")
    assert refusal("[]", where="a/b") == "/a/b is text; parse it into a list of tools first"
    assert refusal([5], where="a/b").startswith("/a/b/0 is of type int; ")


def test_too_many_tools_are_refused():
    assert "more than" in refusal({"name": str(i)} for i in range(MAX_TOOLS + 1))
    one_by_one = (ToolSet.from_openai([{"name": str(i)}]) for i in range(MAX_TOOLS + 1))
    assert "more than" in refusal(one_by_one)


@pytest.mark.parametrize(
    "schema",
    [
        {"required": "city"},
        {"properties": CITY["properties"], "required": True},
        {"required": ["city"]},
        {"properties": ["city"]},
        {"properties": {"city": {"type": "string", "required": True}}},
        {"type": "dict", "properties": {"a": {"type": "float"}, "b": {"type": "String", "optional": 1}}},
        {"properties": {"properties": {"type": "string"}, "type": {"type": "integer"}, "$ref": {}}},
        {"properties": {"a": {"type": "integer", "enum": ["x", None]}}},
        {"properties": {"a.b": {}, 'q"uote': {}, "größe": {}, "": {}, "\ud800": {}, "a\nb": {}}},
        {"properties": {"a": True, "b": None, "c": "string", "d": 3}},
        {"$ref": "#/$defs/Lost", "$defs": []},
    ],
    ids=lambda schema: json.dumps(schema)[:40],
)
def test_what_is_merely_odd_is_taken_as_it_is(schema):
    assert only({"name": "x", "inputSchema": schema}).parameters == schema
    named = {"type": "object", **schema}
    assert only({"title": "x", **named}).name == only({"name": "x", "parameters": named}).name == "x"


@pytest.mark.parametrize("name", ["a.b", 'q"uote', "größe", "two words", "\ud800", "a\nb"])
def test_a_name_may_hold_any_character(name):
    assert only({"name": name, "inputSchema": CITY}).name == name
    message = refusal([{"name": name, "inputSchema": 3}])
    message.encode()  # an HTTP response can carry it
    assert message.startswith("/tools/0/inputSchema (tool ")


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def doubled(times: int) -> Any:
    """A small object that would write 2 ** times values."""
    schema: Any = {}
    for _ in range(times):
        schema = [schema, schema]
    return schema


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        (nested(10_000), "is nested deeper than 64 levels; flatten the schema"),
        ({"enum": ["x" * 99] * (MAX_BYTES // 99)}, "of them in tool 'x'; shorten the schemas"),
        ({"k" * (MAX_BYTES // 2): [0] * 20_000, "z": b""}, "holds a bytes"),
        ({"k" * (MAX_BYTES // 2): [0] * 20_000 + [b""]}, "holds a bytes"),
    ],
    ids=["deep", "large enum", "long key", "long pointer"],
)
def test_what_is_too_large_is_refused_fast_in_a_short_sentence(schema, hint):
    started = time.process_time()
    message = refusal({"name": "x", "inputSchema": schema})
    assert time.process_time() - started < 5
    assert hint in message
    assert len(message) < 400


def test_parts_that_multiply_are_refused_before_they_are_written(monkeypatch):
    monkeypatch.setattr("sglang_toolspec.grammars.tools.MAX_BYTES", 1 << 12)
    assert "holds more values than fit" in refusal({"name": "x", "inputSchema": {"enum": doubled(60)}})


def test_an_enum_of_nearly_the_limit_is_taken():
    choices = ["x" * 95] * (MAX_BYTES // 100)
    assert only({"name": "x", "inputSchema": {"enum": choices}}).parameters["enum"] == choices


def test_the_sender_cannot_change_a_tool_set_afterwards():
    schema = json.loads(json.dumps(CITY))
    tools = [tool_set({"name": "x", "inputSchema": schema}), tool_set(Tool("x", schema))]
    schema["properties"]["city"]["type"] = "integer"
    assert all(found.tools[0].parameters == CITY for found in tools)


KEYS = st.sampled_from(
    ["name", "function", "title", "type", "inputSchema", "parameters", "properties", "$ref", "$defs"]
)
SCALARS = st.none() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=1)
VALUES = st.recursive(
    SCALARS | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_garbage_is_a_tool_set_or_one_sentence(value):
    found = message = None
    try:
        found = tool_set(value)
    except UserError as error:
        message = str(error)
    if message is None:
        assert tool_set(list(found.tools)) == found
    else:
        assert message.startswith("/tools")
        assert message.isprintable()


CATALOGUES = [
    "mcp_tools",
    "bfcl_simple",
    "bfcl_parallel",
    "bfcl_live_simple",
    "bfcl_multi_turn_base",
    "toolalpaca_eval",
    "apibank_l1",
]


@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_real_catalogues_load_whole(catalogue):
    path = Path(os.environ.get("TOOLSPEC_DATA", "")) / f"{catalogue}.jsonl"
    if "TOOLSPEC_DATA" not in os.environ or not path.is_file():
        pytest.skip(f"set TOOLSPEC_DATA to the folder that holds {path.name}")
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            tools = json.loads(line)["tools"]
            assert [t.name for t in tool_set(tools).tools] == [t["function"]["name"] for t in tools]
