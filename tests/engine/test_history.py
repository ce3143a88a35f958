"""The history of past calls in a running server: captured, used, kept apart, and never wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.client import Client, at_once
from tests.engine.prompts import PROMPTS, TOOLS

pytestmark = pytest.mark.engine


def _call(client: Client, prompt: str, salt: str = "") -> tuple[list[int], float]:
    """A forced call, which ends by itself: token ids and accept length."""
    body: dict[str, Any] = {
        "model": "m", "messages": [{"role": "user", "content": prompt}], "tools": TOOLS,
        "tool_choice": "required", "temperature": 0, "max_tokens": 200, "return_meta_info": True,
    }  # fmt: skip
    if salt:
        body["cache_salt"] = salt
    reply = client.post("/v1/chat/completions", body, headers={"x-sglext-return-output-ids": "1"}).json()
    meta = reply["choices"][0]["meta_info"]
    return reply["sglext"]["output_ids"][0], meta.get("spec_accept_length", 1.0)


def test_a_warm_history_makes_replies_faster_and_leaves_them_as_they_are(
    small_plain: Client, small_toolspec: Client
) -> None:
    expected = [ids for ids, _ in at_once(lambda p: _call(small_plain, p, "warm"), PROMPTS, 8)]
    cold = at_once(lambda p: _call(small_toolspec, p, "warm"), PROMPTS, 8)
    warm = at_once(lambda p: _call(small_toolspec, p, "warm"), PROMPTS, 8)
    assert [ids for ids, _ in cold] == expected
    assert [ids for ids, _ in warm] == expected
    assert small_toolspec.stats()["history"]["entries"] > 0
    assert sum(length for _, length in warm) > 1.2 * sum(length for _, length in cold)


def test_a_flushed_prefix_cache_changes_nothing(small_plain: Client, small_toolspec: Client) -> None:
    before = [ids for ids, _ in at_once(lambda p: _call(small_toolspec, p), PROMPTS, 8)]
    assert small_toolspec.post("/flush_cache", {}).status_code == 200
    after = [ids for ids, _ in at_once(lambda p: _call(small_toolspec, p), PROMPTS, 8)]
    assert after == before == [ids for ids, _ in at_once(lambda p: _call(small_plain, p), PROMPTS, 8)]


def test_a_shared_prefix_with_cancelled_requests_leaves_the_others_as_they_are(
    small_plain: Client, small_toolspec: Client
) -> None:
    prefix = "One of the tools alpha, beta and get_city. " * 6
    prompts = [f"{prefix} Number {i}." for i in range(8)]

    def ask(numbered: tuple[int, str]) -> list[int] | None:
        i, prompt = numbered
        if i % 3 == 2:
            small_toolspec.post("/abort_request", {"rid": f"shared-{i - 1}"})
        body = {"text": prompt, "rid": f"shared-{i}",
                "sampling_params": {"temperature": 0, "max_new_tokens": 40, "ignore_eos": True}}  # fmt: skip
        reply = small_toolspec.post("/generate", body).json()
        return reply["output_ids"] if reply["meta_info"]["finish_reason"]["type"] == "length" else None

    got = at_once(ask, enumerate(prompts), 8)
    expected = [small_plain.generate(p, max_new_tokens=40, ignore_eos=True)["output_ids"] for p in prompts]
    kept = [(a, b) for a, b in zip(got, expected, strict=True) if a is not None]
    assert len(kept) >= 4
    assert all(a == b for a, b in kept)


def _hidden(client: Client, prompt: str) -> np.ndarray:
    """Hidden states of a reply, float ``[rows, hidden]``."""
    body = {"text": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True},
            "return_hidden_states": True}  # fmt: skip
    states = client.post("/generate", body).json()["meta_info"]["hidden_states"]
    return np.concatenate([np.atleast_2d(np.asarray(state, np.float32)) for state in states])


def test_clients_get_the_hidden_states_of_their_own_tokens(
    small_plain: Client, small_toolspec: Client
) -> None:
    prompts = [f"{p} hidden" for p in PROMPTS[:4]]
    expected = at_once(lambda p: _hidden(small_plain, p), prompts, 4)
    got = at_once(lambda p: _hidden(small_toolspec, p), prompts, 4)
    for plain, ours in zip(expected, got, strict=True):
        rows = min(len(plain), len(ours))  # a prefix that is cached has none
        assert rows >= 12
        assert np.allclose(plain[-rows:], ours[-rows:], atol=1e-3)
