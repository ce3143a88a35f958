"""Regular expressions of JSON Schema, in the form that xgrammar 0.2.7 enforces rightly.

JSON Schema searches for a pattern; xgrammar matches the whole string with it, ignores some
constructs, and lets raw quotes and line breaks into the JSON for others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

MAX_LENGTH = 256
MAX_COST = 256
"""In states of the automaton; each costs up to 4 ms against a vocabulary of 150,000 tokens."""
_BROAD_COST = 12
"""A state where most tokens may come next costs as much as this many others."""

_ANYTHING = r"[\s\S]*"
_QUANTIFIER = re.compile(r"([*+?]|\{(\d+)(?:,(\d*))?\})\??")
_CODE = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})")
_GROUP = re.compile(r"\((?:\?(?::|P?<[A-Za-z_]\w*>))?")
_ESCAPED_IN_JSON = "characters that JSON writes with a backslash"
_FAULTS = {
    "b": "word boundaries", "B": "word boundaries", "k": "back references",
    "p": "Unicode classes", "P": "Unicode classes",
    **dict.fromkeys("123456789", "back references"), **dict.fromkeys("nrtfv0c", _ESCAPED_IN_JSON),
}  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """``whole`` matches the same strings as the pattern finds; empty where there is a ``fault``."""

    whole: str = ""
    fault: str = ""
    """What the pattern uses that cannot be enforced."""
    broad: bool = False
    """Whether it can match characters that JSON escapes; xgrammar refuses those."""


@lru_cache(maxsize=4096)
def read(pattern: str) -> Reading:
    if len(pattern) > MAX_LENGTH:
        return Reading(fault=f"more than {MAX_LENGTH} characters")
    try:
        return _Reader(pattern).read()
    except _Fault as fault:
        return Reading(fault=str(fault))


class _Fault(Exception):
    pass


class _Reader:
    def __init__(self, pattern: str):
        self._pattern = pattern
        self._at = 0
        self._written: list[str] = []
        self._branches: list[str] = []
        self._starts = self._ends = self._broad = False
        self._costs = [0]
        """Of the groups that are open, the outermost first."""
        self._last = 0
        """Cost of the last atom."""
        self._begins = [0]
        """Where the last atom of each open group begins in ``_written``."""

    def read(self) -> Reading:
        while self._at < len(self._pattern):
            self._step()
        if len(self._costs) > 1:
            raise _Fault("an open parenthesis")
        self._end_branch()
        cost = self._costs[0]
        if cost > MAX_COST:
            raise _Fault(f"more than {MAX_COST // _BROAD_COST} repetitions of any character, or as much")
        whole = self._branches[0] if len(self._branches) == 1 else f"(?:{'|'.join(self._branches)})"
        return Reading(f"^{whole}$", broad=self._broad)

    def _step(self) -> None:
        char = self._pattern[self._at]
        if self._ends and char != "|":
            raise _Fault("a '$' that is not at its end")
        if char == "\\":
            self._escape()
        elif char == "[":
            self._class()
        elif char == "(":
            self._open()
        elif char == ")":
            self._close()
        elif char == "|":
            self._take(1)
            if len(self._costs) == 1:
                self._written.pop()
                self._end_branch()
        elif char in "^$":
            self._anchor(char)
        elif found := _QUANTIFIER.match(self._pattern, self._at):
            self._quantify(found)
        elif char in "{}*+?":
            raise _Fault(f"a bare '{char}'")
        else:
            self._character(char)

    def _take(self, length: int, cost: int = 0) -> None:
        self._write(self._pattern[self._at : self._at + length], length, cost)

    def _write(self, text: str, length: int, cost: int) -> None:
        """An atom (or mark) of ``length`` characters, in the form of ``text``."""
        self._begins[-1] = len(self._written)
        self._written.append(text)
        self._at += length
        self._last = cost
        self._costs[-1] += cost

    def _character(self, char: str) -> None:
        if char == ".":
            self._broad = True
            self._take(1, _BROAD_COST)
            return
        self._write(_literal(char), 1, 1)

    def _escape(self) -> None:
        following = self._pattern[self._at + 1 : self._at + 2]
        code = _CODE.match(self._pattern, self._at + 1)
        if code:
            _literal(chr(int(code[1] or code[2], 16)))
            self._take(1 + len(code[0]), 1)
        elif following and following in "dws":
            self._broad |= following == "s"
            self._take(2, 1)
        elif following and following in "DWS":
            self._broad = True
            self._take(2, _BROAD_COST)
        else:
            _check_escape(following)
            _literal(following)
            self._take(2, 1)

    def _class(self) -> None:
        begin = self._at
        negated = self._pattern.startswith("^", self._at + 1)
        self._at += 1 + negated
        if self._pattern.startswith("]", self._at):
            raise _Fault("an empty class")
        members: list[str] = []
        usable = negated
        while not self._pattern.startswith("]", self._at):
            text, length, plain = self._member()
            members.append(text)
            usable |= plain
            self._at += length
        if not usable:
            raise _Fault(_ESCAPED_IN_JSON)
        broad = negated or any(m in ("\\D", "\\W", "\\S", "\\s") for m in members)
        self._broad |= broad
        length, self._at = self._at + 1 - begin, begin
        text = f"[{'^' if negated else ''}{''.join(members)}]"
        self._write(text, length, _BROAD_COST if broad else 1)

    def _member(self) -> tuple[str, int, bool]:
        """A character of a class: how it is written, its length, and whether JSON has it as itself."""
        char = self._pattern[self._at : self._at + 1]
        if not char or self._pattern.startswith("[:", self._at):
            raise _Fault("a class without an end" if not char else "POSIX classes")
        if char != "\\":
            return _ascii(char), 1, char != '"' and char >= " "
        following = self._pattern[self._at + 1 : self._at + 2]
        code = _CODE.match(self._pattern, self._at + 1)
        length = 1 + len(code[0]) if code else 2
        text = self._pattern[self._at : self._at + length]
        if code:
            char = chr(int(code[1] or code[2], 16))
            return text, length, char not in '"\\' and char >= " "
        if following not in "nrtfv0bdwsDWS":
            _check_escape(following)
        return text, length, following not in '"\\nrtfv0b'

    def _open(self) -> None:
        found = _GROUP.match(self._pattern, self._at)
        assert found is not None
        if self._pattern.startswith("?", self._at + len(found[0])):
            raise _Fault("look-around or flags")
        self._take(len(found[0]))
        self._costs.append(0)
        self._begins.append(len(self._written))

    def _close(self) -> None:
        if len(self._costs) == 1:
            raise _Fault("an unmatched parenthesis")
        cost = self._costs.pop()
        self._begins.pop()
        begin = self._begins[-1]
        self._take(1, cost)
        self._begins[-1] = begin

    def _anchor(self, char: str) -> None:
        if len(self._costs) > 1 or (char == "^" and self._written):
            raise _Fault(f"a '{char}' inside")
        if char == "^":
            self._starts = True
        else:
            self._ends = True
        self._at += 1

    def _quantify(self, found: re.Match[str]) -> None:
        before = self._written[-1] if self._written else ""
        least, most = found[2], found[3]
        if before in ("", "(", "(?:", "|") or before[0] in "*+?{" or (most and int(most) < int(least)):
            raise _Fault(f"the repetition '{found[0]}'")
        if any("\\u" in text for text in self._written[self._begins[-1] :]):
            # Where the same character follows, xgrammar accepts too much.
            raise _Fault("repetitions of characters beyond ASCII")
        times = max(int(most or least), 1) if least else 1
        self._costs[-1] += self._last * (times - 1)
        self._last *= times
        # Lazy or not, the whole string is matched. Behind "a*" that begins a pattern which goes on with
        # the same character xgrammar leaves it out: "a*a" would allow "".
        self._written.append("{0,}" if found[1] == "*" else found[1])
        self._at = found.end()
        if self._costs[-1] > 1 << 20:
            raise _Fault("huge repetitions")

    def _end_branch(self) -> None:
        text = "".join(self._written)
        start, end = "" if self._starts else _ANYTHING, "" if self._ends else _ANYTHING
        self._costs[0] += _BROAD_COST * ((not self._starts) + (not self._ends))
        self._broad |= bool(start or end)
        self._branches.append(f"{start}{text}{end}" if text or not end else end)
        self._written, self._starts, self._ends = [], False, False


def _check_escape(char: str) -> None:
    if char in _FAULTS:
        raise _Fault(_FAULTS[char])
    if not char or char.isalnum():
        raise _Fault(f"the escape '\\{char}'")


def _literal(char: str) -> str:
    """``char`` as the pattern of itself."""
    if char in '"\\' or char < " ":
        raise _Fault(_ESCAPED_IN_JSON)
    return _ascii(char)


def _ascii(char: str) -> str:
    """Other characters as escapes: only for ASCII patterns does xgrammar keep the JSON intact."""
    if char.isascii():
        return char
    if ord(char) > 0xFFFF:
        raise _Fault("characters beyond U+FFFF")
    return f"\\u{ord(char):04x}"
