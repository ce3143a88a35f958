"""Greedy float32: token ids with TOOLSPEC equal those of plain decoding."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.engine.client import Client, assert_same, at_once
from tests.engine.prompts import PROMPTS, TOOLS, tool, tool_calling_rows
from tests.engine.reference import Reference

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
        assert_same(plain, ids, a, b)


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


def test_logprobs_are_those_of_plain_decoding(small_plain: Client, small_toolspec: Client) -> None:
    body = {
        "text": 'Repeat: {"name": "alpha"',
        "sampling_params": {
            "temperature": 0,
            "max_new_tokens": 24,
            "regex": r'\{"name": "alpha", "x": (1|2)\}',
        },
        "return_logprob": True,
        "top_logprobs_num": 2,
    }
    ours = {**body["sampling_params"], "custom_params": {"toolspec": {"tools": TOOLS}}}  # type: ignore[dict-item]
    plain = small_plain.post("/generate", body).json()["meta_info"]
    drafted = small_toolspec.post("/generate", {**body, "sampling_params": ours}).json()["meta_info"]
    assert drafted["spec_accept_length"] > 1.2
    for name in ("output_token_logprobs", "output_top_logprobs"):
        flat_plain, flat_ours = _numbers(plain[name]), _numbers(drafted[name])
        assert flat_plain == pytest.approx(flat_ours, abs=1e-3), name


def _numbers(value: Any) -> list[float]:
    if isinstance(value, list):
        return [n for item in value for n in _numbers(item)]
    return [float(value)] if isinstance(value, int | float) else []


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
def test_real_model_replies_are_greedy(real_toolspec: Client, real_model: str) -> None:
    """The reference is not SGLang: ``make accept`` compares with its plain decoding, on more rows."""
    tokenizer, reference = AutoTokenizer.from_pretrained(real_model), Reference(real_model)
    accept_lengths = []
    for row in tool_calling_rows(4):
        ids = tokenizer.apply_chat_template(row["messages"], add_generation_prompt=True, return_dict=False)
        reply = real_toolspec.generate(ids, tools=row["tools"], max_new_tokens=60)
        assert reply["output_ids"]
        reference.assert_greedy(ids, reply["output_ids"])
        accept_lengths.append(reply["meta_info"]["spec_accept_length"])
    assert max(accept_lengths) > 1.5, "drafts were never accepted"


@pytest.mark.model
def test_real_model_calls_a_tool_in_few_steps(real_toolspec: Client) -> None:
    tools = [
        tool("get_weather", ["city", "unit"], city={"type": "string"}, unit={"enum": ["celsius", "kelvin"]}),
        tool("get_time", ["zone"], zone={"type": "string"}),
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
