"""A JSON Schema as the automaton reads it: which values, keys and items may stand at a place.

Nothing here judges a value. Keywords that only judge (bounds, ``uniqueItems``) are left out,
contradictions are read leniently, and a reference that cannot be resolved allows anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, NamedTuple

import referencing
import referencing.exceptions
import referencing.jsonschema

from sglang_toolspec.grammars.mask_schema import undeclared

KINDS = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})
MAX_ARMS = 32
"""Alternatives kept at one place; beyond that a reply is followed without their keys."""
MAX_VALUES = 1024
MAX_EXPANSIONS = 64
"""``$ref``, ``allOf``, ``anyOf`` steps followed for one place."""
MAX_PROPERTIES = 512
"""Declared keys kept at one place; others are read as undeclared."""
MAX_BRANCHES = 128
"""Branches of one union that are looked at."""
MAX_NODES = 20_000
"""Values of a schema in which identifiers are looked for."""
MAX_PATTERNS = 32
MAX_PATTERN = 256
MAX_MATCHED = 64
"""Characters of a key that patterns are matched with."""

# What tool catalogues write instead of JSON Schema's names.
_ALIASES = {
    "dict": "object", "map": "object", "struct": "object",
    "list": "array", "tuple": "array", "set": "array",
    "str": "string", "text": "string", "char": "string",
    "int": "integer", "long": "integer", "float": "number", "double": "number", "bool": "boolean",
    "none": "null",
}  # fmt: skip
_IMPLIED = {
    "properties": "object", "required": "object", "additionalProperties": "object",
    "patternProperties": "object", "items": "array", "prefixItems": "array",
    "pattern": "string", "format": "string", "minLength": "string", "maxLength": "string",
}  # fmt: skip
_ANCHORS = ("$anchor", "$dynamicAnchor")
_CHOOSES = re.compile(r"[*+{(]|(?<!\()\?")
"""Marks of a pattern at which a match may go several ways."""
_TEXT_KEYWORDS = ("pattern", "format", "description")


@dataclass(frozen=True, eq=False)
class Arm:
    """One alternative at a place, free of unions; immutable."""

    kinds: frozenset[str] = KINDS
    values: tuple[Any, ...] | None = None
    """The finite JSON values of ``const`` or ``enum``; ``None`` where values are open."""
    properties: Mapping[str, Schema] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    patterns: tuple[tuple[re.Pattern[str], Schema], ...] = ()
    extra: Schema | None = None
    """The schema of undeclared keys, where they have one."""
    closed: bool = False
    """Whether undeclared keys are forbidden."""
    prefix: tuple[Schema, ...] = ()
    items: Schema | None = None
    text: Mapping[str, str] = field(default_factory=dict)
    """``pattern``, ``format`` and ``description`` of strings here."""
    tool: str = ""
    """The tool whose call this object is, where it is one."""

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """``values`` as JSON."""
        return tuple(map(written, self.values or ()))

    @cached_property
    def declared(self) -> Declared:
        places = {key: i for i, key in enumerate(self.properties)}
        return Declared(places, frozenset(key for key in self.required if key in places))

    def member(self, key: str) -> Schema:
        """The schema of the value under ``key``, declared or not."""
        if key in self.properties:
            return self.properties[key]
        if self.patterns and len(key) <= MAX_MATCHED:
            for pattern, schema in self.patterns:
                if pattern.search(key):
                    return schema
        return self.extra or ANYTHING

    def item(self, index: int) -> Schema:
        return self.prefix[index] if index < len(self.prefix) else self.items or ANYTHING

    def narrowed(self, key: str, value: Any) -> Arm | None:
        """This alternative once ``key`` has ``value``; ``None`` where that rules it out.

        Only finite values rule out (the discriminator of a union).
        """
        declared = self.properties.get(key)
        if declared is None or declared.is_open:
            return self
        fits = any(arm.values is None or value in arm.values for arm in declared.arms)
        return self if fits else None


class Schema:
    """One place: the conjunction of ``parts``, as a list of alternatives; resolved when asked."""

    def __init__(self, *parts: _Part):
        self._parts = parts

    @classmethod
    def root(cls, raw: Any) -> Schema:
        """A whole schema document; ``$ref`` is resolved within it."""
        return cls(_Part(raw, _resolver(raw) if isinstance(raw, Mapping) else None))

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        """At least one alternative, at most ``MAX_ARMS``, in the order of the schema."""
        budget = [MAX_EXPANSIONS]
        arms = [Arm()]
        for part in self._parts:
            arms = _both(arms, _alternatives(part, budget))
        return tuple(arms)

    @cached_property
    def is_open(self) -> bool:
        """Whether no alternative has finite values."""
        return all(arm.values is None for arm in self.arms)

    def may_be(self, value: Any) -> bool:
        """Whether an alternative allows ``value``, a scalar, by its type or its finite values."""
        kind = kind_of(value)
        kinds = {kind, "number"} if kind == "integer" else {kind}
        return any(value in arm.values if arm.values is not None else arm.kinds & kinds for arm in self.arms)

    def __and__(self, other: Schema) -> Schema:
        return Schema(*self._parts, *other._parts)


@dataclass(frozen=True)
class _Part:
    raw: Any
    resolver: Any

    def below(self, raw: Any) -> Schema:
        return Schema(self.sub(raw))

    def sub(self, raw: Any) -> _Part:
        if self.resolver is None or not isinstance(raw, Mapping) or "$id" not in raw:
            return _Part(raw, self.resolver)
        try:
            resource = referencing.jsonschema.DRAFT202012.create_resource(raw)
            return _Part(raw, self.resolver.in_subresource(resource))
        except Exception:  # an odd $id only costs the references below it
            return _Part(raw, self.resolver)

    def resolved(self, reference: Any) -> _Part | None:
        if self.resolver is None or not isinstance(reference, str):
            return None
        try:
            found = self.resolver.lookup(reference)
        except Exception:  # unknown, remote or malformed: anything may stand here
            return None
        return _Part(found.contents, found.resolver)


def _resolver(raw: Mapping[str, Any]) -> Any:
    try:
        resource = referencing.jsonschema.DRAFT202012.create_resource(raw)
        uri = resource.id() or ""
        # A registry that was not crawled would be crawled for every unknown reference.
        registry = referencing.Registry(resources={uri: resource})  # type: ignore[call-arg]
        if _has_identifiers(raw):
            registry = referencing.Registry().with_resource(uri, resource).crawl()
        return registry.resolver(uri)
    except Exception:  # an odd $id or $anchor: decode without references
        return None


def _has_identifiers(raw: Mapping[str, Any]) -> bool:
    """Whether parts of a schema have names of their own, and it is small enough to look at them."""
    found, left = any(key in raw for key in _ANCHORS), MAX_NODES
    nodes = list(raw.values())
    while nodes and left:
        left -= 1
        node = nodes.pop()
        if isinstance(node, Mapping):
            found = found or "$id" in node or any(key in node for key in _ANCHORS)
            nodes.extend(node.values())
        elif isinstance(node, list):
            nodes.extend(node)
    return found and not nodes


def _alternatives(part: _Part, budget: list[int]) -> list[Arm]:
    """The disjunctive normal form of one schema, cut at ``MAX_ARMS``."""
    raw = part.raw
    budget[0] -= 1
    if not isinstance(raw, Mapping) or budget[0] < 0:
        return [Arm()]
    arms = [_own(part)]
    for reference in ("$ref", "$dynamicRef"):
        if (target := part.resolved(raw.get(reference))) is not None:
            arms = _both(arms, _alternatives(target, budget))
    for sub in _list(raw, "allOf"):
        if budget[0] > 0:
            arms = _both(arms, _alternatives(part.sub(sub), budget))
    for keyword in ("anyOf", "oneOf"):
        if branches := _list(raw, keyword)[:MAX_BRANCHES]:
            arms = _both(arms, [a for b in branches for a in _alternatives(part.sub(b), budget)])
    if "if" in raw:
        either = [raw.get(k, True) for k in ("then", "else")]
        arms = _both(arms, [a for e in either for a in _alternatives(part.sub(e), budget)])
    return arms


def _both(left: list[Arm], right: list[Arm]) -> list[Arm]:
    """Every consistent pair; all pairs where none is (a contradiction is read leniently)."""
    pairs = [(a, b) for a in left for b in right[:MAX_BRANCHES]]
    consistent = [(a, b) for a, b in pairs if a.kinds & b.kinds]
    return [_merge(a, b) for a, b in (consistent or pairs)[:MAX_ARMS]]


def _merge(a: Arm, b: Arm) -> Arm:
    values = a.values if b.values is None else b.values
    if a.values is not None and b.values is not None:
        values = tuple(v for v in a.values if v in b.values) or a.values
    properties = a.properties
    if b.properties:
        shared = a.properties.keys() & b.properties.keys()
        both = {k: a.properties[k] & b.properties[k] for k in shared}
        properties = {**a.properties, **b.properties, **both}
    return Arm(
        kinds=(a.kinds & b.kinds) or a.kinds,
        values=values,
        properties=properties if len(properties) <= MAX_PROPERTIES else a.properties,
        required=a.required | b.required,
        patterns=a.patterns + b.patterns,
        extra=_maybe_both(a.extra, b.extra),
        closed=a.closed or b.closed,
        prefix=max(a.prefix, b.prefix, key=len),
        items=_maybe_both(a.items, b.items),
        text={**a.text, **b.text},
    )


def _maybe_both(a: Schema | None, b: Schema | None) -> Schema | None:
    return a & b if a is not None and b is not None else a or b


def _own(part: _Part) -> Arm:
    """The alternative that a schema's own keywords describe."""
    raw = part.raw
    items, extra = raw.get("items"), raw.get("additionalProperties")
    prefix = _list(raw, "prefixItems") or (items if isinstance(items, list) else [])
    if isinstance(items, list):  # draft 7's form of prefixItems
        items = raw.get("additionalItems")
    values = _values(raw)
    named = raw.get("properties", {})
    return Arm(
        kinds=_kinds(raw, values),
        values=values,
        # Keys that are required and nothing else are written as the mask has them.
        properties=_below(part, named) | {key: part.below(extra) for key in undeclared(raw)},
        required=frozenset(r for r in _list(raw, "required") if isinstance(r, str)),
        patterns=tuple(_patterns(part)),
        extra=part.below(extra) if isinstance(extra, Mapping) else None,
        closed=extra is False and "patternProperties" not in raw,
        prefix=tuple(part.below(p) for p in prefix),
        items=part.below(items) if isinstance(items, Mapping) else None,
        text={k: raw[k] for k in _TEXT_KEYWORDS if isinstance(raw.get(k), str)},
    )  # fmt: skip


