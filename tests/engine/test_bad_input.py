"""Bad input at each door of the server: one sentence with status 400, and the server goes on."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.engine.client import TIMEOUT_S, Client
from tests.engine.prompts import TOOLS

pytestmark = [pytest.mark.engine, pytest.mark.long]

CYCLIC = {
    "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/Node"}},
}
SELF = {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}
MANY = [{"name": f"tool_{i}", "parameters": {"type": "object", "properties": {}}} for i in range(300)]
LARGE = {"type": "object", "properties": {"a": {"description": "x" * (1 << 20)}}}
SURROGATE = "\ud800"


def _openai(*tools: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": tool} for tool in tools]


def _one(parameters: Any, name: str = "a") -> dict[str, Any]:
    return {"name": name, "parameters": parameters}


def _post(client: Client, path: str, body: Any) -> httpx.Response:
    """In ASCII, so that lone surrogates can be sent."""
    headers = {"Content-Type": "application/json"}
    return httpx.post(client.url + path, content=json.dumps(body), headers=headers, timeout=TIMEOUT_S)


def _chat(client: Client, **body: Any) -> httpx.Response:
    messages = [{"role": "user", "content": "Hi"}]
    given = {"model": "m", "messages": messages, "max_tokens": 4, **body}
    return _post(client, "/v1/chat/completions", given)


def _generate(client: Client, toolspec: Any, text: str = "Hi") -> httpx.Response:
    params = {"max_new_tokens": 4, "custom_params": {"toolspec": toolspec}}
    return _post(client, "/generate", {"text": text, "sampling_params": params})


def _goes_on(client: Client) -> bool:
    return bool(client.generate("Hi", TOOLS, max_new_tokens=4)["output_ids"])


REFUSED_BY_CHAT = {
    "tools are no list": {"tools": 7},
    "a tool is no object": {"tools": [7]},
    "a name is missing": {"tools": _openai({"parameters": {}})},
    "an invalid schema": {"tools": _openai(_one({"type": 7}))},
    "an unknown choice": {"tools": TOOLS, "tool_choice": "perhaps"},
    "an unknown tool": {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nope"}}},
    "required without tools": {"tool_choice": "required"},
}


@pytest.mark.parametrize("body", REFUSED_BY_CHAT.values(), ids=REFUSED_BY_CHAT)
def test_chat_refuses_with_400(small_toolspec: Client, body: dict[str, Any]) -> None:
    reply = _chat(small_toolspec, **body)

    assert reply.status_code == 400, reply.text
    assert reply.json()["message"]
    assert _goes_on(small_toolspec)


SERVED_BY_CHAT = {
    "40 tools": {"tools": _openai(*MANY[:40]), "tool_choice": "none"},
    "a schema that refers to itself": {"tools": _openai(_one(CYCLIC))},
    "a reference in a circle": {"tools": _openai(_one(SELF))},
    "two tools of one name": {"tools": [TOOLS[0], TOOLS[0]]},
    "NUL": {"tools": _openai(_one({"type": "object", "properties": {"\x00": {"enum": ["\x00"]}}}))},
}


@pytest.mark.parametrize("body", SERVED_BY_CHAT.values(), ids=SERVED_BY_CHAT)
def test_chat_serves_odd_tools(small_toolspec: Client, body: dict[str, Any]) -> None:
    assert _chat(small_toolspec, **body).status_code == 200


@pytest.mark.parametrize("tools", [_openai(*MANY), _openai(_one(LARGE))], ids=["300 tools", "1 MB"])
def test_tools_that_do_not_fit_the_context_get_400(small_toolspec: Client, tools: Any) -> None:
    reply = _chat(small_toolspec, tools=tools)

    assert reply.status_code == 400, reply.text
    assert _goes_on(small_toolspec)


REFUSED_BY_GENERATE = {
    "tools are no list": {"tools": 7},
    "a tool is no object": {"tools": [7]},
    "a schema is no object": {"tools": [_one([])]},
    "an unknown choice": {"tools": TOOLS, "tool_choice": "perhaps"},
    "too many tools": {"tools": [_one({}, f"t{i}") for i in range(600)]},
    "too large": {"tools": [_one(LARGE)]},
}


@pytest.mark.parametrize("toolspec", REFUSED_BY_GENERATE.values(), ids=REFUSED_BY_GENERATE)
def test_generate_refuses_with_400_and_one_sentence(small_toolspec: Client, toolspec: Any) -> None:
    reply = _generate(small_toolspec, toolspec)

    assert reply.status_code == 400, reply.text
    message = reply.json()["error"]["message"]
    assert "/custom_params/toolspec" in message
    assert "\n" not in message
    assert _goes_on(small_toolspec)


SERVED_BY_GENERATE = {
    "300 tools": {"tools": MANY},
    "a schema that refers to itself": {"tools": [_one(CYCLIC)]},
    "a reference in a circle": {"tools": [_one(SELF)]},
    "a type that is none": {"tools": [_one({"type": "dict", "properties": 7})]},
    "NUL": {"tools": [_one({"enum": ["\x00"]}, "a\x00b")]},
}


@pytest.mark.parametrize("toolspec", SERVED_BY_GENERATE.values(), ids=SERVED_BY_GENERATE)
def test_generate_drafts_as_far_as_it_can_read(small_toolspec: Client, toolspec: Any) -> None:
    assert _generate(small_toolspec, toolspec).status_code == 200
    assert small_toolspec.stats()["faults"] == {}


@pytest.mark.parametrize("text", ["a\x00b", SURROGATE], ids=["NUL", "lone surrogate"])
def test_odd_characters_are_served_or_refused(small_toolspec: Client, text: str) -> None:
    asked = (
        _generate(small_toolspec, {"tools": TOOLS}, text),
        _generate(small_toolspec, {"tools": [_one({"enum": [text]})]}),
        _chat(small_toolspec, messages=[{"role": "user", "content": text}], tools=TOOLS),
        _chat(small_toolspec, tools=_openai(_one({"enum": [text]}))),
    )

    assert {reply.status_code for reply in asked} <= {200, 400}
    assert _goes_on(small_toolspec)


def _message(client: Client, **body: Any) -> httpx.Response:
    """At Anthropic's door."""
    given = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, **body}
    return _post(client, "/v1/messages", given)


