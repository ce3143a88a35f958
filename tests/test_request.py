"""Tools on their way from an HTTP request to the drafters, and the plugin's settings."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.engine.transport import attach_chat_tools, check_custom_params
from sglang_toolspec.runtime.request import ToolRequest

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "time", "description": "ignored"}},
]
WEIRD = [{"name": 'quote " and \\ and ü', "parameters": {"enum": ["\ud83d", "\u2028", None, 1.5]}}]


@pytest.mark.parametrize("tools", [[], TOOLS, WEIRD], ids=["none", "two", "weird"])
@pytest.mark.parametrize("choice", ["auto", "required", "none"])
def test_the_wire_form_round_trips(tools: list[Any], choice: str) -> None:
    request = ToolRequest.from_object({"tools": tools, "tool_choice": choice})

    again = ToolRequest.from_wire(request.to_wire())

    assert again == request
    assert again.to_wire() == request.to_wire()
    assert [tool.name for tool in again.tools.tools] == [t.get("function", t)["name"] for t in tools]


def test_both_forms_of_a_tool_give_the_same_wire() -> None:
    bare = [{"name": "weather", "parameters": WEATHER}, {"name": "time"}]

    assert ToolRequest.from_object({"tools": bare}) == ToolRequest.from_object({"tools": TOOLS})


@pytest.mark.parametrize(
    "choice", ["time", {"name": "time"}, {"type": "function", "function": {"name": "time"}}]
)
def test_a_named_choice_offers_that_tool_only(choice: Any) -> None:
    request = ToolRequest.from_object({"tools": TOOLS, "tool_choice": choice})

    assert request.tool_choice == "time"
    assert request.constrained
    assert [tool.name for tool in request.offered.tools] == ["time"]
    assert ToolRequest.from_wire(request.to_wire()) == request


@pytest.mark.parametrize(
    ("choice", "constrained", "offered"),
    [("auto", False, 2), ("required", True, 2), ("none", False, 0)],
)
def test_what_each_choice_offers(choice: str, constrained: bool, offered: int) -> None:
    request = ToolRequest.from_object({"tools": TOOLS, "tool_choice": choice})

    assert request.constrained is constrained
    assert len(request.offered.tools) == offered


def test_a_tool_named_like_a_keyword_is_required_when_named() -> None:
    request = ToolRequest.from_object({"tools": [{"name": "none"}], "tool_choice": {"name": "none"}})

    assert request.tool_choice == "required"
    assert [tool.name for tool in request.offered.tools] == ["none"]


HERE = "/custom_params/toolspec"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, f"{HERE} must be an object"),
        ([], f"{HERE} must be an object"),
        ({"tool": []}, f"{HERE} has the unknown key 'tool'"),
        ({"tools": {}}, f"{HERE}/tools must be a list of tools, not dict"),
        ({"tools": None}, f"{HERE}/tools must be a list of tools, not NoneType"),
        ({"tools": [*TOOLS, 5]}, f"{HERE}/tools/2 must be an object, not int"),
        ({"tools": [{"function": 5}]}, f"{HERE}/tools/0/function must be an object, not int"),
        ({"tools": [{}]}, f"{HERE}/tools/0/name must be a string"),
        ({"tools": [{"function": {"name": ""}}]}, f"{HERE}/tools/0/function/name must be a string"),
        (
            {"tools": [{"function": {"name": "x", "parameters": []}}]},
            f"{HERE}/tools/0/function/parameters (tool 'x') must be a JSON Schema object, not list",
        ),
        ({"tools": [*TOOLS, TOOLS[0]]}, f"{HERE}/tools/2 repeats the tool name 'weather'"),
        ({"tools": TOOLS, "tool_choice": "weathr"}, f"{HERE}/tool_choice must be one of auto"),
        ({"tools": TOOLS, "tool_choice": {"name": []}}, f"{HERE}/tool_choice must be one of auto"),
        ({"tools": TOOLS, "tool_choice": {"function": 5}}, f"{HERE}/tool_choice must be one of auto"),
        ({"tools": TOOLS, "tool_choice": None}, f"{HERE}/tool_choice must be one of auto"),
    ],
)
def test_an_error_names_the_json_pointer(value: Any, sentence: str) -> None:
    for parse in (ToolRequest.from_object, lambda v: ToolRequest.from_wire(json.dumps(v))):
        with pytest.raises(UserError) as error:
            parse(value)
        assert str(error.value).startswith(sentence)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("wire", ["", "{", "[" * 100_000, "9" * 5000])
def test_text_that_is_no_json_is_refused(wire: str) -> None:
    with pytest.raises(UserError, match=f"{HERE} is not valid JSON"):
        ToolRequest.from_wire(wire)


def checked(custom_params: Any) -> Any:
    obj = SimpleNamespace(sampling_params={"temperature": 0.5, "custom_params": custom_params})
    assert check_custom_params(None, obj) is None  # None: SGLang goes on with the arguments as they are
    assert obj.sampling_params["temperature"] == 0.5
    return obj.sampling_params["custom_params"]


def test_object_and_json_text_become_the_same_string_and_the_rest_is_kept() -> None:
    value = {"tools": TOOLS, "tool_choice": "required"}
    others = {"n": 1, "on": True, "list": [1, "a", None], "map": {"k": 2.5}, "nothing": None}

    from_object = checked({**others, "toolspec": value})
    from_text = checked({**others, "toolspec": json.dumps(value, indent=3)})

    assert from_object == from_text == {**others, "toolspec": ToolRequest.from_object(value).to_wire()}


def test_the_callers_own_parameters_are_not_changed() -> None:
    """SGLang keeps the request object for retries and logs."""
    custom_params = {"toolspec": {"tools": TOOLS}}
    sampling_params = {"custom_params": custom_params}

    check_custom_params(None, SimpleNamespace(sampling_params=sampling_params))

    assert custom_params == {"toolspec": {"tools": TOOLS}}
    assert sampling_params == {"custom_params": custom_params}


@pytest.mark.parametrize(
    ("custom_params", "pointer"),
    [
        ({"a": [[1]]}, "/custom_params/a must be a number"),
        ({"a": {"b": {}}}, "/custom_params/a must be a number"),
        ({"a": {"b": [1]}}, "/custom_params/a must be a number"),
        ({"a": {1: 2}}, "/custom_params/a must be a number"),
        ({"a": object()}, "/custom_params/a must be a number"),
        ({1: 2}, "/custom_params/1 must be a number"),
        ([1], "/custom_params must be an object, not list"),
        ("text", "/custom_params must be an object, not str"),
        ({"toolspec": "no json"}, f"{HERE} is not valid JSON"),
        ({"toolspec": {"tools": 5}}, f"{HERE}/tools must be a list"),
    ],
)
def test_what_the_scheduler_could_not_decode_is_refused_as_a_value_error(
    custom_params: Any, pointer: str
) -> None:
    with pytest.raises(ValueError, match=f"^{pointer}"):
        checked(custom_params)


@pytest.mark.parametrize(
    "obj",
    [
        SimpleNamespace(),
        SimpleNamespace(sampling_params=None),
        SimpleNamespace(sampling_params={}),
        SimpleNamespace(sampling_params={"custom_params": None}),
        SimpleNamespace(sampling_params=[{}]),
    ],
)
def test_a_request_without_custom_params_passes_untouched(obj: SimpleNamespace) -> None:
    before = dict(vars(obj))

    assert check_custom_params(None, obj) is None

    assert vars(obj) == before


def chat_tool(name: str, parameters: Any = None, kind: str = "function") -> SimpleNamespace:
    return SimpleNamespace(type=kind, function=SimpleNamespace(name=name, parameters=parameters))


def attached(tools: list[Any], choice: Any, custom_params: Any = None) -> Any:
    """``custom_params`` after the hook, for a chat request with ``tools`` and ``choice``."""
    serving = SimpleNamespace(_effective_tools=lambda request: request.tools)
    request = SimpleNamespace(tools=tools, tool_choice=choice)
    adapted = SimpleNamespace(sampling_params={"top_p": 0.9, "custom_params": custom_params})
    result = (adapted, request)

    assert attach_chat_tools(result, serving, request) is result

    assert adapted.sampling_params["top_p"] == 0.9
    return adapted.sampling_params["custom_params"]


CHAT_TOOLS = [chat_tool("weather", WEATHER), chat_tool("time"), chat_tool("web", kind="builtin")]


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
def test_chat_tools_and_choice_reach_the_custom_params(choice: str) -> None:
    params = attached(CHAT_TOOLS, choice)

    expected = ToolRequest.from_object({"tools": TOOLS, "tool_choice": choice})
    assert params == {"toolspec": expected.to_wire()}


def test_a_named_chat_choice_reaches_the_custom_params() -> None:
    choice = SimpleNamespace(type="function", function=SimpleNamespace(name="time"))

    params = attached(CHAT_TOOLS, choice)

    assert ToolRequest.from_wire(params["toolspec"]).tool_choice == "time"


def test_other_custom_params_of_a_chat_request_are_kept() -> None:
    given = {"mine": 1}

    params = attached(CHAT_TOOLS, "auto", given)

    assert params["mine"] == 1
    assert "toolspec" in params
    assert given == {"mine": 1}


def test_a_field_that_the_client_set_is_left_alone() -> None:
    assert attached(CHAT_TOOLS, "auto", {"toolspec": "own"}) == {"toolspec": "own"}


def test_a_chat_request_without_tools_is_left_alone() -> None:
    assert attached([], "none") is None


def test_duplicate_tool_names_are_served_without_drafts(caplog: pytest.LogCaptureFixture) -> None:
    assert attached([chat_tool("time"), chat_tool("time")], "auto") is None
    assert "without schema drafts" in caplog.text
    assert "repeats the tool name 'time'" in caplog.text


def test_settings_have_defaults_and_ignore_foreign_variables() -> None:
    environ = {"PATH": "/bin", "TOOLSPEC_CACHE": "/c", "TOOLSPEC_DATA": "/d"}

    assert Config.from_env(environ) == Config(overlap=False, fixed_width=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("on", True), ("True", True), ("YES", True), ("0", False), ("off", False), ("", False)],
)
def test_settings_are_switches(text: str, value: bool) -> None:
    assert Config.from_env({"TOOLSPEC_OVERLAP": text}) == Config(overlap=value)
    assert Config.from_env({"TOOLSPEC_FIXED_WIDTH": text}) == Config(fixed_width=value)
    assert Config.from_env({"TOOLSPEC_PROMPT_TOOLS": text}) == Config(prompt_tools=value)


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"unknown setting TOOLSPEC_OVERLAPP; known are .*TOOLSPEC_OVERLAP"):
        Config.from_env({"TOOLSPEC_OVERLAPP": "1"})


def test_a_bad_value_is_refused() -> None:
    with pytest.raises(UserError, match="TOOLSPEC_OVERLAP='maybe' is neither on nor off; use 1 or 0"):
        Config.from_env({"TOOLSPEC_OVERLAP": "maybe"})


def test_sources_are_names_between_commas() -> None:
    assert Config().sources == {"schema", "copy", "value", "suffix", "history", "recycling"}
    assert Config.from_env({"TOOLSPEC_SOURCES": " schema, suffix,"}).sources == {"schema", "suffix"}
    assert Config.from_env({"TOOLSPEC_SOURCES": ""}).sources == set()


def test_the_file_of_records_is_a_path() -> None:
    assert Config.from_env({"TOOLSPEC_RECORD": "r.jsonl"}).record == Path("r.jsonl")
    assert Config.from_env({"TOOLSPEC_RECORD": ""}).record is None


def test_an_unknown_source_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="TOOLSPEC_SOURCES has the unknown source 'ngram'; known are schema"):
        Config.from_env({"TOOLSPEC_SOURCES": "schema,ngram"})


def test_a_recipe_has_a_name_and_its_sources():
    assert Config.from_env({"TOOLSPEC_RECIPE": "paper"}).used_sources == {"schema", "history", "recycling"}
    with pytest.raises(UserError, match="TOOLSPEC_RECIPE='papr' is no recipe; known are full, paper"):
        Config.from_env({"TOOLSPEC_RECIPE": "papr"})
