"""From an SGLang request to its session: codec, tools, drafters."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from functools import cached_property
from typing import Any

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.cache import GrammarCache
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.formats import JSON_REPLY, Format, formats_for, open_thought
from sglang_toolspec.grammars.guesses import Guesser
from sglang_toolspec.grammars.prompt_tools import find_tools
from sglang_toolspec.grammars.schema import Schema
from sglang_toolspec.grammars.tools import ToolSet
from sglang_toolspec.grammars.values import ValueGrammars
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.drafters.base import Drafter
from sglang_toolspec.runtime.drafters.schema import SchemaDrafter
from sglang_toolspec.runtime.drafters.suffix import SuffixDrafter
from sglang_toolspec.runtime.engine.masked import ForcedTextDrafter, is_masked, may_think
from sglang_toolspec.runtime.guessing.combined import CombinedGuesser
from sglang_toolspec.runtime.guessing.copying import CopiedValues
from sglang_toolspec.runtime.guessing.patterned import PatternedValues
from sglang_toolspec.runtime.lru import kept
from sglang_toolspec.runtime.memory import Memories, TenantMemory
from sglang_toolspec.runtime.request import FIELD, ToolRequest
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tokens import TokenCodec

logger = logging.getLogger(__name__)

MAX_TOOL_SETS = 256
MAX_PROMPT_TOKENS = 1 << 16
"""Tokens at the end of a prompt that are read as text."""
MAX_OPENING_TOKENS = 32


class SessionFactory:
    """Builds sessions; holds what they share: codec, schemas of tool sets, memories of tenants."""

    def __init__(self, codec: TokenCodec | None, parser: str | None, faults: Faults, config: Config):
        self._codec = codec
        self._parser = parser
        self._faults = faults
        self._config = config
        self._shapes: OrderedDict[str, CallShapes] = OrderedDict()
        self._memories = Memories()
        self._patterned = PatternedValues(ValueGrammars(GrammarCache(on_failure=_report)))

    def __call__(self, req: Any) -> Session:
        if self._codec is None:
            return Session([], 0, self._faults)
        return Session(self._drafters(req, self._codec), self._codec.vocab_size, self._faults)

    def _drafters(self, req: Any, codec: TokenCodec) -> list[Drafter]:
        sources = self._config.sources
        masked = is_masked(req.grammar)
        memory = self._memories.of((req.extra_key or "", req.cache_salt or ""))
        drafters: list[Drafter] = []
        if "schema" in sources and (automaton := self._automaton(req, codec, memory)) is not None:
            drafters.append(SchemaDrafter(automaton, codec, literal=masked))
        if "schema" in sources and masked:
            drafters.append(ForcedTextDrafter(req, codec))
        if "suffix" in sources:
            drafters.append(SuffixDrafter(req.origin_input_ids, memory.replies))
        return drafters

    def _automaton(self, req: Any, codec: TokenCodec, memory: TenantMemory) -> ToolAutomaton | None:
        """For the tools of the request, of its prompt, or for its JSON reply; ``None`` for neither."""
        prompt = _Prompt(req, codec)
        request, schema = self._tool_request(req), self._reply_schema(req)
        # Such a reply calls no tool, unless its schema is that of a forced call.
        if schema is not None and not (request and request.constrained):
            shapes = self._shapes_of(schema, is_reply=True)
            habits = memory.habits(schema.key)
            formats: tuple[Format, ...] = (JSON_REPLY,)
        elif (request := request or self._prompt_tools(prompt)) and (offered := request.offered).tools:
            shapes = self._shapes_of(offered)
            # A mask changes how calls are written: what was learned without one says little.
            habits = memory.habits("forced" if request.constrained else "free")
            formats = formats_for(self._parser, request.constrained)
        else:
            return None
        return ToolAutomaton(shapes, formats, habits, self._guesser(prompt, memory), prompt.thinks)

    def _guesser(self, prompt: _Prompt, memory: TenantMemory) -> Guesser:
        guessers: list[Guesser] = [self._patterned]
        if "value" in self._config.sources:
            guessers.append(memory.values)
        if "copy" in self._config.sources:
            guessers.append(CopiedValues(prompt.text))
        return CombinedGuesser(guessers)

    def _shapes_of(self, tools: ToolSet, is_reply: bool = False) -> CallShapes:
        def build() -> CallShapes:
            if is_reply:
                return CallShapes(ToolSet.from_openai([]), Schema.root(tools.tools[0].parameters))
            return CallShapes(tools)

        return kept(self._shapes, f"{is_reply} {tools.key}", MAX_TOOL_SETS, build)

    def _prompt_tools(self, prompt: _Prompt) -> ToolRequest | None:
        """Tools that only the prompt names, for a request without any."""
        found = find_tools(prompt.text) if self._config.prompt_tools else None
        return ToolRequest(found) if found is not None else None

    def _reply_schema(self, req: Any) -> ToolSet | None:
        """The schema of a ``json_schema`` request, as the parameters of a nameless tool."""
        text = req.sampling_params.json_schema
        if not isinstance(text, str) or not text.startswith("{"):
            return None
        try:
            return ToolSet.from_openai([{"name": "reply", "parameters": json.loads(text)}])
        except (ValueError, RecursionError) as error:
            self._faults.note("json_schema", error)
            return None

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


def _report(reason: str) -> None:
    logger.info("toolspec: no forced text inside some values: %s", reason)


class _Prompt:
    """The text of a prompt, decoded when it is asked for."""

    def __init__(self, req: Any, codec: TokenCodec):
        self._req = req
        self._codec = codec

    @cached_property
    def text(self) -> str:
        return self._codec.decode(self._req.origin_input_ids[-MAX_PROMPT_TOKENS:])

    @property
    def thinks(self) -> str:
        """What closes the thought that the prompt opens for the reply; empty where it opens none."""
        if not may_think(self._req.grammar):
            return ""
        return open_thought(self._codec.decode(self._req.origin_input_ids[-MAX_OPENING_TOKENS:]))
