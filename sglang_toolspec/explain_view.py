"""Shows in a terminal what the drafter knows of each tool's call.

Colours only repeat what the marks say, so the view reads the same through a pipe:
``{a | b}`` a choice, ``‹string›`` an open place, ``?`` a key that may be left out.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from sglang_toolspec.compile_report import Report
from sglang_toolspec.grammars.explain import Explained
from sglang_toolspec.grammars.piece import OPEN_TEXT, Counts, Kind, Piece, Pieces, Role, flat

MAX_LISTED = 40
MAX_SHOWN = 80
"""Characters shown of one key or value."""

STYLES = {Kind.FORCED: "green", Kind.BRANCH: "bold yellow", Kind.OPEN: "italic magenta"}
_BAR = {Kind.FORCED: "█", Kind.BRANCH: "▒", Kind.OPEN: "░"}
_MARK = "dim"
_STEP = 2
_BLOCK_ROLES = (Role.KEY, Role.OPTIONAL, Role.CLOSE)
_ITEM_BREAK = re.compile(r",\n +")
_LINE_BREAK = re.compile(r"\n +")


def printable(text: str) -> str:
    """``text`` without what would move a terminal's cursor or turn its writing around."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def forget_unwritable(console: Console) -> None:
    """Marks that the output's encoding lacks become ``?`` instead of an exception."""
    if isinstance(console.file, io.TextIOWrapper):
        console.file.reconfigure(errors="replace")


def bar(counts: Counts, width: int) -> Text:
    """Shares of forced, branch and open characters as one bar."""
    text, begun = Text(), 0.0
    for kind in Kind:
        ends = begun + counts.share(kind)
        text.append(_BAR[kind] * (round(ends * width) - round(begun * width)), STYLES[kind])
        begun = ends
    return text


def percent(counts: Counts, kind: Kind) -> str:
    return f"{round(100 * counts.share(kind))} %"


def legend(counts: Counts) -> Text:
    """What the colours and marks mean, with their shares."""
    text = Text()
    for kind, name in ((Kind.FORCED, "forced"), (Kind.BRANCH, "{branch}"), (Kind.OPEN, "‹open›")):
        text.append(f"{_BAR[kind]} {name} ", STYLES[kind])
        text.append(f"{percent(counts, kind)}    ")
    return text


def tool_heading(found: Explained) -> Table:
    """Name, description and shares of a tool on one line."""
    row = Table.grid(expand=True, padding=(0, 1))
    row.add_column(no_wrap=True, overflow="ellipsis")
    row.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    row.add_column(no_wrap=True, justify="right")
    share = Text.assemble(bar(found.typical, 12), f" {percent(found.typical, Kind.FORCED):>5}")
    description = " ".join(found.tool.description.split())
    row.add_row(Text(printable(found.tool.name), "bold"), Text(printable(description), _MARK), share)
    return row


def print_report(report: Report) -> None:
    """The whole set first, then each tool's call."""
    console = Console(file=sys.stdout, highlight=False)
    forget_unwritable(console)
    print_summary(console, report)
    print_calls(console, report.calls, len(report.calls) - 1)


def print_summary(console: Console, report: Report) -> None:
    counts, many = report.typical, len(report.calls)
    console.print(Text(f"{many} tool{'s' * (many != 1)}, calls in the format {report.form.name}", "bold"))
    if not many:
        console.print("There is nothing to draft without tools.", style="bold red")
        return
    console.print(bar(counts, min(60, console.width)))
    console.print(legend(counts))
    console.print(
        f"of the characters of one typical call of each tool: required keys, the first of each choice, "
        f"{OPEN_TEXT} characters for a ‹string›",
        style=_MARK,
    )
    compiled = report.compiled
    if compiled.skipped:
        console.print(Text(f"xgrammar draft grammar: none ({printable(compiled.skipped)})", _MARK))
    else:
        size = f", {compiled.bytes / 1024:.0f} KiB" if compiled.bytes is not None else ""
        console.print(f"xgrammar draft grammar: compiled in {compiled.ms:.1f} ms{size}")
    if report.unenforceable:
        console.print(unenforceable_table(report))


def unenforceable_table(report: Report) -> Table:
    table = Table(title="Keywords that a mask cannot enforce", title_justify="left", box=None)
    for column in ("tool", "at", "keyword", "why"):
        table.add_column(column, header_style=_MARK, overflow="fold")
    for found in report.unenforceable[:MAX_LISTED]:
        table.add_row(*(Text(printable(t)) for t in (found.tool, found.pointer, found.keyword, found.why)))
    if (left := len(report.unenforceable) - MAX_LISTED) > 0:
        table.add_row(Text(f"and {left} more", _MARK))
    return table


