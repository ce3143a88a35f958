"""Shows recorded replies step by step, as drafts would have shortened them; see ``runtime.replay``."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from sglang_toolspec.explain_view import STYLES, forget_unwritable
from sglang_toolspec.grammars.automaton import ToolAutomaton
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.formats import Format
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.piece import Kind
from sglang_toolspec.grammars.tools import ToolSet
from sglang_toolspec.replay_text import Alphabet, Tokens, Words, read_replies
from sglang_toolspec.runtime.attribution import Attribution
from sglang_toolspec.runtime.replay import ReplayStep, replay
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.step_view import LEGEND, Step, step_lines, token_text

WIDTH = 32
"""Nodes of a draft tree, the root included, as the server has by default."""


def print_replay(tools: ToolSet, forms: tuple[Format, ...], file: Path, tokenizer: str) -> None:
    """Replies are one tenant's: what one shows of formats, layout and keys helps the next."""
    console = Console(file=sys.stdout, highlight=False)
    forget_unwritable(console)
    alphabet: Alphabet = Tokens(tokenizer) if tokenizer else Words()
    shapes, habits, total, replies = CallShapes(tools), Habits(), Attribution(), 0
    faults = Faults(lambda reason, error: console.print(Text(f"fault: {reason}: {error}", "bold red")))
    console.print(_legend(alphabet))
    for ids in read_replies(file, alphabet):
        kinds = Kinds(ToolAutomaton(shapes, forms, copy.deepcopy(habits)), alphabet)
        session = Session([alphabet.drafter(ToolAutomaton(shapes, forms, habits))], alphabet.size, faults)
        steps = list(replay(session, ids, WIDTH))
        total.add(session.attribution)
        replies += 1
        console.print(Text(f"\nreply {replies}: {session.attribution}", "bold"))
        for line in step_lines(_steps(ids, steps, kinds, alphabet)):
            console.print(line)
    console.print(Text(f"\nall {replies} replies: {total}", "bold"))


class Kinds:
    """Follows a reply: was its next token forced, one of the branches, or open? Mutable."""

    def __init__(self, automaton: ToolAutomaton, alphabet: Alphabet):
        self._automaton = automaton
        self._alphabet = alphabet

    def of(self, token: int) -> Kind:
        """Of the next token, which is then followed."""
        written = self._alphabet.text_of(token)
        text = written.decode(errors="replace")
        kind = self._kind(text) if text else Kind.OPEN
        self._automaton.advance(written)
        return kind

    def _kind(self, text: str) -> Kind:
        if _fit(text, self._automaton.spans()):
            return Kind.FORCED
        if any(_fit(text, c.text) for c in self._automaton.continuations()):
            return Kind.BRANCH
        return Kind.OPEN


def _fit(text: str, drafted: str) -> bool:
    return bool(drafted) and (drafted.startswith(text) or text.startswith(drafted))


def _steps(ids: list[int], steps: list[ReplayStep], kinds: Kinds, alphabet: Alphabet) -> Iterator[Step]:
    for token in ids[:1]:
        yield Step([_token(token, kinds, alphabet)], head="first")
    for step in steps:
        yield Step([_token(token, kinds, alphabet) for token in step.committed], len(step.accepted))


def _token(token: int, kinds: Kinds, alphabet: Alphabet) -> Text:
    kind = kinds.of(token)
    return token_text(alphabet.text_of(token).decode(errors="replace") or "<end>", STYLES[kind])


def _legend(alphabet: Alphabet) -> Text:
    text = Text.assemble((f"Replies in {alphabet.name}, trees of {WIDTH} nodes.\n", ""))
    text += LEGEND
    for kind in Kind:
        text.append(f"{kind.value} ", STYLES[kind])
    return text
