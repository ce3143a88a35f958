"""``sglang-toolspec trace``: texts of tokens, the view, and what is said when something is amiss."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sglang_toolspec import trace_client
from sglang_toolspec.cli import app
from sglang_toolspec.errors import UserError
from sglang_toolspec.trace_client import token_texts
from tests.test_ledger import told

REPLY = [ord(c) for c in '{"a": "ü"}'.encode().decode("latin-1")]


def decode(lists: list[list[int]]) -> list[str]:
    """One token a byte."""
    assert all(lists)
    return [bytes(ids).decode(errors="replace") for ids in lists]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd")))
def test_the_texts_of_tokens_make_up_the_reply(text: str) -> None:
    texts = token_texts(list(text.encode()), decode)
    assert "".join(texts) == text
    assert len(texts) == len(text.encode())


def test_a_tokenizer_that_drops_the_first_space_loses_one_only() -> None:
    words = ["▁the", "▁cat", "s", "▁sat"] * 5

    def joined(lists: list[list[int]]) -> list[str]:
        return ["".join(words[i] for i in ids).replace("▁", " ").removeprefix(" ") for ids in lists]

    assert "".join(token_texts(list(range(20)), joined)) == "the cats sat" + " the cats sat" * 4


class Server:
    """Answers in place of ``httpx.request``; ``answers`` by the start of the path."""

    def __init__(self, **answers: Any):
        self.asked: list[tuple[str, Any, Any]] = []
        self.answers = {
            "generate": (200, {"output_ids": REPLY, "text": ""}),
            "v1/chat": (200, {"sglext": {"output_ids": [REPLY]}, "choices": []}),
            "toolspec": (200, {"rid": "r", "finished": True, **told("sss", "", "", "cc", "").to_json()}),
            **answers,
        }

    def __call__(self, method: str, url: str, json: Any = None, headers: Any = None, timeout: Any = None):
        path = url.removeprefix("http://server:1/")
        self.asked.append((path, json, headers))
        if path == "v1/detokenize":
            return httpx.Response(200, json={"text": decode(json["tokens"])})
        answer = next(a for start, a in self.answers.items() if path.startswith(start))
        if isinstance(answer, Exception):
            raise answer
        status, value = answer
        return httpx.Response(status, **({"text": value} if isinstance(value, str) else {"json": value}))


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch):
    def run(server: Server, *options: str, body: Any = None):
        monkeypatch.setattr(trace_client.httpx, "request", server)
        text = body if isinstance(body, str) else json.dumps(body)
        given = ["--request", "-"] if body is not None else []
        return CliRunner().invoke(app, ["trace", "server:1", *given, *options], input=text)

    return run


GENERATE = {"text": "Hi", "sampling_params": {"max_new_tokens": 9}}


def test_each_step_is_a_line_with_its_sources(trace) -> None:
    result = trace(Server(), body=GENERATE)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    heads = [line.split("│")[0].strip() for line in lines if "│" in line]
    assert heads == ["first", "+3", "0 ×2", "+2", "0 ×1"]
    assert '+3 │ "a"¦:   schema 3' in result.stdout
    assert any(line.split() == ["copy", "2", "2", "100", "%"] for line in lines)
    assert "11 tokens in 5 verify steps, accept length 2.20" in result.stdout
    assert "\x1b" not in result.stdout


def test_tokens_of_steps_that_were_not_kept_are_shown_all_the_same(trace) -> None:
    answer = told("sss", "").to_json()
    result = trace(Server(toolspec=(200, answer)), body=GENERATE)
    assert 'not kept │ "ü"}' in result.stdout


def test_json_has_the_tokens_and_their_sources(trace) -> None:
    found = json.loads(trace(Server(), "--json", body=GENERATE).stdout)
    assert "".join(token["text"] for token in found["output"]) == '{"a": "ü"}'
    assert len(found["output"]) == found["tokens"] == sum(map(len, found["steps"]))


def test_a_chat_goes_with_its_own_id_and_tools(trace, tmp_path) -> None:
    (tmp_path / "tools.json").write_text('[{"name": "ping", "inputSchema": {"type": "object"}}]')
    server = Server()
    result = trace(server, "--chat", "Hi", "--tools", str(tmp_path / "tools.json"), "--api-key", "k")
    assert result.exit_code == 0, result.output
    (path, body, headers), (asked, _, _) = server.asked[:2]
    assert path == "v1/chat/completions"
    assert [t["function"]["name"] for t in body["tools"]] == ["ping"]
    assert asked == f"toolspec/requests/{body['rid']}"
    assert headers["Authorization"] == "Bearer k"


def test_an_id_of_the_request_is_kept_and_quoted(trace) -> None:
    server = Server()
    trace(server, body={**GENERATE, "rid": "a/b", "stream": True})
    assert server.asked[0][1]["stream"] is False
    assert server.asked[1][0] == "toolspec/requests/a%2Fb"


NOTHING = (404, {"object": "error", "message": "no drafts are known for the request 'r'"})


@pytest.mark.parametrize(
    ("server", "body", "says"),
    [
        (Server(generate=httpx.ConnectError("refused")), GENERATE, "no server answers at http://server:1"),
        (Server(generate=(200, "<html>")), GENERATE, "is not an SGLang server"),
        (Server(generate=(400, {"error": {"message": "bad\nregex"}})), GENERATE, "refuses: bad regex"),
        (Server(generate=(401, {"error": "Unauthorized"})), GENERATE, "--api-key"),
        (Server(generate=(200, {"text": "Hi"})), GENERATE, "has no token ids"),
        (Server(toolspec=(404, {"detail": "Not Found"})), GENERATE, "lacks sglang-toolspec"),
        (Server(toolspec=NOTHING), GENERATE, "no drafts are known"),
        (Server(toolspec=(200, {"tokens": 3})), GENERATE, "tells of drafts in another way"),
        (Server(), {"prompt": "Hi"}, "neither 'messages'"),
        (Server(), [], "must be a JSON object"),
        (Server(), "{", "is not valid JSON"),
        (Server(), {"text": ["a", "b"]}, "asks for several replies"),
        (Server(), {"input_ids": [[1], [2]]}, "asks for several replies"),
        (Server(), {"messages": [], "n": 2}, "asks for several replies"),
        (Server(), None, "either --request FILE or --chat TEXT"),
    ],
)
def test_mistakes_are_one_sentence(trace, server: Server, body: Any, says: str) -> None:
    error = trace(server, body=body).exception
    assert isinstance(error, UserError)
    assert says in str(error)
    assert "\n" not in str(error)


def test_tools_need_a_chat(trace) -> None:
    error = trace(Server(), "--tools", "x.json", body=GENERATE).exception
    assert isinstance(error, UserError)
    assert "--tools is for --chat" in str(error)