def _below(part: _Part, schemas: Any) -> dict[str, Schema]:
    if not isinstance(schemas, Mapping):
        return {}
    return {k: part.below(v) for k, v in islice(schemas.items(), MAX_PROPERTIES)}


def _patterns(part: _Part) -> Iterator[tuple[re.Pattern[str], Schema]]:
    found = part.raw.get("patternProperties")
    for pattern, raw in islice(found.items(), MAX_PATTERNS) if isinstance(found, Mapping) else ():
        if _is_cheap(pattern):
            try:
                yield re.compile(pattern), part.below(raw)
            except (re.error, OverflowError, RecursionError):
                continue


def _is_cheap(pattern: str) -> bool:
    """Whether matching cannot take long: keys are matched while decoding.

    Nested repetition takes exponential time, and so do many choices in a row.
    """
    nested = re.search(r"[*+}]\)*[*+{]|\)[*+{]", pattern)
    return len(pattern) <= MAX_PATTERN and not nested and len(_CHOOSES.findall(pattern)) <= 3


def _values(raw: Mapping[str, Any]) -> tuple[Any, ...] | None:
    if "const" in raw:
        return (raw["const"],)
    choices = raw.get("enum")
    return tuple(choices[:MAX_VALUES]) if isinstance(choices, list) and choices else None


