"""Requests that come, go, break off or ask for too much; the server answers on."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.engine.client import TIMEOUT_S, Client, at_once
from tests.engine.prompts import PROMPTS, TOOLS

pytestmark = pytest.mark.engine


def _assert_sessions_are_freed(client: Client) -> None:
    """A session lives until the next decode step of others, or until its request is collected."""
    for _ in range(50):
        client.generate("Hi", TOOLS, max_new_tokens=8)
        if client.stats()["sessions"] <= 1:
            return
        time.sleep(0.2)
    raise AssertionError(f"sessions left behind: {client.stats()}")


def _stream_and_hang_up(client: Client, prompt: str) -> None:
    body = {
        "text": prompt,
        "stream": True,
        "sampling_params": {
            "max_new_tokens": 1000,
            "ignore_eos": True,
            "custom_params": {"toolspec": {"tools": TOOLS}},
        },
    }
    with httpx.stream("POST", client.url + "/generate", json=body, timeout=TIMEOUT_S) as reply:
        for _, _line in zip(range(3), reply.iter_lines(), strict=False):
            pass


def test_client_that_disconnects_mid_stream_leaves_nothing_behind(small_toolspec: Client) -> None:
    at_once(lambda p: _stream_and_hang_up(small_toolspec, p), PROMPTS, 6)
    _assert_sessions_are_freed(small_toolspec)


def test_aborted_request_ends_and_others_go_on(small_toolspec: Client) -> None:
    def run(number: int) -> str:
        body = {
            "text": "Count",
            "rid": f"abort-{number}",
            "sampling_params": {
                "max_new_tokens": 1500 if number == 0 else 20,
                "ignore_eos": True,
                "custom_params": {"toolspec": {"tools": TOOLS}},
            },
        }
        if number == 1:
            time.sleep(0.3)
            small_toolspec.post("/abort_request", {"rid": "abort-0"})
        reply = small_toolspec.post("/generate", body)
        return reply.json().get("meta_info", {}).get("finish_reason", {}).get("type", "refused")

    kinds = at_once(run, range(4), 4)
    assert kinds[0] in ("abort", "refused")
    assert kinds[1:] == ["length"] * 3


def test_64_queued_requests_with_8_running(small_toolspec: Client, small_plain: Client) -> None:
    _assert_queued_requests_are_answered(small_toolspec, small_plain)


@pytest.mark.long
def test_64_queued_requests_with_4_running(recording: tuple[Client, Path], small_plain: Client) -> None:
    _assert_queued_requests_are_answered(recording[0], small_plain)


def _assert_queued_requests_are_answered(ours: Client, small_plain: Client) -> None:
    lengths = [4 + (i * 7) % 40 for i in range(64)]

    def ask(client: Client, i: int) -> list[int]:
        tools = TOOLS if i % 3 else None  # trees of different width, joining and leaving
        return client.generate(PROMPTS[i % len(PROMPTS)], tools, max_new_tokens=lengths[i])["output_ids"]

    got = at_once(lambda i: ask(ours, i), range(64), 64)
    assert got == at_once(lambda i: ask(small_plain, i), range(64), 16)
    _assert_sessions_are_freed(ours)
    assert ours.stats()["faults"] == {}


def test_prompt_longer_than_the_context_is_a_clear_error(small_toolspec: Client) -> None:
    reply = small_toolspec.post("/generate", {"input_ids": [5] * 5000, "sampling_params": {}})
    assert reply.status_code == 400
    assert "longer than" in reply.text
    assert small_toolspec.generate("Hi", TOOLS)["output_ids"]


def test_context_filled_by_the_reply_ends_cleanly(small_toolspec: Client) -> None:
    reply = small_toolspec.generate([5] * 1990, TOOLS, max_new_tokens=56, ignore_eos=True)
    assert reply["meta_info"]["finish_reason"]["type"] == "length"


def test_prefix_cache_hits_do_not_change_replies(small_plain: Client, small_toolspec: Client) -> None:
    shared = "system text " * 30
    prompts = [shared + p for p in PROMPTS]
    cold = at_once(lambda p: small_toolspec.generate(p, TOOLS)["output_ids"], prompts, 6)
    warm = at_once(lambda p: small_toolspec.generate(p, TOOLS), prompts, 6)
    assert all(r["meta_info"]["cached_tokens"] > 0 for r in warm)
    assert [r["output_ids"] for r in warm] == cold
    assert cold == at_once(lambda p: small_plain.generate(p)["output_ids"], prompts, 6)


def test_flush_cache_leaves_a_working_server(small_toolspec: Client) -> None:
    assert small_toolspec.post("/flush_cache", {}).status_code == 200
    assert small_toolspec.generate("Hi", TOOLS)["output_ids"]


@pytest.mark.parametrize(
    ("custom_params", "says"),
    [
        ({"nested": {"a": {"b": 1}}}, "/custom_params/nested"),
        ({"toolspec": "{not json"}, "not valid JSON"),
        ({"toolspec": {"tools": 7}}, "/custom_params/toolspec/tools"),
        ({"toolspec": {"tools": [{"name": ""}]}}, "/name"),
        ({"toolspec": {"tools": [], "tool_choice": "nope"}}, "tool_choice"),
        ({"toolspec": {"tool": []}}, "unknown key 'tool'"),
        ({"toolspec": {"tools": [{"name": "a", "parameters": []}]}}, "/parameters"),
        ([1, 2], "custom_params must be an object"),
    ],
)
def test_malformed_custom_params_get_400_and_the_server_goes_on(
    small_toolspec: Client, custom_params: object, says: str
) -> None:
    body = {"text": "Hi", "sampling_params": {"max_new_tokens": 4, "custom_params": custom_params}}
    reply = small_toolspec.post("/generate", body)
    assert reply.status_code == 400, reply.text
    assert says in reply.text
    assert small_toolspec.generate("Hi", max_new_tokens=4)["output_ids"]


def test_chat_with_nested_custom_params_gets_400(small_toolspec: Client) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 4,
        "custom_params": {"deep": [[1]]},
    }
    reply = small_toolspec.post("/v1/chat/completions", body)
    assert reply.status_code == 400, reply.text
    body["custom_params"] = {"fine": [1, 2]}
    assert small_toolspec.post("/v1/chat/completions", body).status_code == 200


def test_tools_we_cannot_draft_for_are_served_all_the_same(small_toolspec: Client) -> None:
    twice = [TOOLS[0], TOOLS[0]]
    assert small_toolspec.chat("Hi", twice, "auto")
