"""What a writer of calls has done before: the formats, layouts, keys and choices of one tenant.

Holds words of the schemas only (tool names, declared keys, enum values), never a free value.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sglang_toolspec.grammars.json_spot import Frame
from sglang_toolspec.grammars.layout import Layout
from sglang_toolspec.grammars.schema import Declared, declared_in

MAX_PLACES = 4096
MAX_KEYS = 64
MAX_COUNTED = 1024
"""Keys, or choices, counted at one place."""
REQUIRED, OPTIONAL = 0.95, 0.35
"""Chances that a declared key is written, before anything was seen."""
NEXT_AS_BEFORE = 0.85
"""Chance that the next key is the one that came next last time."""
EMPTY = 0.9
"""Chance that an object without declared keys has none."""
RARE = 0.001
FADE = 0.5

Path = tuple[str, tuple[str, ...]]
"""A tool and the keys from a place in its call up to the root."""


@dataclass
class _Keys:
    order: tuple[str, ...] = ()
    """Of the last object at this place."""
    times: int = 0
    present: dict[str, int] = field(default_factory=dict)

    def chance(self, key: str, prior: float) -> float:
        return (self.present.get(key, 0) + 2 * prior) / (self.times + 2)


class Habits:
    """Mutable, bounded; one for each model, parser and tenant."""

    def __init__(self) -> None:
        self.formats: dict[str, float] = {}
        """How likely the next block of calls is in a format, unnormalised."""
        self.layouts: dict[str, Layout] = {}
        """The last layout in each format."""
        self._keys: OrderedDict[Path, _Keys] = OrderedDict()
        self._choices: OrderedDict[Path, dict[Any, int]] = OrderedDict()

    def wrote_call(self, format_name: str, layout: Layout) -> None:
        self.formats = {name: weight * FADE for name, weight in self.formats.items()}
        self.formats[format_name] = self.formats.get(format_name, 0.0) + 8.0
        self.layouts[format_name] = layout.copy()

    def wrote_keys(self, frame: Frame) -> None:
        """An object has ended."""
        declared = declared_in(frame.arms).places
        if not declared:
            return
        keys = _entry(self._keys, _path(frame, frame.above), _Keys)
        # Undeclared keys may be a user's words.
        keys.order = tuple(key for key in dict.fromkeys(frame.seen) if key in declared)[:MAX_KEYS]
        keys.times += 1
        for key in keys.order:
            keys.present[key] = keys.present.get(key, 0) + 1
        if len(keys.present) > MAX_COUNTED:  # of many schemas that share a tool's name
            keys.present = {key: keys.present[key] for key in keys.order}

    def wrote_choice(self, frame: Frame, value: Any) -> None:
        """A value with finite choices has ended."""
        if _is_choice(frame, value):
            counts = _entry(self._choices, _path(frame, frame), dict)
            counts[value] = counts.get(value, 0) + 1
            if len(counts) > MAX_COUNTED:
                del counts[next(iter(counts))]

    def weights(self, frame: Frame, values: Sequence[Any]) -> list[float]:
        """How likely each of ``values`` is at ``frame``'s key, unnormalised."""
        counts = self._choices.get(_path(frame, frame)) if self._choices else None
        if not counts:
            return [1.0] * len(values)
        return [1.0 + 4.0 * counts.get(v, 0) if _hashable(v) else 1.0 for v in values]

    def next_keys(self, frame: Frame, least: float = 0.0) -> list[tuple[str | None, float]]:
        """Keys that may come next in an object, with chances; ``None`` stands for its end.

        All those of at least the chance ``least``: others cost time, and may be many. The end is
        always named, where keys are left out with the most that its chance may be.
        """
        declared = declared_in(frame.arms)
        if not declared.places:
            return [(None, 0.5 if frame.seen or any(arm.extra for arm in frame.arms) else EMPTY)]
        before = self._keys.get(_path(frame, frame.above))
        chances = _in_order(declared, frame.seen, before, least)
        return _as_before(chances, declared, frame.seen, before) if before else chances


def _in_order(
    declared: Declared, seen: tuple[str, ...], before: _Keys | None, least: float
) -> list[tuple[str | None, float]]:
    """Chances where keys come in declared order, each written or left out."""
    done = set(seen)
    first = 1 + max((declared.places[key] for key in done if key in declared.places), default=-1)
    chances: list[tuple[str | None, float]] = []
    mass = 1.0
    for key in islice(declared.places, first, None):
        if mass < least:
            break
        prior = REQUIRED if key in declared.required else OPTIONAL
        chance = before.chance(key, prior) if before else prior
        chances.append((key, mass * chance))
        mass *= 1 - chance
    passed = [key for key in declared.required if key not in done and declared.places[key] < first]
    missing = sorted(passed, key=declared.places.__getitem__)
    chances += [(key, mass * 0.7 / len(missing)) for key in missing]
    if least <= RARE:
        optional = (key for key in islice(declared.places, first) if key not in declared.required)
        chances += [(key, RARE) for key in optional if key not in done]
    likely = [(key, chance) for key, chance in chances if chance >= least]
    likely.append((None, mass * 0.3 if missing else mass))
    return sorted(likely, key=lambda pair: -pair[1])


def _as_before(
    chances: list[tuple[str | None, float]], declared: Declared, seen: tuple[str, ...], before: _Keys
) -> list[tuple[str | None, float]]:
    """``chances`` in the light of the last order, where this object has followed it so far."""
    done = len(seen)
    if seen != before.order[:done]:
        return chances
    following = before.order[done] if done < len(before.order) else None
    if following is None and not declared.required <= set(seen):
        return chances
    if following is not None and (following not in declared.places or following in seen):
        return chances  # of another schema
    rest = [(key, chance * (1 - NEXT_AS_BEFORE)) for key, chance in chances if key != following]
    return [(following, NEXT_AS_BEFORE), *rest]


def _path(of: Frame, frame: Frame | None) -> Path:
    """The place of ``frame``'s value (or of the root) in the call of ``of``.

    Undeclared keys, which may be a user's words, read as ``*``, and so do items.
    """
    # The object of a whole call learns the tool's name halfway.
    tool = "" if any(arm.tool for arm in of.arms) else of.tool
    steps = []
    while frame is not None:
        key = frame.key
        declared = key is not None and any(key in arm.properties for arm in frame.arms)
        steps.append(key if declared and key is not None else "*")
        frame = frame.above
    return tool, tuple(steps)


def _entry(table: OrderedDict[Path, Any], path: Path, new: Any) -> Any:
    found = table.pop(path, None)
    table[path] = new() if found is None else found
    while len(table) > MAX_PLACES:
        table.popitem(last=False)
    return table[path]


def _is_choice(frame: Frame, value: Any) -> bool:
    return _hashable(value) and any(
        arm.values is not None and value in arm.values for arm in frame.member_arms
    )


def _hashable(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float)