def _anthropic(*tools: Any) -> list[dict[str, Any]]:
    return [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in tools]


REFUSED_BY_MESSAGES = {
    "tools are no list": {"tools": 7},
    "a tool is no object": {"tools": [7]},
    "a schema is missing": {"tools": [{"name": "a"}]},
    "an invalid schema": {"tools": _anthropic(_one({"type": 7}))},
    "an unknown choice": {"tools": _anthropic(_one({})), "tool_choice": {"type": "perhaps"}},
    "an unknown tool": {"tools": _anthropic(_one({})), "tool_choice": {"type": "tool", "name": "nope"}},
    "300 tools": {"tools": _anthropic(*MANY)},
    "1 MB": {"tools": _anthropic(_one(LARGE))},
}


@pytest.mark.parametrize("body", REFUSED_BY_MESSAGES.values(), ids=REFUSED_BY_MESSAGES)
def test_messages_are_refused_with_400(small_toolspec: Client, body: dict[str, Any]) -> None:
    reply = _message(small_toolspec, **body)

    assert reply.status_code == 400, reply.text
    assert _goes_on(small_toolspec)


@pytest.mark.parametrize("parameters", [CYCLIC, SELF, {"enum": ["\x00"]}], ids=["cyclic", "circle", "NUL"])
def test_messages_serve_odd_tools(small_toolspec: Client, parameters: Any) -> None:
    assert _message(small_toolspec, tools=_anthropic(_one(parameters))).status_code == 200
