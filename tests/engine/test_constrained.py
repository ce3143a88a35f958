"""Constrained requests under drafts: plain decoding's reply, whole, valid, and nothing behind its end."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.engine.client import Client, at_once
from tests.engine.prompts import PROMPTS

pytestmark = [pytest.mark.engine, pytest.mark.long]

SCHEMA = {
    "type": "object",
    "properties": {
        "zq_field": {"enum": ["left", "right"]},
        "kind": {"const": "flip"},
        "steps": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
        "inner": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
                  "additionalProperties": False},
    },
    "required": ["zq_field", "kind", "steps", "inner"],
    "additionalProperties": False,
}  # fmt: skip
"""Ends by itself, also when random weights write it; keys that no model would choose."""
REGEX = r'\{"name": "(alpha|beta)", "x": (1|2)\}'
EBNF = 'root ::= "yes, " ("left" | "right") "."'
TAG = {"begin": "<flip>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</flip>"}


def _fits(text: str) -> bool:
    return Draft202012Validator(SCHEMA).is_valid(json.loads(text))


CONSTRAINTS: dict[str, tuple[dict[str, Any], Any]] = {
    "json_schema": ({"json_schema": json.dumps(SCHEMA)}, _fits),
    "constant": ({"json_schema": json.dumps({"const": 1})}, lambda text: text == "1"),
    "regex": ({"regex": REGEX}, lambda text: re.fullmatch(REGEX, text)),
    "ebnf": ({"ebnf": EBNF}, lambda text: re.fullmatch(r"yes, (left|right)\.", text)),
    "structural_tag": (
        {"structural_tag": json.dumps({"type": "structural_tag", "format": {"type": "tag", **TAG}})},
        lambda text: _fits(text.removeprefix("<flip>").removesuffix("</flip>")),
    ),
}
"""Sampling parameters, and whether a reply is what they ask for."""


@pytest.mark.parametrize(("sampling", "fits"), CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_a_constrained_reply_is_that_of_plain_decoding_and_ends_where_it_must(
    small_plain: Client, small_toolspec: Client, sampling: dict[str, Any], fits: Any
) -> None:
    for prompt in PROMPTS[:4]:
        expected, got = (
            client.generate(prompt, max_new_tokens=300, **sampling)
            for client in (small_plain, small_toolspec)
        )
        assert got["text"] == expected["text"]
        assert fits(got["text"].strip())
        meta = got["meta_info"]
        assert meta["finish_reason"]["type"] == "stop"
        assert meta["spec_verify_ct"] < max(2, meta["completion_tokens"])
    if "const" not in str(sampling):
        assert meta["spec_accept_length"] > 1.5


def test_free_and_constrained_requests_of_one_batch_keep_apart(
    small_plain: Client, small_toolspec: Client
) -> None:
    """A mask of one request must not hold its neighbours, nor be held by their drafts."""
    kinds = [{}, *(sampling for sampling, _ in CONSTRAINTS.values())]

    def ask(client: Client, i: int) -> str:
        kind = kinds[i % len(kinds)]
        return client.generate(f"{PROMPTS[i % 3]} {i}", max_new_tokens=120, **kind)["text"]

    expected = [ask(small_plain, i) for i in range(12)]
    assert at_once(lambda i: ask(small_toolspec, i), range(12), 8) == expected


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_format_is_kept_by_a_chat(
    small_plain: Client, small_toolspec: Client, stream: bool
) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Flip?"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "flip", "schema": SCHEMA}},
        "temperature": 0,
        "max_tokens": 300,
    }

    def content(client: Client) -> str:
        if not stream:
            (choice,) = client.post("/v1/chat/completions", body).json()["choices"]
            assert choice["finish_reason"] == "stop"
            return choice["message"]["content"]
        events = client.events("/v1/chat/completions", {**body, "stream": True})
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        return "".join(delta.get("content") or "" for delta in deltas)

    text = content(small_toolspec)
    assert text == content(small_plain)
    assert _fits(text)
