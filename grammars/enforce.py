"""What of a JSON Schema a mask of xgrammar 0.2.7 does not hold a reply to, found by experiment.

``docs/json-schema.md`` measures this against the official test suite of JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sglang_toolspec.grammars import patterns
from sglang_toolspec.grammars.disjoint import are_disjoint
from sglang_toolspec.grammars.keywords import (
    below,
    listed,
    local_target,
    mapped,
    token,
    types,
    values,
    widened,
)
from sglang_toolspec.grammars.mask_schema import (
    COUNTS,
    FORMATS,
    LENGTHS,
    MAX_PROPERTIES,
    MAX_VALUES,
    keeps_counts,
    keeps_lengths,
    keeps_properties,
    keeps_values,
    undeclared,
)
from sglang_toolspec.grammars.schema import KINDS, kind_of

_MAX_MULTIPLE, _MAX_MULTIPLES_RANGE = 1024, 10_000
_MAX_EXACT = 1 << 63

_OF_KIND: dict[str, tuple[str, ...]] = {
    "object": (
        "properties", "required", "patternProperties", "additionalProperties", "propertyNames",
        "minProperties", "maxProperties", "unevaluatedProperties",
    ),
    "array": ("items", "prefixItems", "minItems", "maxItems", "unevaluatedItems", "minContains"),
    "string": ("pattern", "format", *LENGTHS),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}  # fmt: skip
_NEVER_READ = {
    "not": KINDS, "dependentRequired": {"object"}, "dependentSchemas": {"object"},
    "dependencies": {"object"}, "contains": {"array"}, "uniqueItems": {"array"},
    "$dynamicRef": KINDS, "$recursiveRef": KINDS,
}  # fmt: skip
_FIRST_READ = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
"""xgrammar reads the first of these that stands in a schema, and nothing beside it."""
_ASSERTIONS = (*_FIRST_READ, "type", *(k for keywords in _OF_KIND.values() for k in keywords))
_IMPLIES = (
    ("object", ("properties", "additionalProperties", "unevaluatedProperties")),
    ("array", ("items", "prefixItems", "unevaluatedItems")),
)
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


class Unenforceable(NamedTuple):
    """A keyword that the mask does not enforce as it is meant."""

    pointer: str
    """JSON pointer of the schema that holds the keyword."""
    keyword: str
    why: str
    lets_through: bool = True
    """Whether replies that break the schema pass; else only some that keep it are refused."""


def unenforceable(schema: Any) -> list[Unenforceable]:
    """Everything in ``schema`` that the mask made from it gets wrong, in the order of reading.

    Not named: a schema that xgrammar refuses to compile, and that objects without
    ``additionalProperties``, and arrays with ``prefixItems`` alone, are closed.
    """
    reader = _Reader(schema)
    reader.read(schema, "")
    return list(dict.fromkeys(reader.found))


class _Reader:
    def __init__(self, root: Any):
        self._root = root
        self._seen: set[tuple[str, str]] = set()
        self._scoped = any(isinstance(s, Mapping) and "$id" in s for s in below(root))
        self.found: list[Unenforceable] = []

    def read(self, schema: Any, at: str, default: str = "") -> None:
        if not isinstance(schema, Mapping) or (at, default) in self._seen:
            return
        self._seen.add((at, default))
        if not keeps_properties(schema):
            self._name(at, "properties", f"is left out with all beside it: more than {MAX_PROPERTIES} keys")
            return
        kinds = types(schema) or ({default} if default else set())
        for keyword, of in _NEVER_READ.items():
            says_nothing = keyword in ("not", "uniqueItems") and schema.get(keyword) is False
            if keyword in schema and not says_nothing and of & (kinds or KINDS):
                self._name(at, keyword, "is not read")
        if "if" in schema and any(schema.get(k, True) is not True for k in ("then", "else")):
            self._name(at, "if", "is not read, nor are 'then' and 'else'")
        first = _first(schema)
        if first is not None:
            self._beside(schema, at, first, kinds)
            getattr(self, f"_{first.strip('$').lower()}")(schema, at)
        elif kinds:
            self._typed(schema, at, kinds)
        else:
            self._untyped(schema, at)

    def _name(self, at: str, keyword: str, why: str, lets_through: bool = True) -> None:
        self.found.append(Unenforceable(at, keyword, why, lets_through))

    def _beside(self, schema: Mapping[str, Any], at: str, first: str, kinds: set[str]) -> None:
        old_draft = isinstance(self._root, Mapping) and "draft-0" in str(self._root.get("$schema"))
        if first == "$ref" and old_draft:
            return  # nothing beside $ref counted then
        for keyword in _ASSERTIONS:
            if keyword not in schema or keyword == first:
                continue
            if keyword == "type" and self._agrees(schema, first, kinds):
                continue
            self._name(at, keyword, f"is not read beside '{first}'")

    def _agrees(self, schema: Mapping[str, Any], first: str, kinds: set[str]) -> bool:
        """Whether what is read allows no other type than ``kinds`` anyway."""
        if first in ("const", "enum"):
            return all(kind_of(value) in widened(kinds) for value in values(schema) or ())
        target = [local_target(self._root, schema["$ref"])] if first == "$ref" else []
        branches = target or listed(schema, first)
        if first == "allOf" and len(branches) > 1:
            return False
        own = [types(b) if isinstance(b, Mapping) and not _first(b) else set() for b in branches]
        return bool(own) and all(k and widened(k) <= widened(kinds) for k in own)

    def _ref(self, schema: Mapping[str, Any], at: str) -> None:
        reference = schema["$ref"]
        if reference != "#" and not (isinstance(reference, str) and reference.startswith("#/")):
            self._name(at, "$ref", "is followed only as a JSON pointer within the document")
        elif self._scoped or any(mark in reference for mark in ("~", "%", "//")):
            self._name(at, "$ref", "is read as a plain path from the root of the document")
        self.read(local_target(self._root, reference), str(reference)[1:])

    def _const(self, schema: Mapping[str, Any], at: str) -> None:
        keyword = "const" if "const" in schema else "enum"
        if not keeps_values(schema):
            self._name(at, "enum", f"is left out: more than {MAX_VALUES} values")
        if any(isinstance(v, int) and abs(v) >= _MAX_EXACT for v in below(values(schema))):
            self._name(at, keyword, "loses digits of integers beyond 64 bits")

    _enum = _const

    def _anyof(self, schema: Mapping[str, Any], at: str) -> None:
        self._branches(schema, at, "anyOf")

    def _oneof(self, schema: Mapping[str, Any], at: str) -> None:
        branches = schema["oneOf"]
        if isinstance(branches, list) and not are_disjoint(self._root, branches):
            self._name(at, "oneOf", "is read as 'anyOf'")
        self._branches(schema, at, "oneOf")

    def _allof(self, schema: Mapping[str, Any], at: str) -> None:
        branches = schema["allOf"]
        if isinstance(branches, list) and len(branches) > 1:
            self._name(at, "allOf", "is not read where it has several branches")
        else:
            self._branches(schema, at, "allOf")

    def _branches(self, schema: Mapping[str, Any], at: str, keyword: str) -> None:
        if isinstance(branches := schema[keyword], list):
            for i, branch in enumerate(branches):
                self.read(branch, f"{at}/{keyword}/{i}")

    def _untyped(self, schema: Mapping[str, Any], at: str) -> None:
        for kind, keywords in _IMPLIES:
            if found := next((k for k in keywords if k in schema), None):
                why = f"without 'type' makes this {kind}s only"
                self._name(at, found, why, lets_through=False)
                self._typed(schema, at, {kind})
                return
        for keyword in _ASSERTIONS:
            if keyword in schema:
                self._name(at, keyword, "is not read without 'type'")

    def _typed(self, schema: Mapping[str, Any], at: str, kinds: set[str]) -> None:
        if "object" in kinds:
            self._object(schema, at)
        if "array" in kinds:
            self._array(schema, at)
        if "string" in kinds:
            self._string(schema, at)
        if "number" in kinds:
            self._number(schema, at)
        elif "integer" in kinds:
            self._integer(schema, at)

    def _object(self, schema: Mapping[str, Any], at: str) -> None:
        properties = mapped(schema, "properties")
        declared = {*properties, *undeclared(schema)}
        missing = [r for r in listed(schema, "required") if isinstance(r, str) and r not in declared]
        if missing:
            self._name(at, "required", f"is not enforced for '{missing[0]}', which 'properties' lacks")
            self._name(at, "required", "may keep undeclared keys out", lets_through=False)
        if not keeps_counts(schema):
            for keyword in COUNTS:
                if keyword in schema:
                    self._name(at, keyword, f"is left out beside {len(properties)} properties")
        self._keys(schema, at, properties)
        for keyword in ("properties", "patternProperties"):
            for name, value in mapped(schema, keyword).items():
                self.read(value, f"{at}/{keyword}/{token(name)}")
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            self.read(schema.get(keyword), f"{at}/{keyword}")

    def _keys(self, schema: Mapping[str, Any], at: str, properties: Mapping[str, Any]) -> None:
        """Keys beyond ``properties``."""
        extra = schema.get("additionalProperties", schema.get("unevaluatedProperties", False))
        by_pattern = mapped(schema, "patternProperties")
        if properties and extra is not False:
            why = "is not enforced for a key spelled with escapes, or beyond ASCII: it passes as undeclared"
            self._name(at, "properties", why)
        if by_pattern:
            self._key_patterns(schema, at, extra)
        if "propertyNames" not in schema:
            return
        if by_pattern or properties:
            self._name(at, "propertyNames", "is not enforced for declared keys")
        else:
            for keyword in ("additionalProperties", "unevaluatedProperties"):
                if schema.get(keyword) is False:
                    self._name(at, keyword, "is not read beside 'propertyNames'")
        if not by_pattern:
            self.read(schema["propertyNames"], f"{at}/propertyNames", default="string")

    def _key_patterns(self, schema: Mapping[str, Any], at: str, extra: Any) -> None:
        by_pattern, properties = mapped(schema, "patternProperties"), mapped(schema, "properties")
        name = "patternProperties"
        for pattern in by_pattern:
            if fault := patterns.read(pattern).fault:
                self._name(at, name, f"is left out for '{pattern}': it uses {fault}")
        if extra is not False and properties:
            self._name(at, name, "is not enforced where other keys are allowed")
        elif schema.get("additionalProperties") is not False:
            self._name(at, name, "keeps other keys out", lets_through=False)
        if properties or len(by_pattern) > 1:
            self._name(at, name, "is not enforced for a key that something else declares too")
        if any(patterns.read(pattern).broad for pattern in by_pattern):
            self._name(at, name, "refuses keys with characters that JSON escapes", lets_through=False)

    def _array(self, schema: Mapping[str, Any], at: str) -> None:
        if "prefixItems" in schema and "additionalItems" in schema:
            self._name(at, "additionalItems", "is not read: no more items may follow", lets_through=False)
        if "minContains" in schema and "contains" not in schema:
            self._name(at, "minContains", "is read as 'minItems'", lets_through=False)
        for i, item in enumerate(listed(schema, "prefixItems")):
            self.read(item, f"{at}/prefixItems/{i}")
        for keyword in ("items", "unevaluatedItems"):
            if keyword in schema:
                self.read(schema[keyword], f"{at}/{keyword}")
                break

    def _string(self, schema: Mapping[str, Any], at: str) -> None:
        form, pattern = schema.get("format"), schema.get("pattern")
        lengths = [k for k in LENGTHS if k in schema]
        if form is not None and not (isinstance(form, str) and form in FORMATS):
            self._name(at, "format", f"'{form}' is not known to xgrammar")
        elif form is not None:
            self._dropped(at, "format", ["pattern"] * (pattern is not None) + lengths)
            return
        if isinstance(pattern, str):
            reading = patterns.read(pattern)
            if reading.fault:
                self._name(at, "pattern", f"is left out: it uses {reading.fault}")
            else:
                self._dropped(at, "pattern", lengths)
                if reading.broad:
                    why = "refuses characters that JSON escapes"
                    self._name(at, "pattern", why, lets_through=False)
                return
        for keyword in lengths:
            if not keeps_lengths(schema):
                self._name(at, keyword, "is left out: xgrammar would refuse line breaks and quotes with it")
            else:
                self._name(at, keyword, "refuses characters that JSON escapes", lets_through=False)

    def _dropped(self, at: str, first: str, keywords: Iterable[str]) -> None:
        for keyword in keywords:
            self._name(at, keyword, f"is not read beside '{first}'")

    def _number(self, schema: Mapping[str, Any], at: str) -> None:
        if "multipleOf" in schema:
            self._name(at, "multipleOf", "is enforced for integers only")
        for keyword in _BOUNDS:
            if keyword in schema:
                why = "refuses numbers with more than six decimals"
                self._name(at, keyword, why, lets_through=False)

    def _integer(self, schema: Mapping[str, Any], at: str) -> None:
        step = schema.get("multipleOf")
        if not isinstance(step, int | float):
            return
        bounds = [schema[k] for k in _BOUNDS if isinstance(schema.get(k), int | float)]
        sides = {k[-7:].lower() for k in _BOUNDS if k in schema}
        if step % 1 != 0 or step > _MAX_MULTIPLE:
            self._name(at, "multipleOf", f"is enforced for whole steps up to {_MAX_MULTIPLE} only")
        elif len(sides) == 1 or (bounds and max(bounds) - min(bounds) >= _MAX_MULTIPLES_RANGE - 1):
            why = f"is enforced only without bounds, or between two less than {_MAX_MULTIPLES_RANGE} apart"
            self._name(at, "multipleOf", why)


def _first(schema: Mapping[str, Any]) -> str | None:
    return next((k for k in _FIRST_READ if k in schema), None)
