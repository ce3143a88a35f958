"""xgrammar's grammars as text that xgrammar reads as the same grammar."""

from __future__ import annotations

import re

import xgrammar

MAX_DIGITS = 80
"""Of each part of a JSON number in a mask: 256-bit integers have 78, a double at most 17 that count."""
_MAX_EXPONENT_DIGITS = 4

_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|.)")
_ENDS = (
    (re.compile(r"\[1-9\] \[0-9\]\*"), f"[1-9] [0-9]{{0,{MAX_DIGITS - 1}}}"),
    (re.compile(r"(\[1-9\] \w+)\{1, -1\}"), rf"\1{{1, {MAX_DIGITS - 1}}}"),
    (re.compile(r'("\." \w+_digits)\{1, -1\}'), rf"\1{{1, {MAX_DIGITS}}}"),
    (re.compile(r"(\[eE] \w+ \w+_digits)\{1, -1\}"), rf"\1{{1, {_MAX_EXPONENT_DIGITS}}}"),
)
"""How xgrammar 0.2.7 writes the parts of numbers, and the same with an end."""


def printed(grammar: xgrammar.Grammar) -> str:
    """EBNF whose main rule is ``root``."""
    return _ESCAPE.sub(_fixed_width, str(grammar))


def with_ends(ebnf: str) -> str:
    """``ebnf`` of a JSON Schema, with numbers that cannot go on for ever.

    A model may repeat a digit until its limit, and a mask is what could stop it. Strings stay without a
    bound, as theirs refuses escapes (``mask_schema.keeps_lengths``).
    """
    for endless, ending in _ENDS:
        ebnf = endless.sub(ending, ebnf)
    return ebnf


def _fixed_width(escape: re.Match[str]) -> str:
    """xgrammar prints ``\\xdf`` before any character, and reads ``\\xdfe`` as one character."""
    return f"\\u00{escape[1]}" if escape[1] else escape[0]
