"""From an SGLang request to its session."""

from __future__ import annotations

from typing import Any

from sglang_toolspec.runtime.assembly import Assembler, DraftRequest
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.engine.masked import ForcedTextDrafter, is_masked
from sglang_toolspec.runtime.request import FIELD
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tokens import TokenCodec


class SessionFactory:
    """Builds the sessions of SGLang's ``Req``; what they share is the assembler's."""

    def __init__(self, codec: TokenCodec | None, parser: str | None, faults: Faults, config: Config):
        self._codec = codec
        self._assemble = Assembler(codec, parser, faults, config)
        self._forced_text = "schema" in config.sources

    def __call__(self, req: Any) -> Session:
        request = draft_request(req)
        if self._codec is not None and self._forced_text and request.masked:
            return self._assemble(request, [ForcedTextDrafter(req, self._codec)])
        return self._assemble(request)


def draft_request(req: Any) -> DraftRequest:
    """What of a ``Req`` drafters are told."""
    params = req.sampling_params.custom_params
    tools = params.get(FIELD) if isinstance(params, dict) else None
    schema = req.sampling_params.json_schema
    return DraftRequest(
        prompt=req.origin_input_ids,
        tools=tools if isinstance(tools, str) else None,
        json_schema=schema if isinstance(schema, str) else None,
        masked=is_masked(req.grammar),
        tenant=(req.extra_key or "", req.cache_salt or ""),
    )
