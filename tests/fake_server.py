"""An HTTP server that answers as SGLang does, without a model: what the benchmark is tested against."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

TOKENS = 9


def reply_ids(body: dict[str, Any]) -> list[int]:
    """What the model of all fake servers writes for a request: the same ids for the same prompt."""
    prompt = json.dumps(body.get("messages") or body.get("text") or body.get("input_ids"))
    return [zlib.crc32(prompt.encode()) % 1000 + i for i in range(TOKENS)]


@dataclass
class Faults:
    """What goes wrong. ``crash_after``: requests, after which the server is gone. ``status``, ``pause_s``
    (after the first token): by body."""

    step_s: float = 0.0
    crash_after: int = 1 << 30
    status: Callable[[dict[str, Any]], int] = lambda body: 200
    ids: Callable[[dict[str, Any]], list[int]] = reply_ids
    silent_about_steps: bool = False
    ends_early: bool = False
    pause_s: Callable[[dict[str, Any]], float] = lambda body: 0.0


@dataclass
class FakeServer:
    """``drafts`` accepted in every step, 0 for plain decoding; ``toolspec``: reports as TOOLSPEC does."""

    drafts: int = 0
    toolspec: bool = False
    faults: Faults = field(default_factory=Faults)
    asked: list[dict[str, Any]] = field(default_factory=list)
    flushes: int = 0
    steps: int = 0
    most_at_once: int = 0
    in_flight: set[str] = field(default_factory=set)

    def __enter__(self) -> FakeServer:
        fake = self

        class Handler(_Handler):
            server_state = fake

        self._http = _Http(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.005,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def measured(self) -> list[dict[str, Any]]:
        """Bodies without those of the warm-up."""
        return [body for body in self.asked if body["cache_salt"] != "warm-up"]


class _Http(ThreadingHTTPServer):
    def handle_error(self, *args: Any) -> None:
        """A client that has given up is no error."""


class _Handler(BaseHTTPRequestHandler):
    server_state: FakeServer

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        state = self.server_state
        if self.path.startswith("/flush_cache"):
            state.flushes += 1
            self._json(200, "flushed")
        elif self.path == "/health":
            self._json(200, "ok")
        elif self.path == "/server_info":
            told = {"verify_steps": state.steps, "drafting_us_per_step": 250.0, "faults": {}}
            self._json(200, {"internal_states": [{"toolspec": told}]})
        elif self.path.startswith("/toolspec/requests/") and state.toolspec:
            self._json(200, {"proposed": {"schema": 9}, "accepted": {"schema": 6}, "steps": []})
        else:
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        state = self.server_state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state.asked.append(body)
        state.in_flight.add(body["rid"])
        state.most_at_once = max(state.most_at_once, len(state.in_flight))
        try:
            self._answer(body)
        finally:
            state.in_flight.discard(body["rid"])

    def _answer(self, body: dict[str, Any]) -> None:
        state, faults = self.server_state, self.server_state.faults
        if len(state.asked) > faults.crash_after:
            state.stop()
            self.close_connection = True
            return
        if (status := faults.status(body)) != 200:
            self._json(status, {"error": {"message": "planted"}})
            return
        limit = body.get("max_tokens") or body["sampling_params"]["max_new_tokens"]
        ids = faults.ids(body)[:limit]
        steps = -(-(len(ids) - 1) // (state.drafts + 1))
        state.steps += steps
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        write = self._chat if self.path.endswith("completions") else self._generate
        histogram = [0] * state.drafts + [steps]
        write(body, ids, {"spec_verify_ct": steps, "spec_correct_drafts_histogram": histogram})

    def _decode(self, body: dict[str, Any], speculation: dict[str, Any]) -> dict[str, Any]:
        """Takes its time, and tells of its steps if it speculates."""
        state = self.server_state
        time.sleep(state.faults.step_s * speculation["spec_verify_ct"] + state.faults.pause_s(body))
        return speculation if state.drafts and not state.faults.silent_about_steps else {}

    def _generate(self, body: dict[str, Any], ids: list[int], speculation: dict[str, Any]) -> None:
        meta = {"prompt_tokens": 5, "finish_reason": None}
        self._event({"output_ids": ids[:1], "meta_info": {**meta, "completion_tokens": 1}})
        told = self._decode(body, speculation)
        if self.server_state.faults.ends_early:
            return
        end = {"completion_tokens": len(ids), "finish_reason": {"type": "stop"}, **told}
        self._event({"output_ids": ids, "meta_info": {**meta, **end}})

    def _chat(self, body: dict[str, Any], ids: list[int], speculation: dict[str, Any]) -> None:
        self._event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        told = self._decode(body, speculation)
        if self.server_state.faults.ends_early:
            return
        self._event({"choices": [{"index": 0, "delta": {"content": "text"}}]})
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self._event({"choices": [], "sglext": {"output_ids": [ids], "spec_tokens_details": told or None}})
        self._event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": len(ids)}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, value: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()

    def _json(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
