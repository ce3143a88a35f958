"""From an SGLang request to its session: codec, tools, drafters."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any

from sglang_toolspec.grammars.compile import GrammarCache
from sglang_toolspec.grammars.formats import dialects_for
from sglang_toolspec.runtime.drafters.base import Drafter
from sglang_toolspec.runtime.drafters.schema import SchemaDrafter
from sglang_toolspec.runtime.request import FIELD, ToolRequest
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tokens import TokenCodec

logger = logging.getLogger(__name__)

MAX_TENANTS = 1024


class StyleMemory:
    """Which dialect each tenant's calls were written in lately. Holds no text."""

    def __init__(self) -> None:
        self._weights: OrderedDict[str, dict[str, float]] = OrderedDict()

    def prior(self, tenant: str) -> dict[str, float]:
        return dict(self._weights.get(tenant, {}))

    def saw(self, tenant: str, dialect: str) -> None:
        faded = {name: weight / 2 for name, weight in self._weights.pop(tenant, {}).items()}
        faded[dialect] = faded.get(dialect, 0.0) + 8.0
        self._weights[tenant] = faded
        while len(self._weights) > MAX_TENANTS:
            self._weights.popitem(last=False)


class SessionFactory:
    """Builds sessions; holds what they share: codec, compiled grammars, styles."""

    def __init__(self, codec: TokenCodec | None, parser: str | None, faults: Faults):
        self._codec = codec
        self._parser = parser
        self._faults = faults
        self._grammars = GrammarCache(
            on_failure=lambda reason: logger.warning("toolspec: no schema drafts for %s", reason)
        )
        self._styles = StyleMemory()

    def __call__(self, req: Any) -> Session:
        vocab_size = self._codec.vocab_size if self._codec else 0
        return Session(self._drafters(req), vocab_size, self._faults)

    def _drafters(self, req: Any) -> list[Drafter]:
        request = self._tool_request(req)
        if request is None or self._codec is None or not request.offered.tools:
            return []
        tenant = req.extra_key or ""
        schema = SchemaDrafter(
            request.offered,
            dialects_for(self._parser, request.constrained),
            self._grammars,
            self._codec,
            prior=self._styles.prior(tenant),
            literal=req.grammar is not None,
            on_dialect=lambda dialect: self._styles.saw(tenant, dialect),
        )
        return [schema]

    def _tool_request(self, req: Any) -> ToolRequest | None:
        params = req.sampling_params.custom_params
        wire = params.get(FIELD) if isinstance(params, dict) else None
        if not isinstance(wire, str):
            return None
        try:
            return ToolRequest.from_wire(wire)
        except ValueError as error:
            self._faults.note("custom_params", error)
            return None
