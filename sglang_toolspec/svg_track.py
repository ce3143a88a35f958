"""Railroad tracks in SVG: the pieces of a call as boxes, forks and bypasses on a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Protocol

from rich.cells import cell_len

from sglang_toolspec.explain_view import printable
from sglang_toolspec.grammars.piece import Kind, Piece, Role

MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
SANS = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"
INK, MUTED, LINE = "#0f172a", "#64748b", "#94a3b8"
TEXT_COLOURS = {Kind.FORCED: "#0f766e", Kind.BRANCH: "#b45309", Kind.OPEN: "#6d28d9"}
FILLS = {Kind.FORCED: "#ecfdf5", Kind.BRANCH: "#fffbeb", Kind.OPEN: "#f5f3ff"}
STROKES = {Kind.FORCED: "#34d399", Kind.BRANCH: "#f59e0b", Kind.OPEN: "#a78bfa"}
SIZE = 12
GAP = 10
MAX_WAYS = 6
MAX_WAY_WIDTH = 860.0
MAX_SHOWN = 48
_HALF = 12
"""Half the height of a box."""
_FORK = 26
"""Width of the lines that part, and of those that meet, at a fork."""
_BYPASS = 24
_JSON_KEY = re.compile(r'(.*?)("(?:[^"\\]|\\.)*")(:\s*)', re.DOTALL)


class Item(Protocol):
    """Something on the track. ``up`` and ``down`` say how far it reaches from the line."""

    @property
    def width(self) -> float: ...
    @property
    def up(self) -> float: ...
    @property
    def down(self) -> float: ...
    @property
    def depth(self) -> int: ...

    def draw(self, x: float, y: float) -> str:
        """SVG with the left end of the line at ``(x, y)``."""


def text(x: float, y: float, shown: str, colour: str, size: float = SIZE, *, more: str = "") -> str:
    if not shown:
        return ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour}"{more}>{escape(shown)}</text>'


def mono_width(shown: str, size: float = SIZE) -> float:
    return 0.605 * size * cell_len(shown)


def visible(raw: str) -> str:
    """One printable line, not longer than fits: breaks are shown, spaces after them left out."""
    shown = printable(re.sub(r"\n *", "\n", raw).replace("\n", "⏎"))
    return shown if len(shown) <= MAX_SHOWN else f"{shown[: MAX_SHOWN - 1]}…"


@dataclass
class Edge:
    """Text between boxes, written on the line."""

    depth: int = 0
    parts: list[tuple[str, Kind]] = field(default_factory=list)
    up: float = 16
    down: float = 4

    @property
    def shown(self) -> str:
        return "".join(shown for shown, _ in self.parts)

    @property
    def width(self) -> float:
        return mono_width(self.shown) + 2

    def draw(self, x: float, y: float) -> str:
        spans = "".join(
            f'<tspan fill="{TEXT_COLOURS[kind]}">{escape(shown)}</tspan>' for shown, kind in self.parts
        )
        return (
            f'<text class="m" xml:space="preserve" x="{x + 1:g}" y="{y - 5:g}" font-size="{SIZE}">'
            f"{spans}</text>"
        )


@dataclass
class Box:
    """A key, a name, a value to choose, or (``round``) an open value."""

    shown: str
    kind: Kind
    depth: int = 0
    round: bool = False
    bold: bool = False
    up: float = _HALF + 2
    down: float = _HALF + 2

    @property
    def width(self) -> float:
        return mono_width(self.shown) + (22 if self.round else 14)

    def draw(self, x: float, y: float) -> str:
        radius = _HALF if self.round else 4
        style = ' font-style="italic"' if self.round else ' font-weight="600"' if self.bold else ""
        return (
            f'<rect x="{x:g}" y="{y - _HALF:g}" width="{self.width:g}" height="{2 * _HALF}" rx="{radius}" '
            f'fill="{FILLS[self.kind]}" stroke="{STROKES[self.kind]}"/>'
            + text(
                x + self.width / 2,
                y + 4,
                self.shown,
                TEXT_COLOURS[self.kind],
                more=f' class="m" text-anchor="middle"{style}',
            )
        )


@dataclass
class Row:
    """Items one after another."""

    items: list[Item]

    @property
    def width(self) -> float:
        return sum(item.width for item in self.items) + GAP * max(0, len(self.items) - 1)

    @property
    def up(self) -> float:
        return max((item.up for item in self.items), default=0)

    @property
    def down(self) -> float:
        return max((item.down for item in self.items), default=0)

    def draw(self, x: float, y: float) -> str:
        drawn = []
        for item in self.items:
            drawn.append(item.draw(x, y))
            x += item.width + GAP
        return "".join(drawn)


@dataclass
class Fork:
    """Ways of which one is taken, the first on the line and the others below."""

    ways: Sequence[Row]
    depth: int = 0

    @property
    def width(self) -> float:
        return max(way.width for way in self.ways) + 2 * _FORK

    @property
    def up(self) -> float:
        return self.ways[0].up

    @property
    def down(self) -> float:
        return self._lines()[-1] + self.ways[-1].down

    def _lines(self) -> list[float]:
        lines = [0.0]
        for above, way in zip(self.ways, self.ways[1:], strict=False):
            lines.append(lines[-1] + max(28.0, above.down + way.up + 4))
        return lines

    def draw(self, x: float, y: float) -> str:
        drawn, right = [], x + self.width
        for way, at in zip(self.ways, self._lines(), strict=True):
            if at:
                to = y + at
                drawn.append(
                    f'<path class="t" d="M{x + 6:g} {y:g}'
                    f"C{x + 18:g} {y:g} {x + 8:g} {to:g} {x + _FORK:g} {to:g}"
                    f"H{right - _FORK:g}C{right - 8:g} {to:g} {right - 18:g} {y:g} "
                    f'{right - 4:g} {y:g}"/>'
                )
            drawn.append(way.draw(x + _FORK, y + at))
        drawn.append(f'<path d="M{x:g} {y:g}l6 -6l6 6l-6 6z" fill="{STROKES[Kind.BRANCH]}"/>')
        return "".join(drawn)


@dataclass
class Bypass:
    """A member that may be left out: the line leads past it too."""

    row: Row
    depth: int = 0

    @property
    def width(self) -> float:
        return self.row.width + 2 * 18

    @property
    def up(self) -> float:
        return max(_BYPASS, self.row.up + 6)

    @property
    def down(self) -> float:
        return self.row.down

    def draw(self, x: float, y: float) -> str:
        right, top = x + self.width, y - self.up + 2
        return (
            f'<path class="t b" d="M{x:g} {y:g}C{x + 10:g} {y:g} {x + 2:g} {top:g} {x + 14:g} {top:g}'
            f'H{right - 14:g}C{right - 2:g} {top:g} {right - 10:g} {y:g} {right:g} {y:g}"/>'
            + self.row.draw(x + 18, y)
        )


def track(pieces: Iterable[Piece]) -> list[Item]:
    """What stands on the line for ``pieces``."""
    return _Track().of(pieces)


class _Track:
    """Throw-away: gathers text between boxes."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._key_comes = False
        """Whether the next text is a key: in a markup it stands between marks."""

    def of(self, pieces: Iterable[Piece]) -> list[Item]:
        for piece in pieces:
            self._add(piece)
        return [item for item in map(_trimmed, self._items) if not isinstance(item, Edge) or item.parts]

    def _add(self, piece: Piece) -> None:
        if piece.role is Role.KEY:
            self._key(piece)
        elif piece.role is Role.NAME:
            self._items.append(Box(visible(piece.text), piece.kind, piece.depth, bold=True))
        elif piece.role is Role.OPTIONAL:
            self._items.append(Bypass(Row(track(piece.ways[0])), piece.depth))
        elif piece.role is Role.CHOICE:
            self._items.append(_fork(piece))
        elif piece.kind is Kind.OPEN and piece.role is not Role.CUT:
            self._items.append(Box(visible(piece.text), piece.kind, piece.depth, round=True))
        elif self._key_comes:
            self._key_comes = False
            self._items.append(Box(visible(piece.text), piece.kind, piece.depth, bold=True))
        else:
            self._text(piece.text, piece)

    def _key(self, piece: Piece) -> None:
        found = _JSON_KEY.fullmatch(piece.text)
        if found is None:
            self._key_comes = True
            self._text(piece.text, piece)
            return
        before, key, after = found.groups()
        self._text(before, piece)
        self._items.append(Box(visible(key), piece.kind, piece.depth, bold=True))
        self._text(after, piece)

    def _text(self, raw: str, piece: Piece) -> None:
        last, depth = self._items[-1] if self._items else None, max(1, piece.depth)
        if not isinstance(last, Edge) or last.depth != depth:
            last = Edge(depth)
            self._items.append(last)
        last.parts.append((visible(raw), piece.kind))


