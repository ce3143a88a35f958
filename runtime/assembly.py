"""From a request to its session: tools, formats, memory, drafters. A server and a replay share it."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.cache import GrammarCache
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.formats import JSON_REPLY, Format, formats_for, open_thought
from sglang_toolspec.grammars.guesses import Guesser
from sglang_toolspec.grammars.prompt_tools import find_tools
from sglang_toolspec.grammars.schema import Schema
from sglang_toolspec.grammars.tools import ToolSet
from sglang_toolspec.grammars.values import ValueGrammars
from sglang_toolspec.runtime.calibration import Calibration, Uncorrected
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.drafters.base import Drafter
from sglang_toolspec.runtime.drafters.history import HistoryDrafter
from sglang_toolspec.runtime.drafters.paper import BY_RANK, NODES, PaperDrafter
from sglang_toolspec.runtime.drafters.recycling import Candidates, RecyclingDrafter
from sglang_toolspec.runtime.drafters.schema import SchemaDrafter
from sglang_toolspec.runtime.drafters.suffix import SuffixDrafter
from sglang_toolspec.runtime.guessing.combined import CombinedGuesser, NamedGuesser
from sglang_toolspec.runtime.guessing.copying import CopiedValues
from sglang_toolspec.runtime.guessing.patterned import PatternedValues
from sglang_toolspec.runtime.history.history import History
from sglang_toolspec.runtime.lru import kept
from sglang_toolspec.runtime.memory import Memories, TenantMemory
from sglang_toolspec.runtime.recall import TenantRecall
from sglang_toolspec.runtime.request import ToolRequest
from sglang_toolspec.runtime.rests import Rests
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tokens import TokenCodec

logger = logging.getLogger(__name__)

MAX_TOOL_SETS = 256
MAX_REQUESTS = 64
"""Tools as they were sent, of which what was read of them is kept: the same tools come again and again."""
MAX_PROMPT_TOKENS = 1 << 16
"""Tokens at the end of a prompt that are read as text."""
MAX_OPENING_TOKENS = 32
OUTSIDE = "text"
"""Where a reply stands in no call; within one, the paper's states say where."""


@dataclass(frozen=True)
class DraftRequest:
    """What drafters know of a request before its reply.

    ``prompt``: token ids. ``tools``: what ``ToolRequest.to_wire`` wrote, ``None`` for a request
    without. ``json_schema``: JSON text of the schema that the reply must fit. ``masked``: a grammar
    masks the reply. ``may_think``: it may hold thoughts. ``tenant``: whose memory is read and written.
    ``vector``: float32 ``[hidden size]``, the hidden state of the last prompt token, where it is known.
    """

    prompt: Sequence[int]
    tools: str | None = None
    json_schema: str | None = None
    masked: bool = False
    may_think: bool = True
    tenant: str = ""
    vector: NDArray[np.float32] | None = None