def print_calls(console: Console, calls: Iterable[Explained], others: int) -> None:
    """Each tool's heading and call. ``others`` is the number of other tools to choose from."""
    for found in calls:
        console.print()
        console.print(tool_heading(found))
        console.print(CallText(found, others))
        if not found.complete:
            console.print("  (the drafter knows no way on from here)", style="bold red")


@dataclass
class _Line:
    indent: int
    text: Text = field(default_factory=Text)
    mark: str = ""
    """``?`` or ``|``, in the indentation."""


class CallText:
    """The text of one call: line by line as written, parameters one a line."""

    def __init__(self, found: Explained, others: int = 0):
        self._lines = [_Line(0)]
        self._others = others
        self._write_all(found.pieces)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield from _wrapped(line, console, options.max_width)

    @property
    def _now(self) -> _Line:
        return self._lines[-1]

    def _write_all(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._write(piece)

    def _write(self, piece: Piece) -> None:
        style = STYLES[piece.kind]
        if piece.role is Role.OPTIONAL:
            self._optional(piece)
        elif piece.role is Role.CHOICE:
            self._choice(piece)
        elif piece.role is Role.KEY:
            self._key(piece)
        elif piece.role is Role.CLOSE:
            self._close(piece)
        elif piece.role is Role.NAME:
            self._name(piece)
        elif piece.kind is Kind.OPEN:
            text = piece.text if piece.role is Role.CUT else f"‹{piece.text}›"
            self._now.text.append(printable(text), style)
        elif piece.depth == 0:
            self._as_written(piece.text, style)
        else:
            self._now.text.append(_one_line(piece.text), style)

    def _as_written(self, text: str, style: str) -> None:
        first, *others = text.split("\n")
        self._now.text.append(printable(first), style)
        for line in others:
            self._lines.append(_Line(len(line) - len(line.lstrip(" "))))
            self._now.text.append(printable(line.lstrip(" ")), style)

    def _name(self, piece: Piece) -> None:
        if piece.kind is Kind.FORCED or not self._others:
            self._now.text.append(printable(piece.text), STYLES[piece.kind])
            return
        name = Piece(piece.kind, piece.text)
        self._inline_choice([(name,), (Piece(piece.kind, f"{self._others} more"),)])

    def _key(self, piece: Piece, mark: str = "") -> None:
        comma, text = re.match(r"(,?)\s*(.*)", piece.text, re.DOTALL).groups()  # type: ignore[union-attr]
        self._now.text.append(comma, STYLES[piece.kind])
        self._break(_Line(_indent(piece.depth), mark=mark))
        self._now.text.append(_one_line(text), STYLES[piece.kind])

    def _close(self, piece: Piece) -> None:
        stripped = piece.text.lstrip()
        spaces = len(piece.text) - len(stripped) - 1 if piece.text[:1] == "\n" else 0
        self._break(_Line(_indent(piece.depth - 1) if piece.depth > 1 else max(0, spaces)))
        self._as_written(stripped, STYLES[piece.kind])

    def _break(self, line: _Line) -> None:
        if not self._now.text:  # a break that is written anyway
            self._lines.pop()
        self._lines.append(line)

    def _optional(self, piece: Piece) -> None:
        first, *others = piece.ways[0]
        if first.role is Role.KEY:
            self._key(first, "?")
            self._write_all(others)
        else:
            self._now.text.append("?", _MARK)
            self._write_all(piece.ways[0])

    def _choice(self, piece: Piece) -> None:
        if not any(p.role in _BLOCK_ROLES for p in flat((piece,))):
            self._inline_choice(piece.ways)
            return
        self._now.text.append("one of", _MARK)
        for way in piece.ways:
            self._lines.append(_Line(_indent(piece.depth), mark="|"))
            self._write_all(way)

    def _inline_choice(self, ways: Iterable[Pieces]) -> None:
        for i, way in enumerate(ways):
            self._now.text.append(" | " if i else "{", _MARK)
            self._write_all(way)
        self._now.text.append("}", _MARK)


def _indent(depth: int) -> int:
    return _STEP + _STEP * depth if depth else 0


def _one_line(text: str) -> str:
    """Line breaks of JSON left out (the view has its own), those of a markup shown; not too long."""
    line = printable(_LINE_BREAK.sub("", _ITEM_BREAK.sub(", ", text)).replace("\n", "⏎"))
    return line if len(line) <= MAX_SHOWN else f"{line[: MAX_SHOWN - 1]}…"


def _wrapped(line: _Line, console: Console, width: int) -> Iterator[Text]:
    """A line cut to the width, its continuation indented further."""
    indent = _STEP + min(line.indent, width // 3)
    lead = f"{line.mark} ".rjust(indent) if line.mark and indent >= 2 else " " * indent
    room = max(10, width - indent - 2 * _STEP)
    for i, part in enumerate(line.text.wrap(console, room) or [line.text]):
        part.rstrip()
        yield Text.assemble((lead if i == 0 else " " * (indent + 2 * _STEP), _MARK), part, end="\n")