def _trimmed(item: Item) -> Item:
    """Without spaces at the ends of an edge, where the line shows none."""
    if not isinstance(item, Edge):
        return item
    parts = [(shown, kind) for shown, kind in item.parts if shown]
    if parts:
        parts[0] = (parts[0][0].lstrip(" "), parts[0][1])
        parts[-1] = (parts[-1][0].rstrip(" "), parts[-1][1])
    return Edge(item.depth, [(shown, kind) for shown, kind in parts if shown])


def _fork(piece: Piece) -> Fork:
    shown = piece.ways if len(piece.ways) <= MAX_WAYS else piece.ways[: MAX_WAYS - 1]
    ways = [_way(way) for way in shown]
    if left := len(piece.ways) - len(shown):
        cut = piece.ways[-1][0]  # which may itself stand for more
        more = left if cut.role is not Role.CUT else left - 1 + int(cut.text.lstrip("+"))
        ways.append(Row([Edge(0, [(f"{more} more", Kind.BRANCH)])]))
    return Fork(ways, piece.depth)


def _way(pieces: Sequence[Piece]) -> Row:
    if not pieces:
        return Row([])
    first, *others = pieces
    if first.role is Role.TEXT and first.kind is Kind.BRANCH and len(first.text.strip()) > 1:
        items: list[Item] = [Box(visible(first.text.strip()), first.kind), *track(others)]
    else:
        items = track(pieces)
    cut = Edge(0, [("…", Kind.OPEN)])
    row = Row(items)
    while row.width > MAX_WAY_WIDTH and items:
        items = items[:-1]
        row = Row([*items, cut])
    return row
