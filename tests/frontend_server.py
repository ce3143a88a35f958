"""A server that programs believe in: it notes what it is asked and replies what it is told."""

import json
from types import SimpleNamespace

from sglang.lang.backend import runtime_endpoint

from sglang_toolspec.frontend import endpoint

TOKENS = [11, 12, 13]


class FakeServer:
    """Stands for SGLang's HTTP. ``replies`` are used up in order, the last one again and again; a list is
    the reply to a request for several."""

    def __init__(self, *replies, parser="qwen25", drafts=None):
        self.replies = list(replies)
        self.parser = parser
        self.drafts = drafts
        self.asked = []

    def bodies(self, path):
        return [body for asked, body in self.asked if asked == path]

    def __call__(self, url, json=None, stream=False, **options):
        path = url.removeprefix("http://fake")
        self.asked.append((path, json))
        if path == "/get_model_info":
            return self._ok({"model_path": "a/Qwen-Instruct", "tool_call_parser": self.parser})
        if path == "/v1/tokenize":
            return self._ok({"tokens": TOKENS})
        if path.startswith("/toolspec/requests/"):
            return self._ok(self.drafts) if self.drafts else SimpleNamespace(status_code=404)
        text = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(text, Exception):
            error = {"error": {"message": f"{text}\nand more", "code": 400}}
            return SimpleNamespace(status_code=400, json=lambda: error, text="")
        if isinstance(text, list):
            return self._ok([self._reply(one) for one in text])
        return self._stream(text) if stream else self._ok(self._reply(text))

    def _reply(self, text):
        return {"text": text, "meta_info": {"id": "request-1", "spec_accept_length": 4.0}}

    def _ok(self, value):
        return SimpleNamespace(status_code=200, json=lambda: value)

    def _stream(self, text):
        grown = [text[: i + 5] for i in range(0, len(text), 5)]
        lines = [f"data: {json.dumps(self._reply(part))}".encode() for part in grown]
        return SimpleNamespace(status_code=200, iter_lines=lambda **_: iter([*lines, b"data: [DONE]"]))


def fake_backend(monkeypatch, server):
    """A ``RuntimeEndpoint`` of ``server``."""
    for module in (runtime_endpoint, endpoint):
        monkeypatch.setattr(module, "http_request", server)
    return runtime_endpoint.RuntimeEndpoint("http://fake")
