"""The demo: its table, its last line, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from sglang_toolspec import demo
from sglang_toolspec.cli import app

ASSISTANT = Path(__file__).resolve().parents[1] / "examples" / "assistant.json"


class Server:
    """Stands for a server process; its address says which algorithm it runs."""

    def __init__(self, model: str, flags: list[str], log: Path):
        self.url = "http://" + flags[flags.index("--speculative-algorithm") + 1]

    def start(self) -> None: ...

    def stop(self) -> None: ...


def reply(url: str, *, json: dict[str, Any], timeout: float) -> httpx.Response:
    """Ten tokens: ten steps of a second plain, two under TOOLSPEC; one where one is asked for."""
    tokens = min(10, json["max_tokens"])
    drafts = "toolspec" in url
    meta = {"completion_tokens": tokens, "e2e_latency": 2.0 if drafts else 10.0}
    if drafts:
        meta["spec_verify_ct"] = 2
    function = {"name": "f", "arguments": json["messages"][0]["content"]}
    message = {"content": None, "tool_calls": [{"function": function}]}
    content = {"choices": [{"message": message, "meta_info": meta}]}
    return httpx.Response(200, json=content, request=httpx.Request("POST", url))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(demo, "ServerProcess", Server)
    monkeypatch.setattr(demo, "machine", lambda: "a machine")

    def call(answer: Any = reply) -> Any:
        monkeypatch.setattr(demo.httpx, "post", answer)
        return CliRunner().invoke(app, ["demo", "--model", str(tmp_path), "--requests", str(ASSISTANT)])

    return call


def test_the_demo_has_enough_requests_over_enough_tools() -> None:
    workload = json.loads(ASSISTANT.read_text())
    assert len(workload["requests"]) >= 24
    assert len(workload["tools"]) >= 6


def test_the_last_line_is_the_result_and_the_table_says_where_it_ran(run: Any) -> None:
    done = run()
    assert done.exit_code == 0, done.output
    (line,) = done.stdout.strip().splitlines()
    found = json.loads(line)
    count = len(json.loads(ASSISTANT.read_text())["requests"])
    plain, ours = found["results"]
    assert plain == {"algorithm": "none", "tokens": 10 * count, "verify_steps": 10 * count,
                     "accept_length": 1.0, "tokens_per_s": 1.0, "speedup": 1.0}  # fmt: skip
    assert ours == {"algorithm": "toolspec", "tokens": 10 * count, "verify_steps": 2 * count,
                    "accept_length": 5.0, "tokens_per_s": 5.0, "speedup": 5.0}  # fmt: skip
    assert (found["same_text"], found["machine"]) == (True, "a machine")
    assert "a machine" in done.stderr
    assert "5.00x" in done.stderr


def test_other_text_is_told(run: Any) -> None:
    def other(url: str, *, json: dict[str, Any], timeout: float) -> httpx.Response:
        said = {**json, "messages": [{"content": "other"}]} if "toolspec" in url else json
        return reply(url, json=said, timeout=timeout)

    done = run(other)
    assert json.loads(done.stdout)["same_text"] is False
    assert "differ" in done.stderr


def test_a_failed_reply_ends_with_another_exit_code(run: Any) -> None:
    def failing(url: str, *, json: dict[str, Any], timeout: float) -> httpx.Response:
        broken = httpx.Response(500, request=httpx.Request("POST", url))
        return broken if "toolspec" in url else reply(url, json=json, timeout=timeout)

    done = run(failing)
    assert done.exit_code == 1
    assert json.loads(done.stdout.strip().splitlines()[-1])["same_text"] is False
    assert "500" in done.stderr
