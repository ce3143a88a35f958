"""Looking into raw JSON Schemas, which may be malformed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sglang_toolspec.grammars.schema import kind_of


def listed(schema: Mapping[str, Any], keyword: str) -> list[Any]:
    """The list under ``keyword``; empty where there is none."""
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def mapped(schema: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    """The object under ``keyword``; empty where there is none."""
    found = schema.get(keyword)
    return found if isinstance(found, Mapping) else {}


def types(schema: Mapping[str, Any]) -> set[str]:
    """What ``type`` names."""
    named = schema.get("type")
    return {n for n in (named if isinstance(named, list) else [named]) if isinstance(n, str)}


def values(schema: Mapping[str, Any]) -> list[Any] | None:
    """The finite values of ``const`` or ``enum``; ``None`` where values are open."""
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None


def kinds(schema: Mapping[str, Any]) -> set[str]:
    """The types of what is allowed; empty where that is open."""
    finite = values(schema)
    return types(schema) if finite is None else set(map(kind_of, finite))


def widened(kinds: set[str]) -> set[str]:
    return kinds | {"integer"} if "number" in kinds else kinds


def below(value: Any) -> Iterator[Any]:
    """Everything inside a JSON value, not itself."""
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield item
        yield from below(item)


def local_target(root: Any, reference: Any) -> Any:
    """What ``#`` or ``#/a/b`` stands for, read as xgrammar does; ``None`` where nothing is there."""
    if reference == "#":
        return root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found = root
    for part in filter(None, reference[2:].split("/")):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def token(name: str) -> str:
    """``name`` as a step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
