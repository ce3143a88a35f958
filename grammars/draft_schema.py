"""JSON Schema reduced to what shapes the text of a call.

A draft only proposes, so the schema behind it drops every keyword that judges a value
(``format``, ``pattern``, bounds): a value that breaks one must not silence the drafts
of what follows it. What remains decides keys, types, and finite choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DEFS = ("$defs", "definitions")
_HOISTED = tuple(f"#/{defs}/" for defs in _DEFS)
_MAX_CHOICES = 256
_MAX_PROPERTIES = 256
"""Of one object: xgrammar's time grows with their square, beyond that it takes any keys."""


def draft_schema(schema: Any) -> dict[str, Any]:
    """The lenient skeleton of ``schema``; ``{}`` (any JSON) where nothing can be said."""
    if not isinstance(schema, Mapping):
        return {}
    kept: dict[str, Any] = {k: schema[k] for k in ("type", "const") if k in schema}
    # The schema moves below a call's root, and only its definitions move to that root:
    # any other reference would point at the wrong place.
    if isinstance(target := schema.get("$ref"), str) and target.startswith(_HOISTED):
        kept["$ref"] = target
    choices = schema.get("enum")
    if isinstance(choices, list) and 0 < len(choices) <= _MAX_CHOICES:
        kept["enum"] = choices
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and len(properties) <= _MAX_PROPERTIES:
        kept["properties"] = {name: draft_schema(value) for name, value in properties.items()}
        kept["required"] = [r for r in _strings(schema.get("required")) if r in properties]
    for keyword in ("anyOf", "oneOf"):
        if isinstance(branches := schema.get(keyword), list) and branches:
            kept["anyOf"] = [draft_schema(branch) for branch in branches]
    if isinstance(items := schema.get("items"), Mapping):
        kept["items"] = draft_schema(items)
    if isinstance(extra := schema.get("additionalProperties"), Mapping) and extra:
        kept["additionalProperties"] = draft_schema(extra)
    for defs in _DEFS:
        if isinstance(found := schema.get(defs), Mapping):
            kept[defs] = {name: draft_schema(value) for name, value in found.items()}
    return kept


def arguments_schema(parameters: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """``(schema of the arguments object, definitions)``, the latter to be hoisted to the root."""
    schema = draft_schema(parameters)
    defs = {name: schema.pop(name) for name in _DEFS if name in schema}
    schema["type"] = "object"
    if not schema.get("properties") and "additionalProperties" not in schema:
        # Tools that declare nothing are called with {}.
        schema.setdefault("properties", {})
    return schema, defs


def _strings(value: Any) -> list[str]:
    return [v for v in value if isinstance(v, str)] if isinstance(value, list) else []
