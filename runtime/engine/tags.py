"""Structural tags, which hold the calls that a request forces, as SGLang and xgrammar do not make them.

White space in their JSON is bounded as in that of ``json_schema`` requests: without a bound a model may
write line breaks until its limit. SGLang's ``--constrained-json-max-whitespace-cnt`` bounds replies with a
schema, but not calls that a tag forces. Keys that a schema requires without declaring may be written, and
numbers have an end.
"""

from __future__ import annotations

import json
from typing import Any

import xgrammar

from sglang_toolspec.grammars.ebnf import printed, with_ends
from sglang_toolspec.grammars.mask_schema import required_declared

_SCHEMA = "json_schema"


def mended(backend: Any, key_string: str) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Before ``XGrammarGrammarBackend.dispatch_structural_tag``: the tag with the backend's bound, with
    required keys declared and with numbers that end.

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
        if part.get("type") == _SCHEMA:
            _mend_schema(part, limit)
            return
        for value in part.values():
            _mend(value, limit)


def _mend_schema(part: dict[str, Any], limit: int | None) -> None:
    if part.get("max_whitespace_cnt") is None:
        part["max_whitespace_cnt"] = limit
    part[_SCHEMA] = required_declared(part[_SCHEMA])
    if part.get("style", "json") != "json":
        return
    try:
        grammar = xgrammar.Grammar.from_json_schema(
            json.dumps(part[_SCHEMA]),
            strict_mode=True,
            max_whitespace_cnt=part["max_whitespace_cnt"],
            any_order=part.get("any_order", False),
        )
    except RuntimeError:
        return  # SGLang says what is wrong
    part.clear()
    part.update(type="grammar", grammar=with_ends(printed(grammar)))


def _or_any(schema: Any) -> Any:
    return {} if schema is None else schema
