"""What ``gen(tools=…)`` asks of a server, by its HTTP endpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import quote

from sglang.lang.backend.runtime_endpoint import RuntimeEndpoint
from sglang.utils import http_request

from sglang_toolspec.errors import UserError
from sglang_toolspec.frontend.engine import EngineBackend
from sglang_toolspec.frontend.reading import Parsers


class Server(Protocol):
    """A server, or an engine."""

    @property
    def parsers(self) -> Parsers: ...
    def tokenize(self, chat: dict[str, Any]) -> list[int]: ...
    def ask(self, body: dict[str, Any]) -> Any: ...
    def stream(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]: ...
    def drafts(self, rid: str) -> dict[str, Any] | None: ...


def server_of(backend: Any) -> Server:
    """Raises ``UserError`` for backends that are no SGLang server."""
    if isinstance(backend, EngineBackend):
        return backend
    if isinstance(backend, RuntimeEndpoint):
        return Endpoint(backend)
    raise UserError(
        f"gen(tools=…) needs a RuntimeEndpoint, a Runtime or an EngineBackend, not {type(backend).__name__}"
    )


class Endpoint:
    """A server by its ``RuntimeEndpoint``."""

    def __init__(self, endpoint: RuntimeEndpoint):
        self._endpoint = endpoint

    @property
    def parsers(self) -> Parsers:
        info = self._endpoint.model_info
        return Parsers(info.get("tool_call_parser"), info.get("reasoning_parser"))

    def tokenize(self, chat: dict[str, Any]) -> list[int]:
        """The prompt's tokens, as the server's OpenAI path makes them."""
        return list(self._post("/v1/tokenize", chat).json()["tokens"])

    def ask(self, body: dict[str, Any]) -> Any:
        """The reply of ``/generate``; several for ``n``."""
        return self._post("/generate", body).json()

    def stream(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Replies of ``/generate`` that grow."""
        lines = self._post("/generate", {**body, "stream": True}, stream=True).iter_lines()
        for line in lines:
            if line.startswith(b"data: {"):
                reply = json.loads(line[6:])
                if "error" in reply:
                    raise UserError(f"the server refuses: {_message(reply)}")
                yield reply

    def drafts(self, rid: str) -> dict[str, Any] | None:
        """What became of a request's drafts, where the server runs TOOLSPEC."""
        reply = self._request(f"/toolspec/requests/{quote(rid, safe='')}")
        return reply.json() if reply.status_code == 200 else None

    def _post(self, path: str, body: dict[str, Any], stream: bool = False) -> Any:
        reply = self._request(path, json=body, stream=stream)
        if reply.status_code != 200:
            try:
                message = _message(reply.json())
            except ValueError:
                message = reply.text
            raise UserError(f"the server refuses: {message}")
        return reply

    def _request(self, path: str, **options: Any) -> Any:
        known = self._endpoint
        return http_request(known.base_url + path, api_key=known.api_key, verify=known.verify, **options)


def _message(answer: Any) -> str:
    """The first line: SGLang appends whole schemas."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    text = str(error.get("message", error) if isinstance(error, dict) else error)
    return text.strip().split("\n", 1)[0]
