"""Asks a running server for one reply, and then what became of the drafts of that reply."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.attribution import Attribution

TIMEOUT_S = 600.0
WINDOW = 8
"""Tokens in front of one that are decoded with it: two characters of four byte tokens each, so that one of
them is whole. A token that begins a text can lose its space."""
_PART = "\ufffd"
"""What stands for the bytes of a character that is not whole yet."""


@dataclass(frozen=True)
class Traced:
    """A reply: its tokens, their texts, and who proposed them."""

    rid: str
    ids: list[int]
    texts: list[str]
    attribution: Attribution

    def to_json(self) -> dict[str, Any]:
        tokens = [{"id": token, "text": text} for token, text in zip(self.ids, self.texts, strict=True)]
        return {"rid": self.rid, **self.attribution.to_json(), "output": tokens}


def trace_request(url: str, body: Any, api_key: str = "") -> Traced:
    """Sends ``body``, of a ``/generate`` or a ``/v1/chat/completions`` request for one reply.

    Raises ``UserError`` where the body, the server or its answer is not such.
    """
    path, body = _prepared(body)
    server = _Server(url, api_key)
    reply = server.ask("POST", path, body)
    ids, rid = _output_ids(path, reply), body["rid"]
    found = server.ask("GET", f"/toolspec/requests/{quote(rid, safe='')}")
    try:
        attribution = Attribution.from_json(found)
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(
            f"the server at {server.url} tells of drafts in another way ({error!r}); "
            "use the sglang-toolspec that it runs"
        ) from error
    return Traced(rid, ids, token_texts(ids, server.detokenize), attribution)


def token_texts(ids: list[int], decode: Callable[[list[list[int]]], list[str]]) -> list[str]:
    """What each token adds to the text. A character of several tokens belongs to its last one.

    ``decode`` gives the texts of several lists of ids.
    """
    starts = [max(0, i - WINDOW) for i in range(len(ids))]
    befores = [ids[start:i] for i, start in enumerate(starts)]
    withs = [ids[start : i + 1] for i, start in enumerate(starts)]
    decoded = decode([*filter(None, befores), *withs]) if ids else []
    texts = iter(decoded)
    before = [next(texts) if part else "" for part in befores]
    return [
        whole.rstrip(_PART)[len(start.rstrip(_PART)) :] for start, whole in zip(before, texts, strict=True)
    ]


def _prepared(body: Any) -> tuple[str, dict[str, Any]]:
    """The path that takes ``body``, and the body for one whole reply with an id."""
    if not isinstance(body, dict):
        raise UserError(f"the request must be a JSON object, not {type(body).__name__}")
    rid = body.get("rid") or f"trace-{uuid.uuid4().hex}"
    if "messages" in body:
        path, several = "/v1/chat/completions", body.get("n") not in (None, 1)
    elif (prompt := body.get("text", body.get("input_ids"))) is not None:
        path, params = "/generate", body.get("sampling_params")
        many = isinstance(prompt, list) and any(isinstance(part, str | list) for part in prompt)
        several = many or (isinstance(params, dict) and params.get("n") not in (None, 1))
    else:
        raise UserError("the request has neither 'messages' (a chat) nor 'text' or 'input_ids' (/generate)")
    if several or not isinstance(rid, str):
        raise UserError("the request asks for several replies; trace shows one, so leave out 'n' and lists")
    return path, {**body, "rid": rid, "stream": False}


def _output_ids(path: str, reply: Any) -> list[int]:
    try:
        ids = reply["output_ids"] if path == "/generate" else reply["sglext"]["output_ids"][0]
        return [int(token) for token in ids]
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"the reply from {path} has no token ids; is the server SGLang 0.5.23?") from error


class _Server:
    def __init__(self, url: str, api_key: str):
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._headers = {"x-sglext-return-output-ids": "1"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def detokenize(self, lists: list[list[int]]) -> list[str]:
        reply = self.ask("POST", "/v1/detokenize", {"tokens": lists, "skip_special_tokens": False})
        texts = reply.get("text") if isinstance(reply, dict) else None
        if not isinstance(texts, list) or len(texts) != len(lists):
            raise UserError(f"the server at {self.url} cannot tell the texts of tokens")
        return [str(text) for text in texts]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of the answer."""
        try:
            reply = httpx.request(
                method, self.url + path, json=body, headers=self._headers, timeout=TIMEOUT_S
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UserError(
                f"no server answers at {self.url} ({error}); start one with: sglang-toolspec serve MODEL"
            ) from error
        try:
            answer = reply.json()
        except ValueError as error:
            raise UserError(f"what answers at {self.url}{path} is not an SGLang server") from error
        if reply.status_code != 200:
            raise UserError(self._refusal(path, reply.status_code, answer))
        return answer

    def _refusal(self, path: str, status: int, answer: Any) -> str:
        said = _message(answer)
        if status == 401:
            return f"the server at {self.url} wants its API key; give it with --api-key"
        if status == 404 and said in ("", "Not Found") and path.startswith("/toolspec"):
            return f"the server at {self.url} lacks sglang-toolspec; start it with: sglang-toolspec serve"
        return f"the server at {self.url} refuses: {said or status}"


def _message(answer: Any) -> str:
    """Of SGLang's several forms of errors, on one line."""
    while isinstance(answer, Mapping):
        answer = next((answer[key] for key in ("error", "message", "detail") if answer.get(key)), "")
    return " ".join(str(answer).split())[:500]
