"""What the engine tests ask a server, and how two servers' replies are compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from sglang_toolspec.server_process import ServerProcess

TIMEOUT_S = 300.0
GAP_LIMIT = 1e-4
"""Below this top-2 logit gap, float32 rounding may decide between the two tokens."""

T = TypeVar("T")
R = TypeVar("R")


class Client:
    """Requests to one server."""

    def __init__(self, server: ServerProcess):
        self.server = server
        self.url = server.url

    def post(self, path: str, body: dict[str, Any], **options: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=TIMEOUT_S, **options)

    def generate(self, prompt: str | list[int], tools: Any = None, **sampling: Any) -> dict[str, Any]:
        """``/generate``, greedy unless ``sampling`` says otherwise; the reply's object."""
        params: dict[str, Any] = {"temperature": 0, "max_new_tokens": 48, **sampling}
        if tools is not None:
            params["custom_params"] = {"toolspec": {"tools": tools}}
        key = "text" if isinstance(prompt, str) else "input_ids"
        reply = self.post("/generate", {key: prompt, "sampling_params": params})
        reply.raise_for_status()
        return reply.json()

    def generate_stream(self, prompt: str, tools: Any, **sampling: Any) -> list[int]:
        """Token ids of a streamed ``/generate``."""
        params = {"temperature": 0, "max_new_tokens": 48, "custom_params": {"toolspec": {"tools": tools}}}
        body = {"text": prompt, "stream": True, "sampling_params": {**params, **sampling}}
        return list(self.events("/generate", body))[-1]["output_ids"]

    def chat(self, prompt: str, tools: Any, tool_choice: Any) -> list[int]:
        """Token ids of an OpenAI chat reply."""
        body = _chat_body(prompt, tools, tool_choice)
        reply = self.post("/v1/chat/completions", body, headers={"x-sglext-return-output-ids": "1"})
        assert reply.status_code == 200, reply.text
        return reply.json()["sglext"]["output_ids"][0]

    def chat_stream(self, prompt: str, tools: Any, tool_choice: Any) -> str:
        """Content of a streamed chat reply."""
        body = {**_chat_body(prompt, tools, tool_choice), "stream": True}
        chunks = [event["choices"] for event in self.events("/v1/chat/completions", body)]
        return "".join(choices[0]["delta"].get("content") or "" for choices in chunks if choices)

    def events(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The JSON objects of a server-sent event stream."""
        with httpx.stream("POST", self.url + path, json=body, timeout=TIMEOUT_S) as reply:
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line[6:])

    def stats(self) -> dict[str, Any]:
        """What TOOLSPEC reports about itself in ``/server_info``."""
        info = httpx.get(self.url + "/server_info", timeout=TIMEOUT_S).json()
        return info["internal_states"][0]["toolspec"]

    def top2_gap(self, input_ids: list[int]) -> float:
        """Difference of the two highest log-probabilities after ``input_ids``."""
        body = {
            "input_ids": input_ids,
            "sampling_params": {"temperature": 0, "max_new_tokens": 1},
            "return_logprob": True,
            "top_logprobs_num": 2,
        }
        top = self.post("/generate", body).json()["meta_info"]["output_top_logprobs"][0]
        return float(top[0][0] - top[1][0])


def _chat_body(prompt: str, tools: Any, tool_choice: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [{"role": "user", "content": prompt}],
        "tools": tools,
        "tool_choice": tool_choice,
        "temperature": 0,
        "max_tokens": 48,
    }


def at_once(ask: Callable[[T], R], items: Iterable[T], concurrency: int) -> list[R]:
    """Ask everything, ``concurrency`` at a time, results in order."""
    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(ask, items))


@dataclass(frozen=True)
class Difference:
    """Where two replies part, and how sure the plain run was of its token there."""

    token: int
    plain: list[int]
    toolspec: list[int]
    top2_gap: float

    @property
    def is_tie(self) -> bool:
        return self.top2_gap < GAP_LIMIT


def first_difference(plain: Client, prompt_ids: list[int], expected: list[int], got: list[int]) -> Difference:
    """Of two replies that differ; the gap is asked of ``plain``."""
    at = next(
        (i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b),
        min(len(expected), len(got)),
    )
    gap = plain.top2_gap(prompt_ids + expected[:at])
    return Difference(at, expected[at : at + 4], got[at : at + 4], gap)


def assert_same(plain: Client, prompt_ids: list[int], expected: list[int], got: list[int]) -> None:
    """Equal token ids, or a first difference at a numerical tie, which is printed."""
    if expected == got:
        return
    found = first_difference(plain, prompt_ids, expected, got)
    assert found.is_tie, found
    print(f"tie: {found}")
