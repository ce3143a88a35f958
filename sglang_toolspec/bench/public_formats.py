"""Readers of the public files of API-Bank, BFCL, ToolAlpaca and ToolBench; see ``chat_formats``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sglang_toolspec.bench.rows import Row, function, user
from sglang_toolspec.grammars.prompt_tools import find_tools

_JSON_TYPES = {
    **dict.fromkeys(("dict", "object", "hashmap", "hashtable"), "object"),
    **dict.fromkeys(("list", "array", "tuple", "arraylist", "queue", "stack"), "array"),
    **dict.fromkeys(("float", "number", "double"), "number"),
    **dict.fromkeys(("integer", "int", "byte", "short", "long", "bigint"), "integer"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("string", "str", "char", "date", "enum"), "string"),
}
"""JSON Schema's name of a type by what data sets write, in lower case. ``any`` is left out."""


def apibank(item: Mapping[str, Any], number: str) -> Iterator[Row]:
    """API-Bank's ``level-*-api.json`` and ``*-train.json``: the tools stand in the text alone."""
    instruction, dialogue = item["instruction"], item["input"]
    found = find_tools(f"{instruction}\n{dialogue}")
    tools = [function(t.name, t.description, t.parameters) for t in found.tools] if found else []
    name = f"{item['file']}-{item.get('id', number)}" if "file" in item else number
    yield Row(name, user(dialogue), tools, raw_system=instruction)


def bfcl(item: Mapping[str, Any], number: str) -> Iterator[Row]:
    """BFCL v1 to v4, the categories whose rows hold their functions; the first turn of a row."""
    question, functions = item["question"], item["function"]
    messages = user(question) if isinstance(question, str) else question
    if messages and isinstance(messages[0], list):
        messages = messages[0]
    tools = [
        function(f["name"], f.get("description", ""), _json_schema(f["parameters"]))
        for f in (functions if isinstance(functions, list) else [functions])
    ]
    yield Row(str(item.get("id", number)), [dict(m) for m in messages], tools)


def toolalpaca(item: Mapping[str, Any], number: str) -> Iterator[Row]:
    """ToolAlpaca's ``eval_*.json`` and ``train_data.json``: an API in OpenAPI terms, and instructions."""
    written = item["Documentation"]
    api = json.loads(written) if isinstance(written, str) else written
    operations = [op for methods in api["paths"].values() for op in methods.values() if "operationId" in op]
    tools = [_operation(op, api) for op in operations]
    for index, instruction in enumerate(item["Instructions"]):
        yield Row(f"{item.get('Name', number)}-{index}", user(instruction), tools)


def toolbench(item: Mapping[str, Any], number: str) -> Iterator[Row]:
    """ToolBench's ``*_query.json`` and ``*_instruction.json``: a query and a list of APIs."""
    tools: dict[str, dict[str, Any]] = {}
    for api in item["api_list"]:
        name = f"{_word(api['api_name'])}_for_{_word(api['tool_name'])}"[-64:]
        required, optional = (api.get(f"{kind}_parameters", ()) for kind in ("required", "optional"))
        schema = {
            "type": "object",
            "properties": {p["name"]: _parameter(p) for p in (*required, *optional)},
            "required": [p["name"] for p in required],
        }
        tools.setdefault(name, function(name, api.get("api_description", "").strip(), schema))
    yield Row(str(item.get("query_id", number)), user(item["query"]), list(tools.values()))


def _json_schema(written: Any) -> Any:
    """``written`` with JSON Schema's names of types, wherever a schema stands in it."""
    if not isinstance(written, Mapping):
        return written
    schema = dict(written)
    if isinstance(schema.get("type"), str) and (kind := _json_type(schema.pop("type"))):
        schema["type"] = kind
    if isinstance(schema.get("properties"), Mapping):
        schema["properties"] = {name: _json_schema(p) for name, p in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in schema:
            schema[key] = _json_schema(schema[key])
    return schema


def _json_type(name: str) -> str | None:
    """``None`` for ``any``; a type that is not known is kept as it is written."""
    return None if name.lower() == "any" else _JSON_TYPES.get(name.lower(), name)


def _operation(operation: Mapping[str, Any], api: Mapping[str, Any]) -> dict[str, Any]:
    """An OpenAPI operation as a tool: its parameters and the fields of its body."""
    properties, required = {}, []
    for parameter in operation.get("parameters", ()):
        described = {"description": parameter.get("description", "")}
        properties[parameter["name"]] = {**parameter.get("schema", {}), **described}
        if parameter.get("required"):
            required.append(parameter["name"])
    for content in operation.get("requestBody", {}).get("content", {}).values():
        properties.update(content["schema"].get("properties", {}))
        required += content["schema"].get("required", ())
    schema = {"type": "object", "properties": properties, "required": list(dict.fromkeys(required))}
    if "components" in api and "$ref" in json.dumps(properties):
        schema["components"] = api["components"]  # where '#/components/schemas/…' leads to
    return function(operation["operationId"], operation.get("description", ""), schema)


def _parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    kind = _json_type(str(parameter.get("type", "any")))
    return {**({"type": kind} if kind else {}), "description": parameter.get("description", "")}


def _word(name: str) -> str:
    """As ToolBench writes names of functions: ``[a-z0-9_]``."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
