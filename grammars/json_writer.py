"""Ways on from a spot in a JSON text: what the schema and the layout allow next, with chances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sglang_toolspec.grammars.guesses import Guesser
from sglang_toolspec.grammars.habits import Habits
from sglang_toolspec.grammars.json_reader import scalar, unquoted
from sglang_toolspec.grammars.json_spot import Frame, Place, Spot, closed, opened
from sglang_toolspec.grammars.layout import Layout, Slot
from sglang_toolspec.grammars.schema import Arm, declared_in, written

CERTAIN = 0.97
ENDS_HERE = 0.3
"""Chance that an open string or number ends where it stands."""
ENDS_EMPTY = 0.03
ANOTHER_ITEM = 0.4
EMPTY_ARRAY = 0.1
UNDECLARED = 0.01
"""Chance of a key that is not declared, where some are."""


class Way(NamedTuple):
    """Text that may come next, and the spot after it; ``None`` where the value is open."""

    text: str
    chance: float
    spot: Spot | None
    source: str = ""
    """Who guessed it, where it is part of a value."""


class JsonWriter:
    """Stateless but for what it looks up in ``layout`` and ``habits``.

    ``stray`` are keys that models put where no schema declares them: those of other tools.
    """

    __slots__ = ("_guesser", "_habits", "_layout", "_stray")

    def __init__(self, layout: Layout, habits: Habits, guesser: Guesser, stray: tuple[str, ...] = ()):
        self._layout = layout
        self._habits = habits
        self._guesser = guesser
        self._stray = stray

    def ways(self, spot: Spot, least: float = 0.0) -> list[Way]:
        """Alternatives of at least that chance, unordered; empty where nothing is known."""
        at_place = _AT.get(spot.place)
        return at_place(self, spot, least) if at_place else []

    # Values.

    def _values(self, spot: Spot, least: float) -> list[Way]:
        lead = self._lead(spot)
        ways = self._finite(spot, lead, least)
        kinds = _kinds(spot.arms)
        is_finite = any(arm.values is not None for arm in spot.arms)
        share = (0.3 if is_finite else 1.0) / max(1, len(kinds))
        for kind in kinds if share >= least else ():
            ways += self._opening(spot, lead, kind, share)
        frame = spot.frame
        if frame is not None and frame.array and frame.at == 0 and not spot.gap and least <= EMPTY_ARRAY:
            ways.append(Way("]", EMPTY_ARRAY, closed(frame.above)))
        return ways

    def _finite(self, spot: Spot, lead: str, least: float) -> list[Way]:
        choices = _choices(spot.arms)
        if not choices:
            return []
        frame = spot.frame
        depth = _depth(frame)
        ways = [
            Way(lead + self._in_layout(value, text, depth), chance, _after_value(frame, value))
            for value, text, chance in self._likely(frame, choices, least)
        ]
        shared = "" if ways else _shared([text for _, text in choices])
        if shared.startswith('"'):
            start = Spot(Place.IN_STRING, frame, spot.arms, shared[1:])
            return [Way(lead + shared, CERTAIN, start)]
        return ways

    def _in_layout(self, value: Any, text: str, depth: int) -> str:
        return self._layout.written(value, depth) if isinstance(value, dict | list) else text

    def _likely(
        self, frame: Frame | None, choices: list[tuple[Any, str]], least: float
    ) -> list[tuple[Any, str, float]]:
        """``choices`` with chances that add up to certain, the unlikely left out."""
        values = [value for value, _ in choices]
        weights = self._habits.weights(frame, values) if frame is not None else [1.0] * len(values)
        unit = CERTAIN / (sum(weights) or 1.0)
        pairs = zip(choices, weights, strict=True)
        return [(v, text, w * unit) for (v, text), w in pairs if w * unit >= least]

    def _opening(self, spot: Spot, lead: str, kind: str, share: float) -> Iterator[Way]:
        if kind in ("object", "array"):
            array = kind == "array"
            frame = opened(spot.frame, spot.arms, array)
            place = Place.VALUE if array else Place.KEY
            arms = frame.member_arms if array else ()
            yield Way(lead + ("[" if array else "{"), share * CERTAIN, Spot(place, frame, arms))
        elif kind == "string":
            yield Way(lead + '"', share * CERTAIN, Spot(Place.IN_STRING, spot.frame, spot.arms))
        elif kind == "boolean":
            for value in (True, False):
                yield from self._constant(spot, lead, value, share * 0.5)
        elif kind == "null":
            yield from self._constant(spot, lead, None, share * 0.5)
        else:
            yield Way(lead, share, None)
            start = Spot(Place.IN_SCALAR, spot.frame, spot.arms)
            for guess in self._guesser.guess(start, "number").guesses:
                after = start._replace(raw=guess.text)
                yield Way(lead + guess.text, share * guess.chance, after, guess.source)

    def _constant(self, spot: Spot, lead: str, value: bool | None, chance: float) -> Iterator[Way]:
        for word, share in self._layout.words(value, _depth(spot.frame)):
            yield Way(lead + word, chance * share, _after_value(spot.frame, value))

    def _in_string(self, spot: Spot, least: float) -> list[Way]:
        choices = _choices(spot.arms)
        if not choices:
            return self._open_string(spot, least)
        frame, so_far = spot.frame, len(spot.raw) + 1
        choices = [c for c in choices if isinstance(c[0], str) and c[1].startswith(spot.raw, 1)]
        ways = [
            Way(text[so_far:], chance, _after_value(frame, value))
            for value, text, chance in self._likely(frame, choices, least)
        ]
        if not ways and (shared := _shared([text[so_far:] for _, text in choices])):
            ways = [Way(shared, CERTAIN, spot._replace(raw=spot.raw + shared))]
        is_open = any(arm.values is None and "string" in arm.kinds for arm in spot.arms)
        return ways + self._open_string(spot, least) if is_open or not choices else ways

    def _open_string(self, spot: Spot, least: float) -> list[Way]:
        if _mid_escape(spot.raw):
            return []
        guesses, ends_here = self._guesser.guess(spot, "string")
        if ends_here is None:
            ends_here = ENDS_HERE if spot.raw else ENDS_EMPTY
        ways = []
        if ends_here >= least:
            ways.append(Way('"', ends_here, _after_value(spot.frame, unquoted(spot.raw))))
        for text, chance, ends, source in guesses:
            if chance < least:
                continue
            raw = spot.raw + text
            if ends:
                ways.append(Way(text + '"', chance, _after_value(spot.frame, unquoted(raw)), source))
            else:
                ways.append(Way(text, chance, spot._replace(raw=raw), source))
        return ways

    def _in_scalar(self, spot: Spot, least: float) -> list[Way]:
        kinds = {kind for arm in spot.arms if arm.values is None for kind in arm.kinds}
        choices = _choices(spot.arms)
        constants = [True, False] * ("boolean" in kinds) + [None] * ("null" in kinds)
        choices += [(v, word) for v in constants for word, _ in self._layout.words(v, _depth(spot.frame))]
        fitting = [(v, text[len(spot.raw) :]) for v, text in choices if text.startswith(spot.raw)]
        unfinished = [(v, rest) for v, rest in fitting if rest]
        is_open = bool(kinds & {"integer", "number"}) or not fitting
        ways = [Way(rest, CERTAIN / len(unfinished), _after_value(spot.frame, v)) for v, rest in unfinished]
        if spot.frame is not None and (is_open or len(unfinished) < len(fitting)):
            guesses, ends_here = self._guesser.guess(spot, "number")
            ways += [Way(g.text, g.chance, spot._replace(raw=spot.raw + g.text), g.source) for g in guesses]
            ends = (ends_here or ENDS_HERE) if is_open or unfinished else 1.0
            after = self._after(_after_value(spot.frame, scalar(spot.raw)), least / ends)
            ways += [way._replace(chance=way.chance * ends) for way in after]
        return ways

    # Keys, and what stands between values.

    def _key_start(self, spot: Spot, least: float) -> list[Way]:
        return self._keys(spot, "", least)

    def _after(self, spot: Spot, least: float) -> list[Way]:
        frame = spot.frame
        assert frame is not None
        if spot.place is Place.DONE:
            return [Way("", 1.0, spot)]
        closing = self._closing(frame, spot.gap)
        if not frame.array:
            keys = self._keys(spot, ",", least)
            return [k for k in keys if k.spot is None or not spot.gap or k.text == closing.text]
        more = _chance_of_more(frame)
        ways = [closing._replace(chance=1 - more)]
        if more and not spot.gap:
            following = frame._replace(at=frame.at + 1)
            gap = self._layout.gap(Slot.ITEM, frame.depth, True)
            after = Spot(Place.VALUE, following, following.member_arms, "", gap)
            ways.append(Way("," + gap, more, after))
        return ways

    def _keys(self, spot: Spot, lead: str, least: float) -> list[Way]:
        frame = spot.frame
        assert frame is not None
        ways = []
        start = lead + (self._lead(spot) if not lead else self._layout.gap(Slot.ITEM, frame.depth, False))
        left, offered = 1.0, 0
        after_comma = not lead and bool(frame.seen)
        for key, chance in self._habits.next_keys(frame, least):
            if key is None and after_comma:  # one more key is certain
                continue
            if key is None or chance >= least:
                left -= chance
            if chance < least:
                continue
            offered += key is not None
            if key is not None:
                ways.append(self._key(frame, start + written(key), key, chance))
            elif lead:
                ways.append(self._closing(frame, spot.gap)._replace(chance=chance))
            elif not frame.seen and not spot.gap:
                ways.append(Way("}", chance, closed(frame.above)))
        left = max(left, UNDECLARED)
        if left >= least and (frame.is_map or offered < _keys_left(frame)):
            ways.append(Way(start + '"', left, Spot(Place.IN_KEY, frame)))
        return ways

    def _key(self, frame: Frame, text: str, key: str, chance: float) -> Way:
        frame = frame.with_key(key)
        gap = self._layout.gap(Slot.COLON, frame.depth, False)
        return Way(f"{text}:{gap}", chance, Spot(Place.VALUE, frame, frame.member_arms, "", gap))

    def _rest_of_key(self, spot: Spot, least: float) -> list[Way]:
        frame = spot.frame
        assert frame is not None
        fitting = self._keys_like(spot.raw, frame)
        if not fitting and _mid_escape(spot.raw):
            return []
        if not fitting:
            return [self._key(frame, '"', unquoted(spot.raw), ENDS_HERE if spot.raw else ENDS_EMPTY)]
        unit, so_far = CERTAIN / sum(chance for _, chance in fitting), 1 + len(spot.raw)
        likely = [(key, chance * unit) for key, chance in fitting if chance * unit >= least]
        ways = [self._key(frame, written(key)[so_far:], key, chance) for key, chance in likely]
        if not ways and (shared := _shared([written(key)[so_far:] for key, _ in fitting])):
            return [Way(shared, CERTAIN, spot._replace(raw=spot.raw + shared))]
        return ways

    def _keys_like(self, raw: str, frame: Frame) -> list[tuple[str, float]]:
        """Keys that begin with ``raw``, with chances, unnormalised: declared ones, else strays."""
        done, declared = set(frame.seen), declared_in(frame.arms).places
        likes = [key for key in declared if written(key).startswith(raw, 1) and key not in done]
        if not likes:
            return [(key, 1.0) for key in self._stray if written(key).startswith(raw, 1)]
        if len(likes) == 1:
            return [(likes[0], 1.0)]
        chances = dict(self._habits.next_keys(frame))
        return [(key, chances[key]) for key in likes]

    def _colon(self, spot: Spot, least: float) -> list[Way]:
        frame = spot.frame
        assert frame is not None
        gap = self._layout.gap(Slot.COLON, frame.depth, False)
        return [Way(":" + gap, CERTAIN, Spot(Place.VALUE, frame, frame.member_arms, "", gap))]

    def _closing(self, frame: Frame, written_gap: str) -> Way:
        gap = self._layout.gap(Slot.CLOSE, frame.depth, frame.array)
        return Way(_rest(gap, written_gap) + ("]" if frame.array else "}"), CERTAIN, closed(frame.above))

    def _lead(self, spot: Spot) -> str:
        """The white space still missing before a value or key."""
        frame = spot.frame
        if frame is None or not frame.depth:
            return ""
        slot = frame.slot if frame.array or spot.place is Place.KEY else Slot.COLON
        return _rest(self._layout.gap(slot, frame.depth, frame.array), spot.gap)


_ORDER = tuple(
    (name, {name, "number"} if name == "integer" else {name})
    for name in ("object", "array", "string", "integer", "boolean", "null")
)
_AT = {
    Place.VALUE: JsonWriter._values,
    Place.KEY: JsonWriter._key_start,
    Place.IN_KEY: JsonWriter._rest_of_key,
    Place.COLON: JsonWriter._colon,
    Place.IN_STRING: JsonWriter._in_string,
    Place.IN_SCALAR: JsonWriter._in_scalar,
    Place.AFTER: JsonWriter._after,
}


def _depth(frame: Frame | None) -> int:
    return 0 if frame is None else frame.depth


def _rest(gap: str, so_far: str) -> str:
    return gap[len(so_far) :] if gap.startswith(so_far) else ""


def _mid_escape(raw: str) -> bool:
    """Whether a quote after ``raw`` would be part of the text."""
    return raw.endswith("\\") and (len(raw) - len(raw.rstrip("\\"))) % 2 == 1


def _after_value(frame: Frame | None, value: Any) -> Spot:
    if frame is not None and not isinstance(value, list | dict):
        frame = frame.with_value(value)
    return closed(frame)


def shared_start(texts: Sequence[str]) -> str:
    """The longest common prefix."""
    first, last = min(texts, default=""), max(texts, default="")
    return first[: next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


def _shared(texts: Sequence[str]) -> str:
    """What many texts begin with, none of which is likely; nothing where that is one of them."""
    shared = shared_start(texts)
    return "" if shared in texts else shared


def _choices(arms: tuple[Arm, ...]) -> list[tuple[Any, str]]:
    """The finite values of ``arms`` with their JSON."""
    return [pair for a in arms if a.values is not None for pair in zip(a.values, a.texts, strict=True)]


def _kinds(arms: tuple[Arm, ...]) -> list[str]:
    """Kinds of open values that may stand here, each once; ``null`` last."""
    found = {kind for arm in arms if arm.values is None for kind in arm.kinds}
    return [name for name, kinds in _ORDER if not found.isdisjoint(kinds)]


def _keys_left(frame: Frame) -> int:
    """How many declared keys are not written."""
    declared = declared_in(frame.arms).places
    return len(declared) - sum(key in declared for key in set(frame.seen))


def _chance_of_more(frame: Frame) -> float:
    declared = max((len(arm.prefix) for arm in frame.arms), default=0)
    if declared:
        return CERTAIN if frame.at + 1 < declared else 0.05
    return ANOTHER_ITEM
