"""Tools in the text of a prompt: the listings that are read, and all that is none."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.grammars.prompt_tools import MAX_SCAN, find_tools
from sglang_toolspec.grammars.tools import MAX_TOOLS, ToolSet


def tool(name, description="", **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


STRING = {"type": "string"}
LAMP = tool("lamp", "Switches a <lamp>; see </tools>.", room=STRING, on={"type": "boolean"})
BLIND = tool("blind", 'Moves {"a": [blind', level={"type": "integer"}, größe={"enum": ["S", "ü"]})
PING = {"type": "function", "function": {"name": "ping"}}
TOOLS = [LAMP, BLIND, PING]
BARE = [LAMP["function"], BLIND["function"]]

CALL = '{"name": "blind", "arguments": {"level": 3}}'
LLAMA_CALL = '{"name": "blind", "parameters": {"level": 3}}'


def qwen(tools):
    lines = "".join(f"\n{json.dumps(t, ensure_ascii=False)}" for t in tools)
    return (
        "<|im_start|>system\nYou help.\n\n# Tools\n\nSignatures stand within <tools></tools> XML tags:\n"
        f"<tools>{lines}\n</tools>\n\nReturn a json object within <tool_call></tool_call> XML tags:\n"
        '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n'
    )


def llama(tools, opening="Given the following functions, please respond with a JSON for a function call"):
    objects = "".join(f"{json.dumps(t, indent=4, ensure_ascii=False)}\n\n" for t in tools)
    return (
        f"<|start_header_id|>user<|end_header_id|>\n\n{opening} with its proper arguments.\n\n"
        'Respond in the format {"name": function name, "parameters": dictionary of arguments}.'
        f"Do not use variables.\n\n{objects}Close the blind.<|eot_id|>"
    )


def mistral(tools, space=" "):
    listed = json.dumps(tools, ensure_ascii=False)
    return f"<s>[AVAILABLE_TOOLS]{space}{listed}{space}[/AVAILABLE_TOOLS][INST] Close it. [/INST]"


def llama_array(tools):
    listed = json.dumps(tools, ensure_ascii=False)
    return (
        f"Here is a list of functions in JSON format that you can invoke.\n\n{listed}\n\nDo not use others."
    )


LAYOUTS = {
    "qwen": qwen,
    "llama": llama,
    "llama system": lambda tools: llama(tools, "You have access to the following functions. To call one,"),
    "llama array": llama_array,
    "mistral": mistral,
    "mistral tight": lambda tools: mistral(tools, ""),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("tools", [TOOLS, BARE, [LAMP]], ids=["wrapped", "bare", "one"])
def test_a_listing_reads_as_the_tools_it_was_written_from(layout, tools):
    assert find_tools(LAYOUTS[layout](tools)) == ToolSet.from_openai(tools)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_descriptions_are_kept(layout):
    found = find_tools(LAYOUTS[layout](TOOLS))
    assert [t.description for t in found.tools] == [LAMP["function"]["description"], 'Moves {"a": [blind', ""]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_listing_without_tools_is_none(layout):
    assert find_tools(LAYOUTS[layout]([])) is None


def names(prompt):
    found = find_tools(prompt)
    return found and [t.name for t in found.tools]


def test_the_last_listing_wins():
    assert names(qwen([LAMP]) + mistral([BLIND])) == ["blind"]
    assert names(mistral([BLIND]) + qwen([LAMP])) == ["lamp"]
    assert names(qwen([LAMP]) + qwen([BLIND])) == ["blind"]
    assert names(llama([LAMP]) + apibank([("blind", "", {})])) == ["blind"]
    assert names(apibank([("blind", "", {})]) + llama([LAMP])) == ["lamp"]


def test_a_last_listing_without_tools_does_not_win():
    assert names(qwen([LAMP]) + qwen([]) + "<tools>") == ["lamp"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call", [CALL, LLAMA_CALL, '{"name": "ping", "parameters": {}}', '{"name": "ping"}'])
def test_a_call_is_no_tool(layout, call):
    assert find_tools(LAYOUTS[layout]([json.loads(call)])) is None
    assert names(LAYOUTS[layout]([json.loads(call), LAMP])) == ["lamp"]
    dialogue = f"{LAYOUTS[layout]([LAMP])}\n<tool_call>\n{call}\n</tool_call>\n"
    assert names(dialogue) == ["lamp"]


@pytest.mark.parametrize(
    "marker",
    ["following functions, please respond with a JSON", "list of functions in JSON format", "<tools>"],
)
def test_a_marker_within_a_description_opens_no_listing(marker):
    tools = [tool("first"), tool("second", f"Gives a {marker}"), tool("third")]
    for layout in LAYOUTS.values():
        assert names(layout(tools)) == ["first", "second", "third"]


def test_what_follows_the_prose_after_a_listing_is_none_of_it():
    assert names(llama([LAMP]) + f"\nWhat is wrong with this?\n{json.dumps(BLIND)}\n") == ["lamp"]


@pytest.mark.parametrize(
    "broken",
    [
        '{"name": "x", "parameters": {"type": "object",}}',
        '{"name": "x", "description": "',
        '{"name": "", "parameters": {"type": "object"}}',
        '{"name": 5, "parameters": {"type": "object"}}',
        '{"name": "x", "parameters": {"type": "object", "a": NaN}}',
        '{"name": "x", "parameters": {"type": "object", "a": 1' + "0" * 5000 + "}}",
        '{"name": "x", "parameters": {"type": "object", "a": ' + "[" * 100 + "]" * 100 + "}}",
        '{"name": "x", "description": ' + "[" * 100_000,
        '{"name": "x", "description": "d", "parameters": "city"}',
        '{"name": "x", "description": "d", "parameters": ["city"]}',
        '{"function": "x"}',
        '[1, "x", null, [{}]]',
        "{}",
    ],
    ids=lambda broken: broken[:50],
)  # fmt: skip
def test_what_is_malformed_is_skipped(broken):
    lines = [json.dumps(LAMP), broken, json.dumps(BLIND)]
    assert names("<tools>\n" + "\n".join(lines) + "\n</tools>") == ["lamp", "blind"]
    assert names("list of functions in JSON format:\n\n" + "\n\n".join(lines)) == ["lamp", "blind"]


def test_a_repeated_name_counts_once():
    again = tool("lamp", room={"type": "integer"})
    assert find_tools(qwen([LAMP, again])) == ToolSet.from_openai([LAMP])


def test_an_unclosed_listing_is_read():
    assert names(qwen([LAMP, BLIND]).split("</tools>\n\n")[0]) == ["lamp", "blind"]


def test_there_are_never_too_many_tools():
    found = find_tools(qwen([{"name": f"t{i}", "description": ""} for i in range(MAX_TOOLS + 9)]))
    assert [t.name for t in found.tools] == [f"t{i}" for i in range(MAX_TOOLS)]


def test_tools_too_large_once_escaped_are_none():
    assert find_tools(qwen([tool("big", word={"const": "ü" * (MAX_SCAN - 2000)})])) is None


def test_only_the_beginning_is_read():
    assert names(" " * (MAX_SCAN - 9000) + qwen([LAMP])) == ["lamp"]
    assert find_tools(" " * MAX_SCAN + qwen([LAMP])) is None


# API-Bank


def apibank(tools):
    lines = [
        f"{i}. Name: {name}\nDescription: {description}\nParameters: {parameters}"
        for i, (name, description, parameters) in enumerate(tools, start=1)
    ]
    return "**Available Tools**\n" + "\n".join(lines) + "\n\n**Output Format**\n"


def apibank_json(tools, opening="API descriptions:\n"):
    lines = [
        json.dumps({"apiCode": name, "description": description, "parameters": parameters, "response": {}})
        for name, description, parameters in tools
    ]
    return f"Generate a request.\n{opening}" + "\n".join(lines) + "\nUser: Book it.\nGenerate API Request:\n"


APIBANK_LAYOUTS = [apibank, apibank_json, lambda tools: apibank_json(tools, "")]
APIBANK = [
    ("Book", "Books a 'room' \"now\".", {"room": {"type": "str", "description": 'Say "it\'s" \\ \t é 🙂'}}),
    ("List", "Lists all.", {}),
    ("Mix", "", {"type": {"type": "int"}, "properties": {"type": "list(str)", "description": "Many."}}),
]


@pytest.mark.parametrize("layout", APIBANK_LAYOUTS)
def test_apibank_listings_become_schemas(layout):
    book, listing, mix = find_tools(layout(APIBANK)).tools
    assert book.description == APIBANK[0][1]
    assert book.parameters == {
        "type": "object",
        "properties": {"room": {"type": "string", "description": 'Say "it\'s" \\ \t é 🙂'}},
    }
    assert (listing.name, listing.parameters) == ("List", {})
    assert mix.properties["type"] == {"type": "integer"}
    assert mix.properties["properties"] == {
        "type": "array", "items": {"type": "string"}, "description": "Many.",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("written", "schema"),
    [
        ("str", {"type": "string"}),
        ("float", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("dict", {"type": "object"}),
        ("List[int]", {"type": "array", "items": {"type": "integer"}}),
        ("list(thing)", {"type": "array"}),
        ("number", {"type": "number"}),
        ("datetime", {}),
        (["str"], {}),
    ],
)
@pytest.mark.parametrize("layout", APIBANK_LAYOUTS)
def test_types_are_read_as_python_writes_them(layout, written, schema):
    (found,) = find_tools(layout([("T", "", {"x": {"type": written}})])).tools
    assert found.properties == {"x": schema}


@pytest.mark.parametrize("layout", APIBANK_LAYOUTS)
def test_required_holds_what_is_said_to_be(layout):
    parameters = {
        "a": {"type": "str", "required": True},
        "b": {"type": "str", "required": False, "default": None},
        "c": {"type": "str"},
    }
    (found,) = find_tools(layout([("T", "", parameters)])).tools
    assert found.parameters["required"] == ["a"]
    assert found.properties["b"] == {"type": "string", "default": None}


@pytest.mark.parametrize(
    "parameters",
    ["{'a': {'type': 'str'", "{'a': open('x')}", "{'a'}", "('a',)", "{'a': 'Oslo'}", "1", "'" * 9, "[" * 999],
)
def test_parameters_that_are_no_literal_of_schemas_drop_their_tool(parameters):
    prompt = apibank([("Bad", "", parameters), ("Good", "", {})])
    assert names(prompt) == ["Good"]


def test_a_description_may_have_several_lines():
    prompt = apibank([("A", "one\ntwo: 2\n\nthree", {}), ("B", "", {})])
    assert [t.description for t in find_tools(prompt).tools] == ["one\ntwo: 2\n\nthree", ""]


def test_lines_apart_are_another_listing():
    both = apibank([("A", "", {})]) + apibank([("B", "", {})])
    assert names(both) == ["B"]
    assert names(apibank_json([("A", "", {})], "") + apibank_json([("B", "", {})], "")) == ["B"]


def test_the_mapping_may_be_json():
    (found,) = find_tools('Name: T\nParameters: {"x": {"type": "str", "default": true}}').tools
    assert found.properties == {"x": {"type": "string", "default": True}}


# Hostile text


FRAGMENTS = [
    "<tools>", "</tools>", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "API descriptions:", '{"apiCode": "a"',
    "list of functions in JSON format", "You have access to the following functions.", "1. Name: a\n",
    "Description: d\n", "Parameters: ", "{'a': {'type': 'str'}}", "\n", " ", ",", "[", "]", "{", "}", '"',
    "'", "\\", '"name":', '"parameters":', "{}", "1e999", "NaN", "\ud800", json.dumps(LAMP), CALL, "None",
]  # fmt: skip


@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=30).map("".join))
def test_garbage_never_raises(prompt):
    found = find_tools(prompt)
    assert found is None or 0 < len(found.tools) <= MAX_TOOLS


@given(st.text())
def test_text_without_a_marker_has_no_tools(prompt):
    assert find_tools(prompt) is None


@pytest.mark.parametrize(
    ("opening", "repeated"),
    [
        ("<tools>", "{\n"),
        ("<tools>", "[1,\n"),
        ("<tools>", '\n{"a'),
        ("<tools>", "\n"),
        ("<tools>\n", " "),
        ("<tools>", "[]"),
        ("", "<tools>"),
        ("", 'list of functions in JSON format\n{"a":"'),
        ("", '\n\n\n{"apiCode":"'),
        ("Parameters:", "Name: x\n"),
        ("Parameters:\nName: x\nDescription: ", "a\n"),
        ("Name: x\nParameters: {'", "\\'"),
        ("", "1. Name: a\nParameters: {'x': 1}\n"),
    ],
)
def test_the_longest_hostile_prompt_takes_no_time(opening, repeated):
    started = time.process_time()
    assert find_tools(opening + repeated * (MAX_SCAN // len(repeated))) is None
    assert time.process_time() - started < 3


# Real prompts


def test_all_of_api_bank_reads_as_its_tools():
    path = Path(os.environ.get("TOOLSPEC_DATA", "")) / "apibank_l1.jsonl"
    if "TOOLSPEC_DATA" not in os.environ or not path.is_file():
        pytest.skip(f"set TOOLSPEC_DATA to the folder that holds {path.name}")
    with path.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            found = find_tools(f"{row['raw_system']}\n{row['messages'][-1]['content']}")
            wanted = ToolSet.from_openai(row["tools"])
            assert [(t.name, [*t.properties]) for t in found.tools] == [
                (t.name, [*t.properties]) for t in wanted.tools
            ]
