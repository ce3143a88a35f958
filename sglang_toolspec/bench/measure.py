"""One request to one server, timed.

The reply is streamed once. Decode time runs from the arrival of the first token to that of the last, so
the prompt's prefill is in the time to first token alone. Servers run with a large ``--stream-interval``:
they send the first token at once and the rest at the end, as a reply that is not streamed, so that the
number of messages is the same for every algorithm.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from sglang_toolspec.bench.request import CHAT, Request

CONNECT_TIMEOUT_S = 10.0
_FINISHED = ("stop", "length", "tool_calls")


class RequestFailed(Exception):
    """The reply is no measurement; the text says why. No figure is made from it."""


class ServerGone(RequestFailed):
    """Nobody answers any more."""


@dataclass(frozen=True)
class Measurement:
    """``steps``: verify steps; without speculation the tokens, one each. ``decode_tokens``: those after the
    first arrival, in ``decode_s``. ``began``: wall-clock time of the sending, in seconds.
    ``arrivals``: of each message, tokens that are there and seconds since the sending; with
    ``--stream-interval 1`` each verify step is a message. ``accept_histogram[i]``: verify steps that
    accepted ``i`` drafts, where the server tells. ``text``: of the reply, without the calls that a chat
    request with tools has in a field of their own.
    """

    tokens: int
    steps: int
    decode_tokens: int
    decode_s: float
    ttft_s: float
    e2e_s: float
    began: float
    prompt_tokens: int
    finish: str
    output_ids: list[int]
    arrivals: list[tuple[int, float]]
    accept_histogram: list[int]
    text: str = ""


@dataclass
class _Reply:
    """What the events of a stream have told so far."""

    arrivals: list[tuple[int, float]] = field(default_factory=list)
    """Tokens that are there, and when they were, each time there were more."""
    last_at: float = 0.0
    tokens: int = 0
    prompt_tokens: int = 0
    finish: str = ""
    output_ids: list[int] = field(default_factory=list)
    text: str = ""
    speculation: dict[str, Any] = field(default_factory=dict)

    def arrived(self, at: float, tokens: int) -> None:
        if not self.arrivals or tokens > self.arrivals[-1][0]:
            self.arrivals.append((tokens, at))
        self.last_at = at

    def read_generate(self, at: float, event: dict[str, Any]) -> None:
        meta = event["meta_info"]
        self.output_ids = event["output_ids"]
        self.text = event.get("text") or ""
        self.arrived(at, len(self.output_ids))
        self.tokens, self.prompt_tokens = meta["completion_tokens"], meta["prompt_tokens"]
        if reason := meta.get("finish_reason"):
            self.finish, self.speculation = reason["type"], meta

    def read_chat(self, at: float, event: dict[str, Any]) -> None:
        """SGLang sends an empty delta with the role as soon as there is a first token, and after the last
        one the ids, the verify steps and the usage."""
        if usage := event.get("usage"):
            self.tokens, self.prompt_tokens = usage["completion_tokens"], usage["prompt_tokens"]
        for choice in event.get("choices") or ():
            self.arrived(at, self.tokens or 1)
            self.text += (choice.get("delta") or {}).get("content") or ""
            self.finish = choice.get("finish_reason") or self.finish
        if extra := event.get("sglext"):
            self.output_ids = (extra.get("output_ids") or [self.output_ids])[0]
            self.speculation = extra.get("spec_tokens_details") or self.speculation


class Asker:
    """Asks one server. ``speculative``: it must report verify steps; ``hinted``: it runs TOOLSPEC."""

    def __init__(self, url: str, speculative: bool, hinted: bool, timeout_s: float):
        self._speculative = speculative
        self._hinted = hinted
        self._timeout_s = timeout_s
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        # A server of this machine, over plain HTTP: no proxies, no certificates to load.
        limits = httpx.Limits(max_connections=None)
        self._http = httpx.Client(base_url=url, timeout=timeout, limits=limits, trust_env=False, verify=False)
        self._attributes = hinted

    def close(self) -> None:
        self._http.close()

    def ask(self, request: Request, rid: str, salt: str, max_new_tokens: int | None = None) -> Measurement:
        """Raises ``RequestFailed``."""
        body = request.sent(rid, salt, self._hinted, max_new_tokens)
        reply = _Reply()
        read = reply.read_chat if request.path == CHAT else reply.read_generate
        wall, began = time.time(), time.perf_counter()
        try:
            for at, event in self._events(request.path, body):
                read(at, event)
        except httpx.TimeoutException as error:
            raise RequestFailed(f"no answer within {self._timeout_s:g} s") from error
        except httpx.TransportError as error:
            gone = ServerGone if not self._answers() else RequestFailed
            raise gone(f"the connection broke ({type(error).__name__})") from error
        except (LookupError, TypeError, ValueError) as error:
            raise RequestFailed(f"a reply of another form: {type(error).__name__}: {error}") from error
        return self._measured(reply, wall, began)

    def _measured(self, reply: _Reply, wall: float, began: float) -> Measurement:
        if reply.finish not in _FINISHED:
            raise RequestFailed(f"the reply did not finish ({reply.finish or 'the stream ended early'})")
        if not reply.tokens or len(reply.output_ids) != reply.tokens:
            raise RequestFailed(f"{len(reply.output_ids)} token ids for {reply.tokens} tokens")
        verify_steps = int(reply.speculation.get("spec_verify_ct") or 0)
        if self._speculative and not verify_steps and reply.tokens > 1:
            raise RequestFailed("the server reports no verify steps; it does not speculate")
        first_tokens, first_at = reply.arrivals[0]
        return Measurement(
            tokens=reply.tokens,
            steps=verify_steps or reply.tokens,
            decode_tokens=reply.tokens - first_tokens,
            decode_s=reply.last_at - first_at,
            ttft_s=first_at - began,
            e2e_s=reply.last_at - began,
            began=wall,
            prompt_tokens=reply.prompt_tokens,
            finish=reply.finish,
            output_ids=reply.output_ids,
            arrivals=[(tokens, at - began) for tokens, at in reply.arrivals],
            accept_histogram=list(reply.speculation.get("spec_correct_drafts_histogram") or ()),
            text=reply.text,
        )

    def _events(self, path: str, body: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
        """Time of arrival and content of each server-sent event."""
        headers = {"x-sglext-return-output-ids": "1"}
        with self._http.stream("POST", path, json=body, headers=headers) as reply:
            if reply.status_code != 200:
                reply.read()
                raise RequestFailed(f"HTTP {reply.status_code}: {_shortened(reply.text)}")
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    at, event = time.perf_counter(), json.loads(line[len("data: ") :])
                    if event.get("error"):
                        raise RequestFailed(_shortened(json.dumps(event["error"])))
                    yield at, event

    def flush(self) -> None:
        """Empty the prefix cache, and with it NGRAM's corpus. Raises ``RequestFailed``."""
        reply = self._get("/flush_cache", params={"timeout": 30})
        if reply.status_code != 200:
            raise RequestFailed(f"the cache was not flushed: {_shortened(reply.text)}")

    def drafting(self) -> dict[str, Any]:
        """What TOOLSPEC says of itself in ``/server_info``; empty for other servers."""
        if not self._hinted:
            return {}
        states = self._get("/server_info").json().get("internal_states") or [{}]
        return states[0].get("toolspec") or {}

    def attribution(self, rid: str) -> dict[str, Any] | None:
        """Drafts of one finished request by source, where the server tells."""
        if not self._attributes:
            return None
        reply = self._get(f"/toolspec/requests/{rid}")
        if reply.status_code == 404 and "Not Found" in reply.text:  # the route, not the request
            self._attributes = False
        return reply.json() if reply.status_code == 200 else None

    def _get(self, path: str, **options: Any) -> httpx.Response:
        try:
            return self._http.get(path, **options)
        except httpx.TransportError as error:
            raise ServerGone(f"{path} is not answered ({type(error).__name__})") from error

    def _answers(self) -> bool:
        try:
            return self._http.get("/health", timeout=CONNECT_TIMEOUT_S).status_code == 200
        except httpx.TransportError:
            return False


def _shortened(text: str) -> str:
    return " ".join(text.split())[:300]
