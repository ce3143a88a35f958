"""A format as a script of steps, and following literal text with free white space."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from sglang_toolspec.grammars.formats import Format, pieces

MAX_SPACE = 64
_SPACE = " \t\r\n"


class Literal(NamedTuple):
    text: str


class Name(NamedTuple):
    """The tool's name, up to a character of ``ends``."""

    ends: str


class Index(NamedTuple):
    ends: str


class Json(NamedTuple):
    """A JSON object: a whole call, or its arguments."""

    whole_call: bool


class Parameters(NamedTuple):
    """Any number of parameters in a markup."""

    parameter: tuple[Step, ...]


class Key(NamedTuple):
    ends: str


class Value(NamedTuple):
    """The text of a parameter, up to the literal ``end``."""

    end: str


class EndCall(NamedTuple):
    pass


class EndBlock(NamedTuple):
    pass


class Fork(NamedTuple):
    """Either of two scripts, each of which begins with a literal."""

    more: Script
    done: Script


Step = Literal | Name | Index | Json | Parameters | Key | Value | EndCall | EndBlock | Fork
Script = tuple[Step, ...]


@cache
def script(form: Format) -> Script:
    """The steps of a block of calls from its first character."""
    call = _steps(form.call, form.parameter)
    opening = (Literal(form.open),) if form.open else ()
    return _joined((*opening, *call, EndCall()))


@cache
def after_call(form: Format) -> Script:
    """The steps after a call: another one of the block, or its end."""
    if not form.close:
        return (EndBlock(),)
    again = _joined((Literal(form.between), *_steps(form.call, form.parameter), EndCall()))
    return (Fork(again, (Literal(form.close), EndBlock())),)


@cache
def next_block(form: Format) -> Script:
    """The steps of one more call after a block that has ended."""
    if form.close:
        return _joined((Literal("\n"), *script(form)))
    return _joined((Literal(form.between), *_steps(form.call, form.parameter), EndCall()))


def parameter_or(after: Script, parameters: Parameters) -> Fork:
    """One more parameter, or what follows the last one."""
    return Fork((*parameters.parameter, parameters, *after), after)


def _steps(template: str, parameter: str) -> Script:
    found = pieces(template)
    steps: list[Step] = []
    for i, (piece, is_hole) in enumerate(found):
        following = found[i + 1][0] if i + 1 < len(found) and not found[i + 1][1] else ""
        steps.append(_hole(piece, following, parameter) if is_hole else Literal(piece))
    # What ends a value stands in the value's step already.
    return tuple(s for i, s in enumerate(steps) if not (i and isinstance(steps[i - 1], Value)))


def _hole(name: str, following: str, parameter: str) -> Step:
    # Names may hold spaces; where only white space follows, markup does after it.
    ends = following[:1]
    if ends in _SPACE:
        ends = (ends or "\n") + (following.strip()[:1] or "<")
    if name == "name":
        return Name(ends)
    if name == "index":
        return Index(ends)
    if name == "key":
        return Key(ends)
    if name == "value":
        return Value(following)
    if name == "parameters":
        return Parameters(_steps(parameter, ""))
    return Json(whole_call=name == "object")


def _joined(steps: Script) -> Script:
    """Neighbouring literals as one, empty ones left out."""
    joined: list[Step] = []
    for step in steps:
        if isinstance(step, Literal) and joined and isinstance(joined[-1], Literal):
            joined[-1] = Literal(joined[-1].text + step.text)
        elif step != Literal(""):
            joined.append(step)
    return tuple(joined)


class Match(NamedTuple):
    """How ``data`` fits a literal: characters used (``None`` while it may go on), text missing."""

    used: int | None
    missing: str


def match(literal: str, data: str) -> Match | None:
    """Follow ``literal`` along ``data``; ``None`` where they differ.

    A run of white space in the literal fits any run up to ``MAX_SPACE``, also none, and so
    does white space before the literal.
    """
    i = j = 0
    while i < len(literal):
        gap_at, began = i, j
        if literal[i] in _SPACE or i == 0:
            i, j = _past_space(literal, i), _past_space(data, j)
            if i == len(literal) and j > began:
                return Match(began + 1, "")  # more of it belongs to what follows
        if j == len(data) and j - began <= MAX_SPACE:
            given, gap = data[began:j], literal[gap_at:i]
            rest = gap[len(given) :] if gap.startswith(given) else ""
            return Match(None, rest + literal[i:])
        if i < len(literal):
            if j - began > MAX_SPACE or literal[i] != data[j]:
                return None
            i, j = i + 1, j + 1
    return Match(j, "")


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at
