"""What users are told of the drafts of their requests, by a server that answers several at once."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from sglang_toolspec.cli import app
from sglang_toolspec.runtime.attribution import PREFILL, TARGET
from tests.engine.client import TIMEOUT_S, Client, at_once
from tests.engine.prompts import PROMPTS, TOOLS

pytestmark = pytest.mark.engine


def _body(rid: str, prompt: str, **sampling: Any) -> dict[str, Any]:
    params = {"temperature": 0, "max_new_tokens": 48, "custom_params": {"toolspec": {"tools": TOOLS}}}
    return {"text": prompt, "rid": rid, "sampling_params": {**params, **sampling}}


def _told(client: Client, rid: str) -> dict[str, Any]:
    reply = httpx.get(f"{client.url}/toolspec/requests/{rid}", timeout=TIMEOUT_S)
    assert reply.status_code == 200, reply.text
    return reply.json()


def _assert_adds_up(told: dict[str, Any], meta: dict[str, Any]) -> None:
    """SGLang's own counts are those of the sources."""
    flat = [source for step in told["steps"] for source in step]
    accepted = sum(told["accepted"].values())
    assert told["finished"] is True
    assert told["tokens"] == len(flat) == meta["completion_tokens"]
    assert told["verify_steps"] == meta["spec_verify_ct"]
    assert (flat.count(PREFILL), accepted + flat.count(TARGET) + 1) == (1, told["tokens"])
    # The last step may be cut before the target's own token.
    assert told["verify_steps"] - flat.count(TARGET) in (0, 1)
    assert all(told["proposed"][source] >= count for source, count in told["accepted"].items())


def test_a_request_tells_of_its_drafts_as_soon_as_it_is_answered(small_toolspec: Client) -> None:
    for i, prompt in enumerate(PROMPTS):
        meta = small_toolspec.post("/generate", _body(f"plain-{i}", prompt)).json()["meta_info"]
        _assert_adds_up(_told(small_toolspec, f"plain-{i}"), meta)


def test_a_streamed_request_tells_of_its_drafts(small_toolspec: Client) -> None:
    body = {**_body("streamed", PROMPTS[1], regex=r'\{"name": "alpha", "x": (1|2)\}'), "stream": True}
    meta = list(small_toolspec.events("/generate", body))[-1]["meta_info"]
    told = _told(small_toolspec, "streamed")
    _assert_adds_up(told, meta)
    assert sum(told["accepted"].values()) > 0


def test_a_chat_reply_tells_of_its_drafts_by_the_id_that_it_carries(small_toolspec: Client) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": PROMPTS[1]}],
        "tools": TOOLS,
        "tool_choice": "required",
        "temperature": 0,
        "max_tokens": 40,
        "return_meta_info": True,
    }
    reply = small_toolspec.post("/v1/chat/completions", body).json()
    told = _told(small_toolspec, reply["id"])
    _assert_adds_up(told, reply["choices"][0]["meta_info"])
    assert told["accepted"].get("schema", 0) + told["accepted"].get("grammar", 0) > 0


def test_requests_that_run_together_keep_apart(small_toolspec: Client) -> None:
    def ask(i: int) -> dict[str, Any]:
        body = _body(f"together/{i}", PROMPTS[i % len(PROMPTS)], max_new_tokens=5 + 3 * i, ignore_eos=True)
        return small_toolspec.post("/generate", body).json()["meta_info"]

    metas = at_once(ask, range(16), 8)
    for i, meta in enumerate(metas):
        assert meta["completion_tokens"] == 5 + 3 * i
        _assert_adds_up(_told(small_toolspec, f"together/{i}"), meta)


def test_a_retracted_request_is_told_whole(small_toolspec: Client) -> None:
    """In this server's little memory long replies push each other out."""

    def ask(i: int) -> dict[str, Any]:
        body = _body(f"long-{i}", PROMPTS[i], max_new_tokens=400, min_new_tokens=400)
        return small_toolspec.post("/generate", body).json()["meta_info"]

    metas = at_once(ask, range(8), 8)
    assert any(meta["num_retractions"] for meta in metas)
    for i, meta in enumerate(metas):
        told = _told(small_toolspec, f"long-{i}")
        prefills = sum(step == [PREFILL] for step in told["steps"])
        assert told["tokens"] == sum(map(len, told["steps"])) == meta["completion_tokens"]
        assert prefills <= 1 + meta["num_retractions"]


def test_a_running_request_is_told_so_far(small_toolspec: Client) -> None:
    body = {**_body("running", "Count", max_new_tokens=1500, ignore_eos=True), "stream": True}
    with httpx.stream("POST", small_toolspec.url + "/generate", json=body, timeout=TIMEOUT_S) as reply:
        lines = reply.iter_lines()  # closing it hangs up
        for _ in range(6):
            next(lines)
        told = _told(small_toolspec, "running")
        assert told["finished"] is False
        assert told["tokens"] >= 1
    for _ in range(100):  # until SGLang has noticed that the client hung up
        if _told(small_toolspec, "running")["finished"]:
            return
        time.sleep(0.2)
    raise AssertionError(_told(small_toolspec, "running"))


@pytest.mark.parametrize("rid", ["nobody", "HEALTH_CHECK", "%00", "x" * 2000])
def test_an_unknown_request_is_404(small_toolspec: Client, rid: str) -> None:
    reply = httpx.get(f"{small_toolspec.url}/toolspec/requests/{rid}", timeout=30)
    assert reply.status_code == 404
    assert "no drafts are known" in reply.json()["message"]


def test_a_server_without_toolspec_says_so(small_plain: Client) -> None:
    reply = httpx.get(f"{small_plain.url}/toolspec/requests/any", timeout=30)
    assert (reply.status_code, "does not run TOOLSPEC" in reply.text) == (404, True)


def test_metrics_stand_beside_those_of_sglang(small_toolspec: Client) -> None:
    small_toolspec.generate(PROMPTS[1], TOOLS, regex=r'\{"name": "alpha", "x": (1|2)\}')
    text = httpx.get(small_toolspec.url + "/metrics", timeout=30, follow_redirects=True).text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("sglang_toolspec_"):
                assert sample.labels["model_name"]
                what = sample.labels.get("source", sample.labels.get("reason", ""))
                found[sample.name.removeprefix("sglang_toolspec_"), what] = sample.value
    assert "sglang:num_running_reqs" in text
    replies = small_toolspec.stats()["replies"]
    assert found["tokens_total", ""] == replies["tokens"]
    assert found["verify_steps_total", ""] == replies["verify_steps"]
    assert found["requests_total", ""] == replies["finished"]
    for name in ("proposed", "accepted"):
        by_source = {source: value for (n, source), value in found.items() if n == f"{name}_tokens_total"}
        assert by_source == replies[name]
    assert found["drafting_seconds_total", ""] > 0
    assert found["sessions", ""] == 0
    assert replies["accept_length"] > 1
    assert len(json.dumps(small_toolspec.stats())) < 4000


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_trace_shows_a_reply_with_its_sources(small_toolspec: Client, options: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["trace", small_toolspec.url, "--chat", "Call beta", *options])
    assert result.exit_code == 0, result.output
    if options:
        found = json.loads(result.stdout)
        assert len(found["output"]) == found["tokens"]
        assert all(isinstance(token["text"], str) for token in found["output"])
    else:
        assert "verify steps, accept length" in result.stdout
