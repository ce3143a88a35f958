"""A JSON Schema in the form in which xgrammar 0.2.7 makes the best mask of it.

What is left out here, and what xgrammar leaves out of the rest, ``enforce.unenforceable`` names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sglang_toolspec.grammars import patterns

MAX_BOUNDED_LENGTH = 8
"""The longest ``maxLength`` in a mask: each character costs 50 ms against a large vocabulary."""
MAX_COUNTED_PROPERTIES = 32
"""Declared properties beside ``minProperties`` or ``maxProperties``: time grows with the square."""
MAX_PROPERTIES = 1024
MAX_VALUES = 4096
"""Of one object and one ``enum``: beyond them compiling takes seconds."""

FORMATS = frozenset(
    [
        "date",
        "time",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uuid",
        "uri",
        "uri-reference",
        "uri-template",
        "json-pointer",
        "relative-json-pointer",
    ]
)
"""Formats of strings that xgrammar knows."""

_ANNOTATIONS = frozenset(
    [
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "$comment",
        "$schema",
    ]
)
_IN_MAP = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_IN_LIST = ("anyOf", "oneOf", "allOf", "prefixItems")
_INSIDE = (
    "items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "propertyNames",
    "not", "if", "then", "else", "contains", "additionalItems",
)  # fmt: skip
LENGTHS = ("minLength", "maxLength")
COUNTS = ("minProperties", "maxProperties")
_OTHER_KEYS = ("patternProperties", "propertyNames", "unevaluatedProperties", *COUNTS)
"""Beside them it is not plain which keys may be written."""


def mask_schema(schema: Any) -> Any:
    """``schema`` without what would break or slow the mask, and with what keeps parts apart."""
    if not isinstance(schema, Mapping):
        return schema
    if not keeps_properties(schema):
        return {"type": schema.get("type", "object")}
    schema = _with_required(schema)
    kept = distinct({k: v for k, v in schema.items() if k not in _ANNOTATIONS}, mask_schema)
    if not keeps_lengths(schema):
        kept = _without(kept, LENGTHS)
    if not keeps_counts(schema):
        kept = _without(kept, COUNTS)
    if not keeps_values(schema):
        kept = _without(kept, ("enum",))
    if isinstance(pattern := schema.get("pattern"), str):
        kept["pattern"] = patterns.read(pattern).whole
        kept = kept if kept["pattern"] else _without(kept, ("pattern",))
    if isinstance(found := kept.get("patternProperties"), Mapping):
        read = {patterns.read(pattern).whole: value for pattern, value in found.items()}
        kept["patternProperties"] = {whole: value for whole, value in read.items() if whole}
    if _is_open_array(schema):
        kept["items"] = {}
    return kept


def required_declared(schema: Any) -> Any:
    """``schema`` with the keys that its objects require among their ``properties``, at every depth."""
    if not isinstance(schema, Mapping):
        return schema
    return _with_required({key: _rewritten(key, value, required_declared) for key, value in schema.items()})


def undeclared(schema: Mapping[str, Any]) -> list[str]:
    """Keys that ``required`` names and ``properties`` lacks, where they can be declared: without that
    xgrammar does not ask for them, and allows none of them in strict mode."""
    properties, required = schema.get("properties", {}), schema.get("required")
    types = schema.get("type")
    if (
        "object" not in (types if isinstance(types, list) else [types])
        or not isinstance(properties, Mapping)
        or not isinstance(required, list)
        or schema.get("additionalProperties") is False
        or any(keyword in schema for keyword in _OTHER_KEYS)
    ):
        return []
    names = dict.fromkeys(key for key in required if isinstance(key, str) and key not in properties)
    return list(names) if len(properties) + len(names) <= MAX_PROPERTIES else []


def _with_required(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    names = undeclared(schema)
    if not names:
        return schema
    extra = schema.get("additionalProperties")
    any_value = extra if isinstance(extra, Mapping) else {}
    return {**schema, "properties": {**schema.get("properties", {}), **dict.fromkeys(names, any_value)}}


def distinct(schema: Mapping[str, Any], below: Callable[[Any], Any]) -> dict[str, Any]:
    """A copy that xgrammar does not mistake for another schema; ``below`` rewrites what it holds.

    xgrammar takes schemas for the same that differ only in the order of ``properties``, or in
    what stands under ``title``, ``description``, ``default`` and the like, also where those are
    names of properties or keys of a ``const``. Unknown keywords do count.
    """
    kept = {key: _rewritten(key, value, below) for key, value in schema.items()}
    properties = kept.get("properties")
    if isinstance(properties, Mapping) and properties:
        hidden = {name: value for name, value in properties.items() if name in _ANNOTATIONS}
        kept["x-keys"] = [*properties, json.dumps(hidden)]
    values = [schema[k] for k in ("const", "enum") if k in schema]
    if any(map(_holds_object, values)):
        kept["x-values"] = json.dumps(values)
    return kept


def _rewritten(keyword: str, value: Any, below: Callable[[Any], Any]) -> Any:
    if keyword in _INSIDE:
        return below(value)
    if keyword in _IN_MAP and isinstance(value, Mapping):
        return {name: below(item) for name, item in value.items()}
    if keyword in _IN_LIST and isinstance(value, list):
        return [below(item) for item in value]
    return value


def keeps_lengths(schema: Mapping[str, Any]) -> bool:
    """Whether the bounds of a string's length are in the mask.

    Under them xgrammar refuses every character that JSON escapes, so that a text could hold
    no line break: only short strings keep them.
    """
    most = schema.get("maxLength")
    return isinstance(most, int) and 0 <= most <= MAX_BOUNDED_LENGTH


def keeps_counts(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    return not isinstance(properties, Mapping) or len(properties) <= MAX_COUNTED_PROPERTIES


def keeps_properties(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    return not isinstance(properties, Mapping) or len(properties) <= MAX_PROPERTIES


def keeps_values(schema: Mapping[str, Any]) -> bool:
    choices = schema.get("enum")
    return not isinstance(choices, list) or len(choices) <= MAX_VALUES


def _is_open_array(schema: Mapping[str, Any]) -> bool:
    """An array of anything: xgrammar would allow it no item."""
    types = schema.get("type")
    listed = types if isinstance(types, list) else [types]
    return "array" in listed and not any(k in schema for k in ("items", "prefixItems", "unevaluatedItems"))


def _holds_object(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_object, value))
    return isinstance(value, Mapping)


def _without(schema: dict[str, Any], keywords: tuple[str, ...]) -> dict[str, Any]:
    return {k: v for k, v in schema.items() if k not in keywords}
