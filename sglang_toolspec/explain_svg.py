"""Draws the automaton of a set of tools as one self-contained SVG."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import NamedTuple

from sglang_toolspec.compile_report import Report
from sglang_toolspec.explain_view import percent, printable
from sglang_toolspec.grammars.explain import Explained
from sglang_toolspec.grammars.piece import Counts, Kind, Role
from sglang_toolspec.svg_track import (
    FILLS,
    GAP,
    INK,
    LINE,
    MONO,
    MUTED,
    SANS,
    STROKES,
    TEXT_COLOURS,
    Box,
    Bypass,
    Edge,
    Item,
    Row,
    text,
    track,
    visible,
)

MAX_TOOLS = 20
MAX_ROWS = 12
"""Rows drawn of one tool."""
WIDTH = 1200
_LEFT, _RIGHT = 92.0, WIDTH - 56.0
_TRUNK = 52.0
_FIRST_LINE = 58.0
_STATES = (
    ("q_o", "other text", Kind.FORCED),
    ("q_t", "tool name", Kind.BRANCH),
    ("q_p", "parameter name", Kind.FORCED),
    ("q_v", "parameter value", Kind.OPEN),
)
_STYLE = (
    f"svg{{font-family:{SANS}}}.m{{font-family:{MONO};white-space:pre}}"
    f".t{{fill:none;stroke:{LINE};stroke-width:1.5}}.b{{stroke-dasharray:4 3}}"
)


def drawing(report: Report) -> str:
    """A page: what the marks mean, the four states, and a lane for each tool."""
    shown = report.calls[:MAX_TOOLS]
    parts = [*_head(report)]
    y = 118.0
    if shown:
        parts += _states(shown, y)
        y += 172
        top, lanes = y, []
        y += 18
        for call in shown:
            drawn, used = _lane(call, y)
            lanes.append(y)
            parts.append(drawn)
            y += used
        parts.insert(0, _trunk(top, [lane + _FIRST_LINE for lane in lanes], len(report.calls)))
    if (left := len(report.calls) - len(shown)) > 0:
        parts.append(text(_LEFT, y + 8, f"… and {left} more tools, not drawn", MUTED, 14))
        y += 28
    height = y + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" '
        f'height="{height:g}" role="img"><title>{_title(report)}</title><style>{_STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _title(report: Report) -> str:
    many = len(report.calls)
    return f"Calls of {many} tool{'s' * (many != 1)} in the format {report.form.name}"


def _head(report: Report) -> Iterator[str]:
    yield text(36, 44, _title(report), INK, 22, more=' font-weight="700"')
    if report.calls:
        yield _bar(report.typical, _RIGHT - 260, 28, 260, 14)
    x = 36.0
    meanings = {
        Kind.FORCED: "forced: nothing else may follow",
        Kind.BRANCH: "branch: one of several ways",
        Kind.OPEN: "open: only the model knows",
    }
    for kind, meaning in meanings.items():
        shown = f"{percent(report.typical, kind)} {meaning}"
        yield f'<rect x="{x:g}" y="66" width="14" height="14" rx="3" fill="{STROKES[kind]}"/>'
        yield text(x + 22, 78, shown, TEXT_COLOURS[kind], 14)
        x += 60 + 7.2 * len(shown)
    yield f'<path class="t b" d="M{x:g} 73H{x + 30:g}"/>'
    yield text(x + 38, 78, "way past an optional key", MUTED, 14)


def _bar(counts: Counts, x: float, y: float, width: float, height: float) -> str:
    drawn = []
    for kind in Kind:
        part = counts.share(kind) * width
        drawn.append(
            f'<rect x="{x:g}" y="{y:g}" width="{part:.1f}" height="{height:g}" fill="{STROKES[kind]}"/>'
        )
        x += part
    return "".join(drawn)


# The four states.


def _states(calls: tuple[Explained, ...], y: float) -> Iterator[str]:
    width, between = 142.0, (_RIGHT - 36 - 4 * 142) / 3
    yield f'<rect x="20" y="{y - 14:g}" width="{WIDTH - 40}" height="158" rx="12" fill="#f8fafc"/>'
    line, texts = y + 62, _edge_texts(calls)
    for i, (name, meaning, kind) in enumerate(_STATES):
        x = 36 + i * (width + between)
        if i < 3:
            yield _arrow(x + width, line, x + width + between)
            yield from _edge_label(texts[i], x + width + between / 2, line - 8, int((between - 20) / 6.7))
        fill, stroke = (FILLS[kind], STROKES[kind]) if i else ("#ffffff", LINE)
        yield (
            f'<rect x="{x:g}" y="{line - 24:g}" width="{width:g}" height="48" rx="24" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>'
        )
        yield text(x + width / 2, line - 3, name, INK, 14, more=' text-anchor="middle" font-weight="700"')
        yield text(x + width / 2, line + 14, meaning, MUTED, 12, more=' text-anchor="middle"')
    q_p, q_v = 36 + 2 * (width + between) + width / 2, 36 + 3 * (width + between) + width / 2
    yield _back(q_v - 20, q_p + 20, line, line - 44, "next parameter", texts[3], label_y=line - 50)
    yield _back(q_v + 10, 36 + width / 2, line, line + 56, "end of the call", texts[4], label_y=line + 50)


class _Edges(NamedTuple):
    """Text between the states, as the first call shows it that has a plain value."""

    to_name: str = ""
    to_key: str = ""
    to_value: str = ""
    next_key: str = ""
    end: str = ""


def _edge_texts(calls: tuple[Explained, ...]) -> _Edges:
    found = [_edges_of(call) for call in calls]
    return _Edges(*(next((edges[i] for edges in found if edges[i]), "") for i in range(len(_Edges._fields))))


def _edges_of(call: Explained) -> _Edges:
    at = next((i for i, piece in enumerate(call.pieces) if piece.role is Role.NAME), len(call.pieces))
    before = "".join(piece.text for piece in call.pieces[:at])
    items = track(call.pieces[at:])
    marks = "".join("-" if isinstance(i, Edge) else "k" if _is_key(i) else "v" for i in items)

    def edge(pattern: str, group: str) -> str:
        match = re.search(pattern, marks)
        item = items[match.start() + len(group)] if match else None
        return item.shown if isinstance(item, Edge) else ""

    return _Edges(
        visible(before),
        edge("^k-k", "k"),
        edge("k-v-k", "k"),
        edge("k-v-k", "k-v"),
        edge("v-$", "v"),
    )


def _is_key(item: Item) -> bool:
    return isinstance(item, Box) and item.bold


def _edge_label(shown: str, x: float, y: float, columns: int) -> Iterator[str]:
    lines = textwrap.wrap(shown, max(8, columns), break_long_words=True, drop_whitespace=False)[:3]
    for i, line in enumerate(lines):
        at = y - 14 * (len(lines) - 1 - i)
        yield text(x, at, line, TEXT_COLOURS[Kind.FORCED], 11, more=' class="m" text-anchor="middle"')


def _arrow(x: float, y: float, to: float) -> str:
    return (
        f'<path class="t" d="M{x:g} {y:g}H{to - 8:g}"/><path d="M{to - 1:g} {y:g}l-9 -4.5v9z" fill="{LINE}"/>'
    )


def _back(x: float, to: float, line: float, top: float, meaning: str, shown: str, label_y: float) -> str:
    """A way back to an earlier state, above or below the line."""
    up = top < line
    edge = line - 24 if up else line + 24
    tip = "-4.5 -9h9" if up else "-4.5 9h9"
    return (
        f'<path class="t" d="M{x:g} {edge:g}C{x:g} {top:g} {x:g} {top:g} {x - 24:g} {top:g}H{to + 24:g}'
        f'C{to:g} {top:g} {to:g} {top:g} {to:g} {edge + (-8 if up else 8):g}"/>'
        f'<path d="M{to:g} {edge + (-1 if up else 1):g}l{tip}z" fill="{LINE}"/>'
        f'<text x="{(x + to) / 2:g}" y="{label_y:g}" text-anchor="middle" font-size="12" fill="{MUTED}">'
        f'{meaning}  <tspan class="m" font-size="11" fill="{TEXT_COLOURS[Kind.FORCED]}">'
        f"{escape(shown)}</tspan></text>"
    )


# A lane for each tool.


def _trunk(top: float, lines: list[float], many: int) -> str:
    ways = "".join(f'<path class="t" d="M{_TRUNK:g} {at - 14:g}q0 14 14 14H{_LEFT:g}"/>' for at in lines)
    diamond = f'<path d="M{_TRUNK:g} {top:g}l7 7l-7 7l-7 -7z" fill="{STROKES[Kind.BRANCH]}"/>'
    label = text(_TRUNK + 14, top + 11, f"q_t, one of {many}" if many > 1 else "q_t", MUTED, 12)
    return f'<path class="t" d="M{_TRUNK:g} {top:g}V{lines[-1] - 14:g}"/>{ways}{diamond}{label}'


def _lane(call: Explained, y: float) -> tuple[str, float]:
    """SVG of a tool's lane, and its height. The first line lies ``_FIRST_LINE`` below its top."""
    name = next((i for i, piece in enumerate(call.pieces) if piece.role is Role.NAME), 0)
    rows = _rows(track(call.pieces[name:]))
    drawn, line, end = [_lane_head(call, y)], y + _FIRST_LINE, _LEFT
    for i, row in enumerate(rows[:MAX_ROWS]):
        if i:
            below = line + rows[i - 1].down
            drawn.append(_turn(end, line, below + 7, below + 14 + row.up))
            line = below + 14 + row.up
        end = _LEFT + row.width
        drawn.append(f'<path class="t" d="M{_LEFT - (10 if i else 0):g} {line:g}H{end:g}"/>')
        drawn += _nests(row, line)
        drawn.append(row.draw(_LEFT, line))
    drawn.append(f'<path class="t" d="M{end:g} {line:g}h10"/>')
    if (left := len(rows) - MAX_ROWS) > 0:
        drawn.append(text(end + 14, line + 4, f"… {left} more rows", MUTED, 12))
    else:
        drawn.append(
            f'<circle cx="{end + 16:g}" cy="{line:g}" r="6" fill="#ffffff" stroke="{LINE}"/>'
            f'<circle cx="{end + 16:g}" cy="{line:g}" r="2.5" fill="{LINE}"/>'
        )
    return "".join(drawn), line + rows[:MAX_ROWS][-1].down + 22 - y


