"""SGLang programs against a server: prompts as the OpenAI path has them, calls that validate."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import sglang as sgl

from sglang_toolspec import gen, tool_calls, tool_result
from sglang_toolspec.frontend import endpoint
from tests.engine.client import Client

pytestmark = [pytest.mark.engine, pytest.mark.long]


def flip(side: Literal["left", "right"], loud: bool) -> str:
    """Flip to a side."""
    return f"{side} {loud}"


SCHEMA = {
    "type": "object",
    "properties": {"side": {"enum": ["left", "right"]}, "loud": {"type": "boolean"}},
    "required": ["side", "loud"],
    "additionalProperties": False,
}
STRICT = {"type": "function", "function": {"name": "flip", "parameters": SCHEMA, "strict": True}}


@sgl.function
def program(s: Any, question: str) -> None:
    s += sgl.system("Flip.")
    s += sgl.user(question)
    s += sgl.assistant(gen("call", max_tokens=200, tools=[STRICT], tool_choice="required"))
    for call in tool_calls(s, "call")[:1]:
        s += tool_result(call.arguments)
    s += sgl.assistant("So " + gen("answer", max_tokens=16, tools=[flip], tool_choice="auto"))


def _backend(client: Client) -> Any:
    return sgl.RuntimeEndpoint(client.url)


def test_prompts_have_the_tokens_of_the_openai_path(
    small_toolspec: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    tokenize = endpoint.Endpoint.tokenize

    def noting(self: Any, chat: dict[str, Any]) -> list[int]:
        asked.append({**chat, "tokens": tokenize(self, chat)})
        return asked[-1]["tokens"]

    monkeypatch.setattr(endpoint.Endpoint, "tokenize", noting)
    program.run("To which side?", backend=_backend(small_toolspec), temperature=0).sync()

    assert [m["role"] for m in asked[1]["messages"]] == ["system", "user", "assistant", "tool", "assistant"]
    assert asked[1]["messages"][2]["tool_calls"][0]["function"]["name"] == "flip"
    for chat in asked:
        tokens = chat.pop("tokens")
        body = {"model": "m", "max_tokens": 1, "return_prompt_token_ids": True, **chat}
        (choice,) = small_toolspec.post("/v1/chat/completions", body).json()["choices"]
        assert choice["prompt_token_ids"] == tokens


def test_calls_are_those_of_plain_decoding_and_validate(small_plain: Client, small_toolspec: Client) -> None:
    questions = [{"question": question} for question in ("Left?", "To the right, loudly.", "你好")]
    expected = program.run_batch(questions, backend=_backend(small_plain), temperature=0)
    got = program.run_batch(questions, backend=_backend(small_toolspec), temperature=0)

    for plain, ours in zip(expected, got, strict=True):
        assert (ours["call"], ours["answer"]) == (plain["call"], plain["answer"])
        for call in tool_calls(ours, "call"):
            assert call.arguments["side"] in ("left", "right")
        meta = ours.get_meta_info("call")
        assert meta["spec_accept_length"] > 1
        assert sum(meta["toolspec"]["accepted"].values()) > 0


def test_streams_and_forks(small_toolspec: Client) -> None:
    @sgl.function
    def forked(s: Any) -> None:
        s += sgl.user("Left?")
        forks = s.fork(2)
        forks += sgl.assistant(gen("call", max_tokens=200, tools=[STRICT], tool_choice="flip"))
        forks.join()

    backend = _backend(small_toolspec)
    first, second = tool_calls(forked.run(backend=backend, temperature=0), "call")
    assert [c.raw for c in first] == [c.raw for c in second]

    whole = program.run("Left?", backend=backend, temperature=0)
    streamed = program.run("Left?", backend=backend, temperature=0, stream=True)
    assert "".join(streamed.text_iter()).endswith(whole["answer"] + "\n")
    assert streamed["call"] == whole["call"]
    assert [c.raw for c in tool_calls(streamed, "call")] == [c.raw for c in tool_calls(whole, "call")]
