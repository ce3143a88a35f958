"""Rows from files: each public format, logs and traces, and what a wrong file says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sglang_toolspec.bench.workloads import load, load_all, read_items
from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.tools import ToolSet
from tests.engine.prompts import ASSISTANT

FIXTURES = Path(__file__).parent / "fixtures" / "bench"


def rows(name):
    return load(str(FIXTURES / name)).rows


def schema(row, tool=0):
    return row.tools[tool]["function"]["parameters"]


NAMES = ["apibank.json", "bfcl.json", "toolalpaca.json", "toolbench.json", "log.jsonl"]


@pytest.mark.parametrize("name", NAMES)
def test_the_format_of_a_public_file_is_recognised(name):
    given = f"{name.split('.')[0].replace('log', 'chat')}:{FIXTURES / name}"
    assert load(given).rows == rows(name)
    for row in rows(name):
        ToolSet.from_openai(row.tools)  # what a chat request with them would be


def test_apibank_reads_tools_out_of_the_text_and_keeps_it_as_raw_system():
    first, second = rows("apibank.json")
    assert [t["function"]["name"] for t in first.tools] == ["WaterPlants", "SoilMoisture"]
    assert schema(first)["properties"]["litres"]["type"] == "integer"
    assert first.raw_system.startswith("\nGenerate an API request")
    assert first.messages == [{"role": "user", "content": "User: Give the tomatoes 12 litres.\nAI: Sure.\n"
                                                          "Generate API Request:\n"}]  # fmt: skip
    assert second.tools[0]["function"]["name"] == "ToolSearcher"


def test_bfcl_types_become_json_schema_but_a_parameter_called_type_stays():
    first, second, third = rows("bfcl.json")
    properties = schema(first)["properties"]
    assert schema(first)["type"] == "object"
    assert properties["litres"]["type"] == "number"
    assert properties["colours"] == {"type": "array", "items": {"type": "string"}}
    assert properties["type"] == {"description": "A parameter that is called type."}
    assert properties["options"]["properties"]["gloss"]["type"] == "boolean"
    assert [m["content"] for m in second.messages] == ["Be brief.", "Dry it."]
    assert third.messages == [{"role": "user", "content": "What does white cost?"}]
    assert schema(third)["properties"]["colour"]["type"] == "string"


def test_toolalpaca_takes_parameters_bodies_and_what_they_refer_to():
    first, second = rows("toolalpaca.json")
    assert first.id == "Lighthouses-0"
    assert first.messages != second.messages
    found, booked = (schema(first, i) for i in range(2))
    assert found["required"] == ["coast"]
    assert found["properties"]["coast"]["enum"] == ["north", "west"]
    assert booked["properties"]["guest"] == {"$ref": "#/components/schemas/Guest"}
    assert booked["components"]["schemas"]["Guest"]["properties"]


def test_toolbench_names_functions_and_tells_required_parameters():
    first, second = rows("toolbench.json")
    assert first.tools[0]["function"]["name"] == "connections_from_to_for_night_trains"
    assert schema(first)["required"] == ["from", "to"]
    assert schema(first)["properties"]["beds"]["type"] == "number"
    assert (first.id, second.id) == ("17", "18")


def test_a_log_keeps_what_shapes_the_reply_and_not_its_sampling():
    body, batch, *_ = rows("log.jsonl")
    assert (body.id, batch.id) == ("0", "batch-7")
    assert body.tool_choice == "required"
    assert body.options == {"response_format": {"type": "json_object"}}
    assert batch.tools == []


def test_a_trace_is_asked_turn_by_turn_and_a_repeated_id_stays_a_row_of_its_own():
    _, _, first, last, prompt = rows("log.jsonl")
    assert (first.id, last.id, prompt.id) == ("trace/0", "trace/1", "trace")
    assert [m["role"] for m in first.messages] == ["user"]
    assert [m["role"] for m in last.messages] == ["user", "assistant", "tool"]
    assert prompt.prompt == "Once upon a time"
    assert first.tools[0]["function"]["name"] == "lamp"


def test_a_repeated_id_gets_a_number(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}\n{"id": "a#2", "prompt": "z"}\n')
    assert [row.id for row in load(str(log)).rows] == ["a", "a#2", "a#2#2"]


def test_the_sample_needs_no_data_and_has_chats_without_tools():
    sample = load("sample")
    assert len(sample.rows) >= 20
    assert {bool(row.tools) for row in sample.rows} == {True, False}
    assert {row.tool_choice for row in sample.rows} == {"auto", "required"}
    assert load(str(ASSISTANT), limit=3).rows[1].tool_choice == "required"
    assert len(load(str(ASSISTANT), limit=3).rows) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no rows"),
        ("[]", "has no rows"),
        ('{"messages": [', "line 1: not JSON"),
        ('{"messages": []}\n{"mess', "line 2: not JSON"),
        ("[1]", "holds 1 where a row"),
        ('{"instruction": "x"}', "row 1: not in the format 'chat'"),
        ('{"messages": [{"content": "x"}]}', "a message without a role"),
        ('{"question": [[]], "function": [{}]}', "row 1: not in the format 'bfcl'"),
        ('{"id": "multi_turn_0", "question": [[]]}', "not in the format 'bfcl' (KeyError: 'function')"),
    ],
)
def test_a_wrong_file_is_named_with_its_row(tmp_path, text, says):
    file = tmp_path / "rows.json"
    file.write_text(text)
    with pytest.raises(UserError, match=r"rows\.json") as told:
        load(str(file))
    assert says in str(told.value)


def test_files_that_are_not_there_and_formats_that_are_not_known():
    with pytest.raises(UserError, match=r"nowhere\.jsonl cannot be read"):
        load("nowhere.jsonl")
    with pytest.raises(UserError, match=r"unknown format 'bfc'.*known are assistant, bfcl"):
        load("bfc:nowhere.jsonl")
    with pytest.raises(UserError, match="two workloads are called 'sample'"):
        load_all(["sample", "sample"])


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("sglang_toolspec.bench.workloads.MAX_BYTES", 10)
    (tmp_path / "big.json").write_text(json.dumps(["x" * 20]))
    with pytest.raises(UserError, match=r"big\.json has more than"):
        read_items(tmp_path / "big.json")
