"""Structural tags, which hold the calls that a request forces, as SGLang and xgrammar do not make them.

White space in their JSON is bounded as in that of ``json_schema`` requests: without a bound a model may
write line breaks until its limit. SGLang's ``--constrained-json-max-whitespace-cnt`` bounds replies with a
schema, but not calls that a tag forces. And keys that a schema requires without declaring may be written.
"""

from __future__ import annotations

import json
from typing import Any

from sglang_toolspec.grammars.mask_schema import required_declared

_SCHEMA = "json_schema"


def mended(backend: Any, key_string: str) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Before ``XGrammarGrammarBackend.dispatch_structural_tag``: the tag with the backend's bound, and with
    required keys declared.

    What is no tag is left to SGLang, which refuses it.
    """
    try:
        tag = _as_format(json.loads(key_string))
        _mend(tag["format"], backend.max_whitespace_cnt)
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


def _mend(part: Any, limit: int | None) -> None:
    """All formats of a tag; what a schema says is none of them."""
    if isinstance(part, list):
        for item in part:
            _mend(item, limit)
    elif isinstance(part, dict):
        if limit is not None and part.get("type") == _SCHEMA and part.get("max_whitespace_cnt") is None:
            part["max_whitespace_cnt"] = limit
        for key, value in part.items():
            if key != _SCHEMA:
                _mend(value, limit)
        if _SCHEMA in part:
            part[_SCHEMA] = required_declared(part[_SCHEMA])


def _or_any(schema: Any) -> Any:
    return {} if schema is None else schema
