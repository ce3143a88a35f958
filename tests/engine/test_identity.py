"""Greedy float32: token ids with TOOLSPEC equal those of plain decoding."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.engine.client import Client, at_once, mismatch
from tests.engine.prompts import PROMPTS, TOOLS, apibank_messages, dataset_rows

pytestmark = pytest.mark.engine

CHOICES: list[Any] = ["auto", "required", {"type": "function", "function": {"name": "beta"}}]


def _same_chat(plain: Client, ours: Client, model: str, tool_choice: Any, concurrency: int) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model)
    expected = at_once(lambda p: plain.chat(p, TOOLS, tool_choice), PROMPTS, concurrency)
    got = at_once(lambda p: ours.chat(p, TOOLS, tool_choice), PROMPTS, concurrency)
    for prompt, a, b in zip(PROMPTS, expected, got, strict=True):
        ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tools=TOOLS, add_generation_prompt=True, return_dict=False
        )
        assert (why := mismatch(plain, ids, a, b)) is None, f"{prompt!r}, {tool_choice}: {why}"


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("tool_choice", CHOICES, ids=["auto", "required", "named"])
def test_chat_replies_are_those_of_plain_decoding(
    small_plain: Client, small_toolspec: Client, small_model: Any, tool_choice: Any, concurrency: int
) -> None:
    _same_chat(small_plain, small_toolspec, str(small_model), tool_choice, concurrency)


def test_streamed_chat_text_is_that_of_plain_decoding(small_plain: Client, small_toolspec: Client) -> None:
    expected = at_once(lambda p: small_plain.chat_stream(p, TOOLS, "auto"), PROMPTS, 8)
    assert at_once(lambda p: small_toolspec.chat_stream(p, TOOLS, "auto"), PROMPTS, 8) == expected


@pytest.mark.parametrize("concurrency", [1, 8])
def test_streamed_generate_is_that_of_plain_decoding(
    small_plain: Client, small_toolspec: Client, concurrency: int
) -> None:
    expected = at_once(lambda p: small_plain.generate_stream(p, TOOLS), PROMPTS, concurrency)
    got = at_once(lambda p: small_toolspec.generate_stream(p, TOOLS), PROMPTS, concurrency)
    assert all(expected)
    assert got == expected


def test_penalties_and_bias_are_those_of_plain_decoding(small_plain: Client, small_toolspec: Client) -> None:
    settings = (
        {"frequency_penalty": 0.7},
        {"presence_penalty": 0.9, "repetition_penalty": 1.3},
        {"min_new_tokens": 30},
        {"logit_bias": {"65": 0.5, "90": 3.0}},
    )
    for extra in settings:
        for prompt in PROMPTS[:3]:
            expected = small_plain.generate(prompt, TOOLS, **extra)["output_ids"]
            assert small_toolspec.generate(prompt, TOOLS, **extra)["output_ids"] == expected, extra


@pytest.mark.model
def test_real_model_replies_are_those_of_plain_decoding(
    real_plain: Client, real_toolspec: Client, real_model: str
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(real_model)
    accept_lengths = []
    for row in dataset_rows("apibank_l1.jsonl", 4):
        ids = tokenizer.apply_chat_template(
            apibank_messages(row), add_generation_prompt=True, return_dict=False
        )
        expected = real_plain.generate(ids, max_new_tokens=40)["output_ids"]
        reply = real_toolspec.generate(ids, tools=row["tools"], max_new_tokens=40)
        assert (why := mismatch(real_plain, ids, expected, reply["output_ids"])) is None, f"{row['id']}: {why}"
        accept_lengths.append(reply["meta_info"]["spec_accept_length"])
    assert max(accept_lengths) > 1.5, "drafts were never accepted"


@pytest.mark.model
def test_real_model_calls_a_tool_in_few_steps(real_toolspec: Client) -> None:
    tools = [
        tool_of("get_weather", city={"type": "string"}, unit={"enum": ["celsius", "fahrenheit"]}),
        tool_of("get_time", zone={"type": "string"}),
    ]
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Weather in Paris in celsius?"}],
        "tools": tools,
        "tool_choice": "required",
        "temperature": 0,
        "max_tokens": 60,
        "return_meta_info": True,
    }
    reply = real_toolspec.post("/v1/chat/completions", body).json()["choices"][0]
    assert reply["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
    assert reply["meta_info"]["spec_accept_length"] > 2.5


def tool_of(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}