def _kinds(raw: Mapping[str, Any], values: tuple[Any, ...] | None) -> frozenset[str]:
    if values is not None:  # they say it best, even where ``type`` contradicts them
        return frozenset(map(kind_of, values))
    named = raw.get("type")
    names = named if isinstance(named, list) else [named]
    known = {_ALIASES.get(n.lower(), n.lower()) for n in names if isinstance(n, str)} & KINDS
    if raw.get("nullable") is True and known:
        known |= {"null"}
    # Without a type, a keyword hints at one. It is a guess that only a draft depends on.
    return frozenset(known or {kind for keyword, kind in _IMPLIED.items() if keyword in raw} or KINDS)


def kind_of(value: Any) -> str:
    """JSON Schema's name for the type of a JSON value."""
    if value is None:
        return "null"
    for kind, types in (("boolean", bool), ("integer", int), ("number", float), ("string", str)):
        if isinstance(value, types):
            return kind
    return "array" if isinstance(value, list) else "object"


def written(value: Any) -> str:
    """JSON as models write it: only what UTF-8 cannot hold (a lone surrogate) is escaped."""
    return _written_text(value) if isinstance(value, str) else _written(value)


@lru_cache(maxsize=4096)
def _written_text(value: str) -> str:
    return _written(value)


def _written(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def _list(raw: Mapping[str, Any], keyword: str) -> list[Any]:
    found = raw.get(keyword)
    return found if isinstance(found, list) else []


def union(schemas: Iterable[Schema]) -> tuple[Arm, ...]:
    """The alternatives of any of ``schemas``, each once, at most ``MAX_ARMS``."""
    arms = {id(arm): arm for schema in schemas for arm in schema.arms}
    return tuple(arms.values())[:MAX_ARMS]


class Declared(NamedTuple):
    """Keys that an object declares."""

    places: dict[str, int]
    """In declared order."""
    required: frozenset[str]
    """Those of them that must stand."""


def declared_in(arms: tuple[Arm, ...]) -> Declared:
    """The keys that any of ``arms`` declares."""
    if len(arms) == 1:
        return arms[0].declared
    places = {key: i for i, key in enumerate(dict.fromkeys(key for arm in arms for key in arm.properties))}
    return Declared(places, frozenset(key for arm in arms for key in arm.required if key in places))


ANYTHING = Schema(_Part(True, None))