class Assembler:
    """Builds sessions; holds what they share: codec, schemas of tool sets, memories of tenants, the
    history of calls.

    ``parser`` is the name of SGLang's tool-call parser. Without a codec nothing is drafted.
    """

    def __init__(
        self,
        codec: TokenCodec | None,
        parser: str | None,
        faults: Faults,
        config: Config,
        history: History | None = None,
    ):
        self._codec = codec
        self._parser = parser
        self._faults = faults
        self._config = config
        self._asked: OrderedDict[str, ToolRequest] = OrderedDict()
        self._shapes: OrderedDict[str, CallShapes] = OrderedDict()
        self._memories = Memories()
        self._history = History() if history is None else history
        self.calibration = Uncorrected() if config.recipe == "paper" else Calibration()
        self.rests = Rests()
        self._patterned = PatternedValues(ValueGrammars(GrammarCache(on_failure=_report)))

    def __call__(self, request: DraftRequest, more: Sequence[Drafter] = ()) -> Session:
        """``more`` are drafters that only the engine can build."""
        if self._codec is None:
            return Session(list(more), 0, self._faults)
        drafters, situation = self._drafters(request, self._codec)
        return Session(
            [*drafters, *more],
            self._codec.vocab_size,
            self._faults,
            self.calibration,
            self.rests,
            situation,
        )

    def stats(self) -> dict[str, Any]:
        """What is remembered, what came of claims, and which sources rest."""
        return {
            "history": self._history.stats(),
            "claims": self.calibration.table(),
            "resting": self.rests.resting(),
            "rests": dict(self.rests.begun),
        }

    def candidates(self, tenant: str) -> Candidates:
        """Where what the target thought likely in a tenant's replies is noted."""
        return self._memories.of(tenant).candidates

    def _drafters(self, request: DraftRequest, codec: TokenCodec) -> tuple[list[Drafter], Callable[[], str]]:
        """And what tells where the reply stands."""
        sources, paper = self._config.used_sources, self._config.recipe == "paper"
        memory = self._memories.of(request.tenant)
        automaton = self._automaton(request, codec, memory) if "schema" in sources else None
        schema = history = None
        if automaton is not None:
            schema = SchemaDrafter(automaton, codec, literal=request.masked)
        if "history" in sources and automaton is not None and request.vector is not None:
            retrieval = self._config.used_retrieval
            recall = TenantRecall(
                self._history,
                request.tenant,
                request.vector,
                automaton.tool_names,
                codec.decode,
                retrieval.neighbours,
            )
            history = HistoryDrafter(recall, _complete(automaton, codec.stop_ids), retrieval)
        recycling = None
        if "recycling" in sources:
            likely = partial(RecyclingDrafter, memory.candidates)
            recycling = likely(NODES - 1, BY_RANK) if paper else likely()
        if paper:
            return [PaperDrafter(history, schema, recycling)], _situation(automaton)
        suffix = SuffixDrafter(request.prompt, memory.replies) if "suffix" in sources else None
        return [d for d in (schema, history, suffix, recycling) if d is not None], _situation(automaton)

    def _automaton(
        self, request: DraftRequest, codec: TokenCodec, memory: TenantMemory
    ) -> ToolAutomaton | None:
        """For the tools of the request, of its prompt, or for its JSON reply; ``None`` for neither."""
        prompt = _Prompt(request.prompt, codec)
        asked, schema = self._tool_request(request.tools), self._reply_schema(request.json_schema)
        # Such a reply calls no tool, unless its schema is that of a forced call.
        if schema is not None and not (asked and asked.constrained):
            shapes = self._shapes_of(schema, is_reply=True)
            habits = memory.habits(schema.key)
            formats: tuple[Format, ...] = (JSON_REPLY,)
        elif (asked := asked or self._prompt_tools(prompt)) and (offered := asked.offered).tools:
            shapes = self._shapes_of(offered)
            # A mask changes how calls are written: what was learned without one says little.
            habits = memory.habits("forced" if asked.constrained else "free")
            formats = formats_for(self._parser, asked.constrained)
        else:
            return None
        return ToolAutomaton(
            shapes,
            formats,
            habits,
            self._guesser(prompt, memory),
            prompt.thinks if request.may_think else "",
        )

    def _guesser(self, prompt: _Prompt, memory: TenantMemory) -> Guesser:
        guessers: list[NamedGuesser] = [self._patterned]
        if "value" in self._config.used_sources:
            guessers.append(memory.values)
        if "copy" in self._config.used_sources:
            guessers.append(CopiedValues(prompt.text))
        return CombinedGuesser(guessers, self._faults, self.rests)

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

    def _reply_schema(self, text: str | None) -> ToolSet | None:
        """The schema of a ``json_schema`` request, as the parameters of a nameless tool."""
        if text is None or not text.startswith("{"):
            return None
        try:
            return ToolSet.from_openai([{"name": "reply", "parameters": json.loads(text)}])
        except (ValueError, RecursionError) as error:
            self._faults.note("json_schema", error)
            return None

    def _tool_request(self, wire: str | None) -> ToolRequest | None:
        if wire is None:
            return None
        try:
            return kept(self._asked, wire, MAX_REQUESTS, partial(ToolRequest.from_wire, wire))
        except ValueError as error:
            self._faults.note("custom_params", error)
            return None


def _complete(automaton: ToolAutomaton, stop_ids: Collection[int]) -> Callable[[Sequence[int]], bool]:
    """Whether a reply ended by itself and holds a call."""
    return lambda reply: bool(reply) and reply[-1] in stop_ids and automaton.calls_done > 0


def _situation(automaton: ToolAutomaton | None) -> Callable[[], str]:
    if automaton is None:
        return str
    return lambda: automaton.state.value if automaton.point is not None else OUTSIDE


def _report(reason: str) -> None:
    logger.info("toolspec: no forced text inside some values: %s", reason)


class _Prompt:
    """The text of a prompt, decoded when it is asked for."""

    def __init__(self, tokens: Sequence[int], codec: TokenCodec):
        self._tokens = tokens
        self._codec = codec

    @cached_property
    def text(self) -> str:
        return self._codec.decode(self._tokens[-MAX_PROMPT_TOKENS:])

    @property
    def thinks(self) -> str:
        """What closes the thought that the prompt opens for the reply; empty where it opens none."""
        return open_thought(self._codec.decode(self._tokens[-MAX_OPENING_TOKENS:]))
