"""How past replies are looked up and continued (paper, section 3.3 and tables 6 and 7)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sglang_toolspec.errors import UserError

MAX_NEIGHBOURS = 100
MAX_TOKENS = 64
MAX_CONTINUATIONS = 16


@dataclass(frozen=True)
class Retrieval:
    """``neighbours``: similar prompts whose replies are looked at, the paper's k. ``suffixes``: the
    fewest tokens that must match before a reply is continued, and from how many on matches are equally
    good. ``continuations``: tokens copied from the best match, the second best, … ``whole`` also offers
    the rest of past replies that began like this one."""

    neighbours: int = 10
    suffixes: tuple[int, int] = (3, 24)
    continuations: tuple[int, ...] = (32, 16, 8, 8)
    whole: bool = True

    def changed(self, text: str, setting: str) -> Retrieval:
        """With what ``text`` says, as ``neighbours=5,suffixes=5-7,continuations=32/16/8/8``.

        Raises ``UserError`` that names ``setting`` where it says something else.
        """
        changes: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = part.partition("=")
            reader = _READERS.get(name)
            changes[name] = None if reader is None else reader(value)
            if changes[name] is None:
                raise UserError(
                    f"{setting} has {part!r}; write neighbours=1 to {MAX_NEIGHBOURS}, suffixes=5-7 and "
                    f"continuations=32/16/8/8, at most {MAX_CONTINUATIONS} of at most {MAX_TOKENS} tokens"
                )
        return replace(self, **changes)


PAPER = Retrieval(suffixes=(5, 7), whole=False)


def _numbers(text: str, separator: str, most: int) -> tuple[int, ...] | None:
    """Whole numbers from 1 to ``most``; ``None`` for anything else."""
    if not re.fullmatch(rf"[0-9]{{1,3}}({separator}[0-9]{{1,3}})*", text):
        return None
    numbers = tuple(map(int, text.split(separator)))
    return numbers if all(1 <= number <= most for number in numbers) else None


def _neighbours(text: str) -> int | None:
    numbers = _numbers(text, ",", MAX_NEIGHBOURS)
    return numbers[0] if numbers else None


def _suffixes(text: str) -> tuple[int, int] | None:
    numbers = _numbers(text, "-", MAX_TOKENS)
    if numbers is None or len(numbers) > 2 or numbers[0] > numbers[-1]:
        return None
    return numbers[0], numbers[-1]


def _continuations(text: str) -> tuple[int, ...] | None:
    numbers = _numbers(text, "/", MAX_TOKENS)
    return numbers if numbers and len(numbers) <= MAX_CONTINUATIONS else None


_READERS: dict[str, Callable[[str], Any]] = {
    "neighbours": _neighbours,
    "suffixes": _suffixes,
    "continuations": _continuations,
}
