"""Recorded greedy replies of the real model, and what drafts of the schema alone would have saved.

``make accept`` records them through a server (nothing of it is committed but the summary in
``docs/acceptance.json``, with checksums) and replays them without one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.formats import formats_for
from sglang_toolspec.grammars.states import State
from sglang_toolspec.grammars.tools import ToolSet
from sglang_toolspec.runtime.assembly import Assembler, DraftRequest
from sglang_toolspec.runtime.attribution import Attribution
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.replay import replay
from sglang_toolspec.runtime.request import ToolRequest
from sglang_toolspec.runtime.session import Faults
from sglang_toolspec.runtime.tokens import TokenCodec

SOURCES = {
    # file: (rows with tool_choice auto, rows with required)
    "bfcl_simple": (50, 20),
    "bfcl_parallel": (30, 15),
    "toolalpaca_eval": (35, 20),
}
PARSER = "qwen25"


@dataclass(frozen=True)
class Reply:
    """One reply: its tools in OpenAI's form, how they were to be called, and its token ids."""

    kind: str
    tools: list[Any]
    constrained: bool
    output_ids: Sequence[int]

    @property
    def tool_request(self) -> ToolRequest:
        return ToolRequest(ToolSet.from_openai(self.tools), "required" if self.constrained else "auto")


@dataclass
class SkeletonTotals:
    """``missed`` are skeleton tokens that were a verify step's only token."""

    calls: int = 0
    steps: int = 0
    bound: int = 0
    """1 + parameters + value tokens, summed over calls."""
    skeleton: int = 0
    missed: int = 0
    choices_missed: int = 0
    """Those of ``missed`` that begin a tool's name: which tool is called is no skeleton."""


def replayed(replies: Iterable[Reply], codec: TokenCodec, width: int) -> tuple[Attribution, SkeletonTotals]:
    """Replay with the schema drafter alone, habits kept from reply to reply."""
    total, skeleton = Attribution(), SkeletonTotals()
    assemble = Assembler(codec, PARSER, Faults(_raise), Config(sources=frozenset({"schema"})))
    for reply in replies:
        tools = reply.tool_request.to_wire()
        session = assemble(DraftRequest([], tools, masked=reply.constrained))
        steps = list(replay(session, reply.output_ids, width))
        total.add(session.attribution)
        formats = formats_for(PARSER, reply.constrained)
        automaton = ToolAutomaton(CallShapes(reply.tool_request.tools), formats)
        marks = _marks(automaton, reply.output_ids, codec)
        skeleton.calls += automaton.calls_done
        skeleton.steps += len(steps)
        skeleton.skeleton += sum(mark != "value" for mark in marks if mark)
        parameters = sum(m == "value" != before for before, m in pairwise(["", *marks]))
        skeleton.bound += automaton.calls_done + parameters + marks.count("value")
        at = 1
        for step in steps:
            if len(step.committed) == 1 and marks[at] not in ("", "value"):
                skeleton.missed += 1
                skeleton.choices_missed += marks[at] == "name"
            at += len(step.committed)
    return total, skeleton


def _marks(automaton: ToolAutomaton, tokens: Sequence[int], codec: TokenCodec) -> list[str]:
    """What each token begins in: ``value``, ``name``, ``key``, other ``skeleton``; ``""`` outside calls."""
    marks = []
    for token in tokens:
        before = automaton.state
        in_block = automaton.point is not None
        in_value = before is State.PARAMETER_VALUE
        automaton.advance(codec.text_of(token))
        kind = {State.TOOL_NAME: "name", State.PARAMETER_NAME: "key"}.get(before, "skeleton")
        marks.append("value" if in_value else kind if in_block or automaton.point is not None else "")
    return marks


def checksum(replies: Iterable[Reply]) -> str:
    """SHA-256 of the replies' token ids."""
    digest = hashlib.sha256()
    for reply in replies:
        digest.update(json.dumps([reply.kind, list(reply.output_ids)]).encode())
    return digest.hexdigest()


def _raise(reason: str, error: BaseException) -> None:
    raise error
