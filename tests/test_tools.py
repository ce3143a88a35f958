"""Tool sets: what is accepted, and what the user reads about what is not."""

import dataclasses

import pytest

from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.tools import MAX_BYTES, MAX_DEPTH, MAX_NAME, MAX_TOOLS, ToolSet
from tests.toolsets import ASSISTANT, GET_TIME, GET_WEATHER


def nested(depth):
    schema = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def cyclic():
    schema = {"type": "object"}
    schema["properties"] = {"again": schema}
    return schema


def test_tools_keep_the_order_of_the_request():
    tools = ToolSet.from_openai(ASSISTANT)
    assert [t.name for t in tools.tools] == [entry["function"]["name"] for entry in ASSISTANT]


def test_properties_keep_their_declared_order():
    (tool,) = ToolSet.from_openai([GET_WEATHER]).tools
    assert list(tool.properties) == ["city", "days", "unit", "hourly"]


def test_a_bare_entry_equals_the_wrapped_one():
    assert ToolSet.from_openai([GET_TIME["function"]]) == ToolSet.from_openai([GET_TIME])


@pytest.mark.parametrize("entry", [{"name": "ping"}, {"name": "ping", "parameters": None}])
def test_parameters_may_be_left_out(entry):
    (tool,) = ToolSet.from_openai([entry]).tools
    assert tool.parameters == {}
    assert tool.properties == {}


def test_properties_that_are_no_object_read_as_none():
    (tool,) = ToolSet.from_openai([{"name": "ping", "parameters": {"properties": ["x"]}}]).tools
    assert tool.properties == {}


def test_any_iterable_of_tools_will_do():
    assert ToolSet.from_openai(iter(ASSISTANT)) == ToolSet.from_openai(tuple(ASSISTANT))


def test_no_tools_are_a_tool_set_too():
    assert ToolSet.from_openai([]).tools == ()


@pytest.mark.parametrize(
    ("tools", "pointer", "hint"),
    [
        ({"name": "x"}, "/tools ", "must be a list"),
        ("get_time", "/tools ", "must be a list"),
        (7, "/tools ", "must be a list"),
        (["get_time"], "/tools/0 ", "must be an object"),
        ([GET_TIME, None], "/tools/1 ", "must be an object"),
        ([{"type": "function", "function": "f"}], "/tools/0/function ", "must be an object"),
        ([{"function": {}}], "/tools/0/function/name ", f"1 to {MAX_NAME} characters"),
        ([{"name": ""}], "/tools/0/name ", f"1 to {MAX_NAME} characters"),
        ([{"name": 5}], "/tools/0/name ", "must be a string"),
        ([{"name": "n" * (MAX_NAME + 1)}], "/tools/0/name ", f"1 to {MAX_NAME} characters"),
        ([{"name": "x", "parameters": []}], "/tools/0/parameters ", "must be a JSON Schema object"),
        ([GET_TIME, GET_TIME], "/tools/1 ", "names must differ"),
        ([{"name": str(i)} for i in range(MAX_TOOLS + 1)], "/tools ", "send fewer"),
        ([{"name": "x", "parameters": {"d": "x" * MAX_BYTES}}], "/tools ", "shorten the schemas"),
        ([{"name": "x", "parameters": nested(MAX_DEPTH + 1)}], "/tools/0/parameters/items/", "flatten"),
        ([{"name": "x", "parameters": cyclic()}], "/tools/0/parameters/properties/again/", "flatten"),
        ([{"name": "x", "parameters": {"enum": [{1}]}}], "/tools/0/parameters/enum/0 ", "set, which is not"),
        ([{"name": "x", "parameters": {"a": b"b"}}], "/tools/0/parameters/a ", "bytes, which is not"),
        ([{"name": "x", "parameters": {"a": float("nan")}}], "/tools/0/parameters/a ", "finite number"),
        ([{"name": "x", "parameters": {"a": {1: 2}}}], "/tools/0/parameters/a ", "key of type int"),
    ],
)
def test_a_fault_is_named_by_pointer_and_hint(tools, pointer, hint):
    with pytest.raises(UserError) as caught:
        ToolSet.from_openai(tools)
    assert str(caught.value).startswith(pointer)
    assert hint in str(caught.value)


def test_the_pointer_starts_where_the_caller_says():
    with pytest.raises(UserError, match=r"^/custom_params/tools/0 "):
        ToolSet.from_openai([1], where="custom_params/tools")


def test_the_limits_themselves_are_allowed():
    tools = [{"name": str(i)} for i in range(MAX_TOOLS - 1)]
    tools.append({"name": "n" * MAX_NAME, "parameters": nested(MAX_DEPTH)})
    assert len(ToolSet.from_openai(tools).tools) == MAX_TOOLS


def test_equal_tools_have_equal_keys_and_hashes():
    one, other = ToolSet.from_openai(ASSISTANT), ToolSet.from_openai(ASSISTANT)
    assert one.key == other.key
    assert {one: 1}[other] == 1
    assert hash(one.tools[0]) == hash(other.tools[0])


@pytest.mark.parametrize(
    "other",
    [
        [GET_TIME, GET_WEATHER],
        [GET_WEATHER],
        [GET_WEATHER, {"name": "get_time", "parameters": {"properties": {"zone": {"type": "integer"}}}}],
    ],
    ids=["order", "fewer", "another schema"],
)
def test_other_tools_have_another_key(other):
    assert ToolSet.from_openai(other).key != ToolSet.from_openai([GET_WEATHER, GET_TIME]).key


def test_the_sender_cannot_change_a_tool_set_afterwards():
    schema = {"type": "object", "properties": {"zone": {"type": "string"}}}
    tools = ToolSet.from_openai([{"name": "get_time", "parameters": schema}])
    schema["properties"]["zone"]["type"] = "integer"
    assert tools.tools[0].properties["zone"] == {"type": "string"}


def test_a_tool_set_has_no_settable_fields():
    tools = ToolSet.from_openai(ASSISTANT)
    with pytest.raises(dataclasses.FrozenInstanceError):
        tools.wire = "[]"
    with pytest.raises(dataclasses.FrozenInstanceError):
        tools.tools[0].name = "other"


def test_a_lone_surrogate_still_has_a_key():
    assert len(ToolSet.from_openai([{"name": "\ud800"}]).key) == 64
