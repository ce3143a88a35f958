"""What the drafter knows of a call before it is written: forced text, branches, open places.

It asks the drafter's own ``BlockWriter`` for the ways on from every point, so that what is
shown is what is drafted. Only where a value is open does it go on as if one had been written.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sglang_toolspec.grammars.block import Context, Point
from sglang_toolspec.grammars.block_writer import Step
from sglang_toolspec.grammars.calls import CallShapes
from sglang_toolspec.grammars.explain_walk import Walk, kind_of
from sglang_toolspec.grammars.formats import NAME_KEY, Format
from sglang_toolspec.grammars.guesses import NoGuesses
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.json_spot import Place
from sglang_toolspec.grammars.layout import Layout
from sglang_toolspec.grammars.piece import Counts, Piece, Pieces, Role, typical
from sglang_toolspec.grammars.script import EndBlock, Json, Name
from sglang_toolspec.grammars.states import tool_of
from sglang_toolspec.grammars.tools import Tool, ToolSet


@dataclass(frozen=True)
class Explained:
    """One tool's call from its first character to the end of its block."""

    tool: Tool
    pieces: Pieces
    complete: bool
    """Whether the end was reached."""
    typical: Counts = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "typical", typical(self.pieces))


def explain(tools: ToolSet, form: Format, layout: Layout | None = None) -> tuple[Explained, ...]:
    """The calls of ``tools`` as a first call in ``form``, before anything was seen of a model."""
    layout = form.fresh_layout() if layout is None else layout
    context = Context(form, CallShapes(tools), layout, Habits(), NoGuesses())
    start, names = _to_names(context)
    return tuple(_explained(tool, context, start, names.get(tool.name)) for tool in tools.tools)


def _to_names(context: Context) -> tuple[Pieces, dict[str, Step]]:
    """The text before the tool's name, and the way on for each name."""
    walk, out = Walk(context), list[Piece]()
    point: Point | None = context.start()
    while point is not None and not isinstance(point.step, EndBlock):
        if _at_name(point):
            return tuple(out), {tool_of(s.point): s for s in walk.steps(point) if s.point is not None}
        point = walk.advance(point, out)
    return tuple(out), {}


def _explained(tool: Tool, context: Context, start: Pieces, name: Step | None) -> Explained:
    if name is None or name.point is None:
        return Explained(tool, start, False)
    out = [*start, Piece(kind_of(name), name.text, Role.NAME)]
    point: Point | None = name.point
    walk = Walk(context)
    while point is not None and not isinstance(point.step, EndBlock):
        point = walk.advance(point, out)
    return Explained(tool, tuple(out), point is not None)


def _at_name(point: Point) -> bool:
    if isinstance(point.step, Json) and point.spot is not None:
        return point.step.whole_call and point.spot.place is Place.VALUE and point.spot.path == (NAME_KEY,)
    return isinstance(point.step, Name)
