"""From an SGLang request to its session."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sglang_toolspec.runtime.assembly import Assembler, DraftRequest
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.drafters.base import Drafter
from sglang_toolspec.runtime.engine.candidates import Pending
from sglang_toolspec.runtime.engine.masked import ForcedTextDrafter, is_masked, may_think
from sglang_toolspec.runtime.engine.recording import recorder
from sglang_toolspec.runtime.history.history import History
from sglang_toolspec.runtime.recorder import Recorder, RecordFile
from sglang_toolspec.runtime.request import FIELD
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tokens import TokenCodec


class SessionFactory:
    """Builds the sessions of SGLang's ``Req``; what they share is the assembler's.

    ``vector_of`` gives the hidden state of a request's last prompt token; requests are recorded in
    ``records``.
    """

    def __init__(
        self,
        codec: TokenCodec | None,
        parser: str | None,
        faults: Faults,
        config: Config,
        vector_of: Callable[[Any], NDArray[np.float32] | None] = lambda req: None,
        records: RecordFile | None = None,
        history: History | None = None,
    ):
        self._codec = codec
        self._vector_of = vector_of
        self._records = records
        self._recorders: WeakKeyDictionary[Any, Recorder] = WeakKeyDictionary()
        self._assemble = Assembler(codec, parser, faults, config, history)
        self._forced_text = "schema" in config.sources

    def __call__(self, req: Any) -> Session:
        request = draft_request(req, self._vector_of(req))
        return self._assemble(request, self._more(req, request))

    def _more(self, req: Any, request: DraftRequest) -> list[Drafter]:
        """Drafters that need the ``Req`` itself."""
        more: list[Drafter] = []
        if self._codec is not None and self._forced_text and request.masked:
            more.append(ForcedTextDrafter(req, self._codec))
        if self._records is not None:
            self._recorders[req] = recorder(req, request, self._records)
            more.append(self._recorders[req])
        return more

    def stats(self) -> dict[str, Any]:
        """Of the history of calls, and of how far sources can be believed."""
        return self._assemble.stats()

    def note_candidates(self, pending: Pending) -> None:
        """What the target thought likely in the last step, for later ones of the same tenant."""
        for req, tokens, ids, chances in pending.by_request():
            # What was accepted behind the end of a reply is no part of it.
            kept = len(tokens) - len(req.output_ids) + len(req.output_ids_through_stop)
            self._assemble.candidates(tenant_of(req)).note(tokens[:kept], ids[:kept], chances[:kept])
            if req in self._recorders:
                self._recorders[req].note(ids[:kept], chances[:kept])


def tenant_of(req: Any) -> str:
    """What SGLang keeps prefixes apart by."""
    return json.dumps([req.extra_key or "", req.cache_salt or ""])


def draft_request(req: Any, vector: NDArray[np.float32] | None = None) -> DraftRequest:
    """What of a ``Req`` drafters are told."""
    params = req.sampling_params.custom_params
    tools = params.get(FIELD) if isinstance(params, dict) else None
    schema = req.sampling_params.json_schema
    return DraftRequest(
        prompt=req.origin_input_ids,
        tools=tools if isinstance(tools, str) else None,
        json_schema=schema if isinstance(schema, str) else None,
        masked=is_masked(req.grammar),
        may_think=may_think(req.grammar),
        tenant=tenant_of(req),
        vector=vector,
    )
