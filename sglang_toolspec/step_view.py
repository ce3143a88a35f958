"""Verify steps in a terminal, one a line: accepted drafts underlined, then the target's own token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from sglang_toolspec.explain_view import printable

BONUS = "¦"
LEGEND = (
    Text("Each line is a verify step: ")
    + Text("accepted drafts", "underline")
    + Text(f", {BONUS} the token that verifying adds. ")
)


@dataclass(frozen=True)
class Step:
    """``tokens`` as shown, of which the first ``accepted`` were drafted.

    ``head`` names what is no verify step; ``note`` stands behind the tokens.
    """

    tokens: Sequence[Text]
    accepted: int = 0
    head: str = ""
    note: str = ""


def token_text(text: str, style: str = "") -> Text:
    """One token, on one line."""
    return Text(printable(text.replace("\n", "⏎")), style)


def step_lines(steps: Iterable[Step]) -> Iterator[Text]:
    """One line a step, but steps without an accepted token gathered."""
    gathered, many = Text(), 0
    for step in steps:
        if not step.accepted and not step.head:
            gathered += Text().join(step.tokens)
            many += 1
            continue
        if many:
            yield _line(f"0 ×{many}", gathered)
            gathered, many = Text(), 0
        yield _line(step.head or f"+{step.accepted}", _body(step), step.note)
    if many:
        yield _line(f"0 ×{many}", gathered)


def _body(step: Step) -> Text:
    text = Text()
    for i, token in enumerate(step.tokens):
        shown = token.copy()
        if i < step.accepted:
            shown.stylize("underline")
        elif not step.head:
            text.append(BONUS, "dim")
        text += shown
    return text


def _line(head: str, body: Text, note: str = "") -> Text:
    return Text.assemble((f"{head:>7} │ ", "dim"), body, (f"   {note}" if note else "", "dim"))
