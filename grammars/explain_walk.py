"""A walk along a call that is not written yet, asking the drafter's writer for the ways on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sglang_toolspec.grammars.automaton import SURE
from sglang_toolspec.grammars.block import Context, Point
from sglang_toolspec.grammars.block_writer import BlockWriter, Step
from sglang_toolspec.grammars.json_spot import Frame, Place, closed
from sglang_toolspec.grammars.piece import Kind, Piece, Pieces, Role
from sglang_toolspec.grammars.schema import KINDS, Arm
from sglang_toolspec.grammars.script import EndBlock, Fork, Json, Key, Value

MAX_PIECES = 600
"""Places shown of one tool; beyond that its objects are closed with a ``CUT``."""
MAX_LEVELS = 12
MAX_WAYS = 12
_LIKELY = 0.3
_FILLER = "\0"
"""Stands for a value that the model has written; begins no choice of any schema."""


class Walk:
    """Throw-away: one walk along a block with one call. Bounded by ``MAX_PIECES``."""

    def __init__(self, context: Context):
        self._writer = BlockWriter(context)
        self._left = MAX_PIECES

    def steps(self, point: Point, least: float = 0.0) -> list[Step]:
        found = self._writer.steps(point, least)
        if isinstance(point.step, Value) and point.spot is not None and point.spot.place is not Place.DONE:
            end, ended = point.step.end, point._replace(spot=closed(point.frame))  # shown apart
            return [
                step._replace(text=step.text.removesuffix(end), point=ended)
                if step.point is not None and step.point.spot is None
                else step
                for step in found
            ]
        return found

    def advance(self, point: Point, out: list[Piece]) -> Point | None:
        """Write one part of the call; returns the point after it, ``None`` where there is none."""
        self._left -= 1
        if self._left < -MAX_PIECES:
            return None
        if point.spot is not None:
            return self._in_json(point, out)
        if isinstance(point.step, Fork):
            return self._fork(point, out)
        if isinstance(point.step, Key):
            return self._markup_key(point, out)
        if isinstance(point.step, Value):
            return self._markup_value(point, out)
        return self._likeliest(point, out)

    def _likeliest(self, point: Point, out: list[Piece]) -> Point | None:
        step = max(self.steps(point), key=lambda step: step.chance, default=None)
        return _take(step, out, depth=_depth(point)) if step else None

    def _in_json(self, point: Point, out: list[Piece]) -> Point | None:
        assert point.spot is not None
        place, frame = point.spot.place, point.spot.frame
        if place is Place.VALUE:
            return self._value(point, out)
        if frame is None or place not in (Place.KEY, Place.AFTER):
            return self._likeliest(point, out)
        return self._after_item(point, out) if frame.array else self._member(point, frame, out)

    # Objects and arrays.

    def _member(self, point: Point, frame: Frame, out: list[Piece]) -> Point | None:
        key = _next_key(frame) if self._left > 0 else None
        step = self._step_to_key(point, (*frame.seen, key)) if key is not None else None
        if step is None or step.point is None:
            return self._end_object(point, frame, out)
        piece = Piece(kind_of(step), step.text, Role.KEY if _depth(point) else Role.TEXT, _depth(point))
        if key in _required(frame):
            out.append(piece)
            return step.point
        member = [piece]
        after = self._whole_value(step.point, member)
        out.append(Piece(Kind.BRANCH, "", Role.OPTIONAL, piece.depth, (tuple(member),)))
        return after

    def _step_to_key(self, point: Point, seen: tuple[str | None, ...]) -> Step | None:
        for least in (_LIKELY, 0.0):  # all keys cost time, and the next one is likely
            for step in self.steps(point, least):
                frame = step.point.spot.frame if step.point and step.point.spot else None
                if frame is not None and frame.seen == seen and _level(step.point) == _level(point):
                    return step
        return None

    def _end_object(self, point: Point, frame: Frame, out: list[Piece]) -> Point | None:
        depth = _depth(point)
        if _next_key(frame) is not None:
            out.append(Piece(Kind.OPEN, "…", Role.CUT, depth))
        elif not frame.seen and frame.is_map:
            out.extend(self._free_members(point, frame))
        role = Role.CLOSE if frame.seen and depth else Role.TEXT
        ends = [s for s in self.steps(point) if s.point and _level(s.point) < _level(point)]
        return _take(ends[0], out, role, depth) if ends else None

    def _free_members(self, point: Point, frame: Frame) -> Iterator[Piece]:
        """Members of an object that declares none."""
        depth = _depth(point)
        if not any(arm.extra or arm.patterns for arm in frame.arms):
            if depth > 1:  # tools that declare nothing are called with {}
                yield Piece(Kind.BRANCH, "", Role.OPTIONAL, depth, ((Piece(Kind.OPEN, "members"),),))
            return
        for step in self.steps(point):
            if self._left > 0 and step.point and step.point.spot and step.point.spot.place is Place.IN_KEY:
                member = [Piece(Kind.BRANCH, step.text, Role.TEXT, depth), Piece(Kind.OPEN, "key")]
                after = self._likeliest(_filled(step.point), member)
                if after is not None:
                    self._whole_value(after, member)
                    member.append(Piece(Kind.BRANCH, ", …", Role.MORE, depth))
                    yield Piece(Kind.BRANCH, "", Role.OPTIONAL, depth, (tuple(member),))

    def _after_item(self, point: Point, out: list[Piece]) -> Point | None:
        ends = [s for s in self.steps(point) if s.point and _level(s.point) < _level(point)]
        more = [s for s in self.steps(point) if s.point and _level(s.point) == _level(point)]
        if more and more[0].chance >= SURE and self._left > 0:
            return _take(more[0], out, depth=_depth(point))
        if more:
            out.append(Piece(Kind.BRANCH, ", …", Role.MORE, _depth(point)))
        return _take(ends[0], out, depth=_depth(point)) if ends else None

    # Values.

    def _whole_value(self, point: Point, out: list[Piece]) -> Point | None:
        """Write the value that begins at ``point``, its inner values included."""
        level, at = _level(point), point
        while _level(at) > level or (at is point and at.spot is not None):
            after = self.advance(at, out)
            if after is None:
                return None
            at = after
        return at

    def _value(self, point: Point, out: list[Piece]) -> Point | None:
        spot = point.spot
        assert spot is not None
        if spot.frame is not None and self._is_cut(point, spot.frame):
            out.append(Piece(Kind.OPEN, "…", Role.CUT, _depth(point)))
            return _written(point)
        if spot.frame is not None and any(map(_is_anything, spot.arms)):
            out.append(Piece(Kind.OPEN, "any", depth=_depth(point)))
            return _written(point)
        steps = [s for s in self.steps(point) if s.point is None or _level(s.point) >= _level(point)]
        if len(steps) == 1 and steps[0].point is not None and _level(steps[0].point) > _level(point):
            return _take(steps[0], out, depth=_depth(point))  # its inside comes next
        if groups := self._discriminated(point, steps):
            return self._by_group(point, groups, out)
        return self._choice(point, steps, out)

    def _is_cut(self, point: Point, frame: Frame) -> bool:
        if self._left <= 0 or _level(point) > MAX_LEVELS:
            return True
        own = _signature(point.spot.arms) if point.spot else None
        above: Frame | None = frame
        while own and above is not None and above.depth > _base(point):
            if _signature(above.arms) == own:
                return True
            above = above.above
        return False

    def _choice(self, point: Point, steps: list[Step], out: list[Piece]) -> Point | None:
        ways = []
        after: Point | None = None
        for step in steps[:MAX_WAYS]:
            way: list[Piece] = []
            after = self._way(point, step, way) or after
            ways.append(tuple(way))
        if len(ways) == 1:
            out.extend(ways[0])
        elif ways:
            out.append(_choice(ways, len(steps) - len(ways), _depth(point)))
        return after

    def _way(self, point: Point, step: Step, out: list[Piece]) -> Point | None:
        """One of the ways to write the value at ``point``."""
        assert point.spot is not None
        depth = _depth(point)
        if step.point is None:
            _take(step, out, depth=depth)
            out.append(Piece(Kind.OPEN, _label(point.spot.arms, ("integer", "number")), depth=depth))
            return _written(point)
        _take(step, out, depth=depth)
        if step.point.spot is not None and step.point.spot.place is Place.IN_STRING:
            out.append(Piece(Kind.OPEN, _label(point.spot.arms, ("string",)), depth=depth))
            end = min(self.steps(_filled(step.point)), key=lambda step: len(step.text))
            return _take(end, out, depth=depth)
        at: Point | None = step.point
        while at is not None and _level(at) > _level(point):
            at = self.advance(at, out)
        return at

    def _discriminated(self, point: Point, steps: list[Step]) -> list[list[Step]]:
        """``steps`` by the alternatives that their values leave; empty where all leave the same."""
        frame = point.spot.frame if point.spot else None
        if frame is None or frame.array or frame.key not in _required(frame) or len(frame.arms) < 2:
            return []
        groups: dict[tuple[int, ...], list[Step]] = {}
        for step in steps:
            after = step.point.spot if step.point else None
            if after is None or after.place is not Place.AFTER or after.frame is None:
                return []
            groups.setdefault(tuple(map(id, after.frame.arms)), []).append(step)
        return list(groups.values())[:MAX_WAYS] if len(groups) > 1 else []

    def _by_group(self, point: Point, groups: list[list[Step]], out: list[Piece]) -> Point | None:
        """A value on which the rest of its object depends: each way goes on to the last member."""
        ways = []
        after: Point | None = None
        for group in groups:
            way: list[Piece] = []
            at = self._choice(point, group, way)
            while at is not None and not self._ends_next(at, _level(point)):
                at = self.advance(at, way)
            after = at or after
            ways.append(tuple(way))
        out.append(_choice(ways, 0, _depth(point)))
        return after

    def _ends_next(self, point: Point, level: int) -> bool:
        """Whether the object at ``level`` has all its members."""
        if point.spot is None or point.spot.frame is None or _level(point) != level:
            return _level(point) < level
        ended = self._left <= 0 or _next_key(point.spot.frame) is None
        return ended and point.spot.place is Place.AFTER

    # Parameters in a markup.

    def _fork(self, point: Point, out: list[Piece]) -> Point | None:
        """One more parameter while there are some, else what ends the parameters or the block."""
        frame, more, done = point.frame, list[Step](), list[Step]()
        for step in self.steps(point):
            if step.point is not None and isinstance(step.point.step, Key):
                more.append(step)
            elif frame is not None or (step.point is not None and isinstance(step.point.step, EndBlock)):
                done.append(step)
        if frame is not None and more and self._left > 0 and (key := _next_key(frame)) is not None:
            return self._parameter(more[0], key in _required(frame), out)
        role = Role.CLOSE if frame is not None and frame.seen else Role.TEXT
        return _take(done[0], out, role, 1 if frame is not None else 0) if done else None

    def _parameter(self, step: Step, required: bool, out: list[Piece]) -> Point | None:
        member = [Piece(kind_of(step), step.text, Role.KEY, 1)]
        at = step.point
        while at is not None and not isinstance(at.step, Fork):
            at = self.advance(at, member)
        if required:
            out.extend(member)
        else:
            out.append(Piece(Kind.BRANCH, "", Role.OPTIONAL, 1, (tuple(member),)))
        return at

    def _markup_key(self, point: Point, out: list[Piece]) -> Point | None:
        key = _next_key(point.frame) if point.frame else None
        for step in self.steps(point):
            if step.point and step.point.frame and step.point.frame.seen[-1:] == (key,):
                return _take(step, out, depth=1)
        return None

    def _markup_value(self, point: Point, out: list[Piece]) -> Point | None:
        assert isinstance(point.step, Value)
        end, steps = point.step.end, self.steps(point)
        finite = [s for s in steps if s.point is not None]
        if not finite:
            out.append(Piece(Kind.OPEN, _label(point.frame.member_arms if point.frame else ()), depth=1))
            # That the value ends is seen at the first character of what ends it.
            out.append(Piece(Kind.BRANCH, end[:1], depth=1))
            return self._likeliest(point._replace(raw=_FILLER + end[:1]), out)
        ways = [(Piece(kind_of(s), s.text.removesuffix(end), depth=1),) for s in finite[:MAX_WAYS]]
        out.extend(ways[0] if len(ways) == 1 else [_choice(ways, len(finite) - len(ways), 1)])
        out.append(Piece(Kind.FORCED, end, depth=1))
        return finite[0].point


def _choice(ways: Sequence[Pieces], left_out: int, depth: int) -> Piece:
    cut: list[Pieces] = [(Piece(Kind.BRANCH, f"+{left_out}", Role.CUT),)] if left_out else []
    return Piece(Kind.BRANCH, "", Role.CHOICE, depth, (*ways, *cut))


def _take(step: Step, out: list[Piece], role: Role = Role.TEXT, depth: int = 0) -> Point | None:
    if step.text:
        out.append(Piece(kind_of(step), step.text, role, depth))
    return step.point


def kind_of(step: Step) -> Kind:
    return Kind.FORCED if step.chance >= SURE else Kind.BRANCH


def _written(point: Point) -> Point:
    """After a value at ``point`` that only the model knows."""
    assert point.spot is not None
    return point._replace(spot=closed(point.spot.frame))


def _filled(point: Point) -> Point:
    """``point`` in a key or string, after the model has written some of it."""
    assert point.spot is not None
    return point._replace(spot=point.spot._replace(raw=_FILLER))


def _level(point: Point | None) -> int:
    return point.spot.frame.depth if point and point.spot and point.spot.frame else 0


def _base(point: Point) -> int:
    return 1 if isinstance(point.step, Json) and point.step.whole_call else 0


def _depth(point: Point) -> int:
    """Containers around ``point``, from the arguments object inwards."""
    return (1 if point.frame is not None else 0) + max(0, _level(point) - _base(point))


def _next_key(frame: Frame) -> str | None:
    return next((key for arm in frame.arms for key in arm.properties if key not in frame.seen), None)


def _required(frame: Frame) -> set[str]:
    return {key for arm in frame.arms for key in arm.required}


def _signature(arms: Iterable[Arm]) -> frozenset[tuple[str, frozenset[str]]]:
    """Names and kinds of the members: equal where a schema has come back to itself."""
    return frozenset(
        (key, frozenset(kind for inner in schema.arms for kind in inner.kinds))
        for arm in arms
        for key, schema in arm.properties.items()
    )


def _is_anything(arm: Arm) -> bool:
    return arm.values is None and arm.kinds == KINDS and not arm.properties


def _label(arms: Iterable[Arm], among: Iterable[str] = ()) -> str:
    """What may stand at an open place: a format, or kinds."""
    found = [arm for arm in arms if arm.values is None and (not among or arm.kinds & set(among))]
    formats = {arm.text.get("format", "") for arm in found if "string" in arm.kinds}
    if len(formats) == 1 and all(formats) and "integer" not in among:
        return formats.pop()
    kinds = sorted({kind for arm in found for kind in arm.kinds} & set(among or KINDS))
    return (
        "any"
        if set(kinds) == KINDS or not kinds
        else "number"
        if among and len(kinds) > 1
        else "/".join(kinds)
    )