def _lane_head(call: Explained, y: float) -> str:
    words = printable(" ".join(call.tool.description.split()))
    shown = textwrap.shorten(words, 120, placeholder=" …")
    share = percent(call.typical, Kind.FORCED)
    return (
        f'<path d="M{_LEFT:g} {y + 20:g}H{_RIGHT + 20:g}" stroke="#e2e8f0"/>'
        + text(_LEFT, y + 12, shown, MUTED, 12)
        + _bar(call.typical, _RIGHT - 120, y + 4, 90, 8)
        + text(_RIGHT + 20, y + 12, share, MUTED, 12, more=' text-anchor="end"')
    )


def _rows(items: list[Item]) -> list[Row]:
    """``items`` cut into rows that fit the width."""
    rows = [Row([])]
    for item in _fitting(items):
        if rows[-1].items and rows[-1].width + GAP + item.width > _RIGHT - _LEFT:
            rows.append(Row([]))
        rows[-1].items.append(item)
    return rows


def _fitting(items: list[Item]) -> Iterator[Item]:
    """``items`` with optional members opened that are wider than a row."""
    for item in items:
        if isinstance(item, Bypass) and item.width > _RIGHT - _LEFT:
            yield Edge(item.depth, [("? optional", Kind.BRANCH)])
            yield from _fitting(item.row.items)
        else:
            yield item


def _turn(x: float, y: float, middle: float, to: float) -> str:
    """The line from the end of a row to the start of the next."""
    down = f"M{x:g} {y:g}h6q8 0 8 8V{middle - 8:g}q0 8 -8 8"
    return f'<path class="t" d="{down}H{_LEFT - 10:g}q-8 0 -8 8V{to - 8:g}q0 8 8 8"/>'


def _nests(row: Row, y: float) -> Iterator[str]:
    """Shades behind what stands in a nested object or array."""
    deepest = max((item.depth for item in row.items), default=0)
    for depth in range(2, deepest + 1):
        x = _LEFT
        for inside, run in groupby(row.items, key=lambda item: item.depth >= depth):
            items = list(run)
            width = sum(item.width + GAP for item in items)
            if inside:
                grow = 3 * (deepest - depth)
                up = max(item.up for item in items) + 2 + grow
                down = max(item.down for item in items) + 2 + grow
                yield (
                    f'<rect x="{x - 5:g}" y="{y - up:g}" width="{width:g}" height="{up + down:g}" rx="8" '
                    f'fill="#0f172a" fill-opacity="0.045"/>'
                )
            x += width
