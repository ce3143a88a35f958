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
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.states import State
from sglang_toolspec.grammars.tools import ToolSet
from sglang_toolspec.runtime.drafters.schema import SchemaDrafter
from sglang_toolspec.runtime.replay import ReplayTotals, replay
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tokens import TokenCodec

SOURCES = {
    # file: (rows with tool_choice auto, rows with required)
    "bfcl_simple": (40, 20),
    "bfcl_parallel": (25, 15),
    "toolalpaca_eval": (30, 20),
}
PARSER = "qwen25"


@dataclass(frozen=True)
class Recorded:
    """One reply: its tools in OpenAI's form, how they were to be called, and its token ids."""

    kind: str
    tools: list[Any]
    constrained: bool
    output_ids: Sequence[int]


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


def replayed(
    recorded: Iterable[Recorded], codec: TokenCodec, width: int
) -> tuple[ReplayTotals, SkeletonTotals]:
    """Replay with the schema drafter alone, habits kept from reply to reply."""
    totals, skeleton = ReplayTotals(), SkeletonTotals()
    habits: dict[bool, Habits] = {False: Habits(), True: Habits()}
    shapes: dict[str, CallShapes] = {}
    for reply in recorded:
        tools = ToolSet.from_openai(reply.tools)
        shape = shapes.setdefault(tools.key, CallShapes(tools))
        formats = formats_for(PARSER, reply.constrained)
        automaton = ToolAutomaton(shape, formats, habits[reply.constrained])
        drafter = SchemaDrafter(automaton, codec, literal=reply.constrained)
        session = Session([drafter], codec.vocab_size, Faults(_raise))
        marks = _marks(ToolAutomaton(shape, formats, Habits()), reply.output_ids, codec)
        steps = list(replay(session, reply.output_ids, width))
        totals.add(reply.output_ids, steps)
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
    return totals, skeleton


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


def checksum(recorded: Iterable[Recorded]) -> str:
    """SHA-256 of the replies' token ids."""
    digest = hashlib.sha256()
    for reply in recorded:
        digest.update(json.dumps([reply.kind, list(reply.output_ids)]).encode())
    return digest.hexdigest()


def _raise(reason: str, error: BaseException) -> None:
    raise error
