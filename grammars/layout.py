"""How the JSON of a reply is laid out: its separators and indentation, as observed.

A layout answers one question: which white space stands in a *gap* between two marks. It
starts from a preset and is corrected by every gap that is seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from sglang_toolspec.grammars.schema import written

MAX_INDENT = 8
MAX_GAP = 64


class Slot(Enum):
    """A gap, by the mark before it (or, for ``CLOSE``, after it)."""

    OPEN = "open"  # after { or [
    ITEM = "item"  # after ,
    COLON = "colon"  # after :
    CLOSE = "close"  # before } or ]

    __hash__ = object.__hash__  # Enum's own hashes the name, in Python


@dataclass(frozen=True)
class Preset:
    """A layout that ``json.dumps`` can write. ``indent`` is the white space per level."""

    item: str = ", "
    colon: str = ": "
    indent: str | None = None

    def gap(self, slot: Slot, depth: int) -> str:
        if slot is Slot.COLON:
            return self.colon[1:]
        if self.indent is not None:
            return "\n" + self.indent * depth
        return self.item[1:] if slot is Slot.ITEM else ""


SPACED = Preset()
PRETTY = Preset(",", ": ", " " * 2)
PRETTY_4 = Preset(",", ": ", " " * 4)
COMPACT = Preset(",", ":")
TIGHT_COLON = Preset(", ", ":")
PRESETS = (SPACED, PRETTY, PRETTY_4, COMPACT, TIGHT_COLON)

JSON_WORDS: dict[Any, str] = {True: "true", False: "false", None: "null"}
PYTHON_WORDS: dict[Any, str] = {True: "True", False: "False", None: "None"}
USUAL_WORDS = 0.9
"""Chance that a constant is written in the same language as the last one."""

Gap = tuple[Slot, bool, bool]
"""A slot, whether its container is the outermost, whether that is an array."""


@dataclass
class Layout:
    """Mutable. What was seen at a place goes before the preset."""

    preset: Preset = SPACED
    seen: dict[Gap, tuple[str, int]] = field(default_factory=dict)
    """The last gap at a place, and the level of the line after it."""
    mixed_words: bool = False
    """Whether constants that stand alone may be written as Python does, ``True``."""
    python_words: bool = False
    """Whether the last one was."""

    def copy(self) -> Layout:
        return replace(self, seen=dict(self.seen))

    def gap(self, slot: Slot, depth: int, array: bool) -> str:
        """White space for ``slot`` of a container at ``depth`` (1 is the outermost)."""
        level = depth - 1 if slot is Slot.CLOSE else depth
        found, seen_level = self.seen.get((slot, depth == 1, array), (None, 0))
        if found is None:
            return self.preset.gap(slot, level)
        if "\n" in found:
            unit = _unit(found, seen_level) if self.preset.indent is None else self.preset.indent
            return "\n" + unit * level
        return found

    def written(self, value: Any, depth: int) -> str:
        """``value`` as JSON, in a container at ``depth``."""
        if not isinstance(value, dict | list) or not value:
            return written(value)
        array, inner = isinstance(value, list), depth + 1
        colon = ":" + self.gap(Slot.COLON, inner, False)
        items = [self.written(v, inner) for v in value] if isinstance(value, list) else [
            written(k) + colon + self.written(v, inner) for k, v in value.items()
        ]  # fmt: skip
        body = ("," + self.gap(Slot.ITEM, inner, array)).join(items)
        start, end = self.gap(Slot.OPEN, inner, array), self.gap(Slot.CLOSE, inner, array)
        return f"[{start}{body}{end}]" if array else f"{{{start}{body}{end}}}"

    def observe(self, slot: Slot, depth: int, array: bool, gap: str) -> None:
        """A gap of a reply. It is believed at once: for its place, and for the preset that
        explains most of what was seen."""
        if len(gap) > MAX_GAP:
            return
        expected = self.gap(slot, depth, array)
        level = depth - 1 if slot is Slot.CLOSE else depth
        self.seen[slot, depth == 1, array] = (gap, level)
        if gap == expected:
            return
        candidates = (*PRESETS, _indented(gap, level) or self.preset)
        self.preset = max(candidates, key=lambda p: (self._explained(p), p == self.preset))

    def words(self, value: bool | None, depth: int) -> list[tuple[str, float]]:
        """How a constant may be written in a container at ``depth``, with chances."""
        if depth or not self.mixed_words:
            return [(JSON_WORDS[value], 1.0)]
        usual, other = (PYTHON_WORDS, JSON_WORDS) if self.python_words else (JSON_WORDS, PYTHON_WORDS)
        return [(usual[value], USUAL_WORDS), (other[value], 1 - USUAL_WORDS)]

    def observe_word(self, text: str) -> None:
        """A number or constant of a reply."""
        if text in PYTHON_WORDS.values() or text in JSON_WORDS.values():
            self.python_words = text[0].isupper()

    def _explained(self, preset: Preset) -> int:
        return sum(gap == preset.gap(slot, level) for (slot, _, _), (gap, level) in self.seen.items())


def _indented(gap: str, level: int) -> Preset | None:
    """The preset with the indentation that ``gap`` shows."""
    unit = _unit(gap, level) if "\n" in gap else ""
    return Preset(",", ": ", unit) if 0 < len(unit) <= MAX_INDENT else None


def _unit(gap: str, level: int) -> str:
    """The indentation per level of the line that begins after ``gap``."""
    line = gap.rpartition("\n")[2]
    return line[: len(line) // level] if level else ""
