"""White space in the JSON of structural tags is bounded as in that of ``json_schema`` requests.

Without a bound a model may write line breaks until its limit. SGLang's
``--constrained-json-max-whitespace-cnt`` bounds replies with a schema, but not calls that a tag forces.
"""

from __future__ import annotations

import json
from typing import Any

_SCHEMA = "json_schema"


def bound_tag(backend: Any, key_string: str) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Before ``XGrammarGrammarBackend.dispatch_structural_tag``: the tag with the backend's bound.

    What is no tag is left to SGLang, which refuses it.
    """
    limit = backend.max_whitespace_cnt
    if limit is None:
        return None
    try:
        tag = _as_format(json.loads(key_string))
        _bound(tag["format"], limit)
        return (backend, json.dumps(tag)), {}
    except (LookupError, TypeError, ValueError, RecursionError, AttributeError):
        return None


def _as_format(tag: dict[str, Any]) -> dict[str, Any]:
    """SGLang's first form, which has no place for a bound, as the one that it becomes there."""
    if tag.get("structures") is None:
        return tag
    tags = [
        {
            "type": "tag",
            "begin": structure["begin"],
            "content": {"type": _SCHEMA, _SCHEMA: _or_any(structure.get("schema"))},
            "end": structure["end"],
        }
        for structure in tag["structures"]
    ]
    triggered = {
        "type": "triggered_tags",
        "triggers": tag["triggers"],
        "tags": tags,
        "at_least_one": tag.get("at_least_one", False),
    }
    return {"type": "structural_tag", "format": triggered}


def _bound(part: Any, limit: int) -> None:
    """Within all formats of a tag; what a schema says is none of them."""
    if isinstance(part, list):
        for item in part:
            _bound(item, limit)
    elif isinstance(part, dict):
        if part.get("type") == _SCHEMA and part.get("max_whitespace_cnt") is None:
            part["max_whitespace_cnt"] = limit
        for key, value in part.items():
            if key != _SCHEMA:
                _bound(value, limit)


def _or_any(schema: Any) -> Any:
    return {} if schema is None else schema
