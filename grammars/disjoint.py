"""Whether no value fits two branches of a union, as far as that is plain."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from sglang_toolspec.grammars.keywords import kinds, listed, local_target, mapped, values, widened

_MAX_STEPS = 16


def are_disjoint(root: Any, branches: list[Any]) -> bool:
    """Whether at most one of ``branches`` can hold; ``False`` where that is not plain.

    References are followed within ``root``.
    """
    resolved = [_resolved(root, branch) for branch in branches]
    return all(_apart(a, b) for a, b in combinations(resolved, 2))


def _apart(a: Any, b: Any) -> bool:
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        return a is False or b is False
    kinds_a, kinds_b = kinds(a), kinds(b)
    if kinds_a and kinds_b and not widened(kinds_a) & widened(kinds_b):
        return True
    return _differ(a, b) or any(
        _differ(mapped(a, "properties").get(key), mapped(b, "properties").get(key))
        for key in _required(a) & _required(b)
    )


def _differ(a: Any, b: Any) -> bool:
    """Whether both have finite values, and none in common."""
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        return False
    values_a, values_b = values(a), values(b)
    if values_a is None or values_b is None:
        return False
    return not any(_same(x, y) for x in values_a for y in values_b)


def _required(schema: Mapping[str, Any]) -> set[str]:
    """Keys that every value has: it is an object then."""
    if schema.get("type") != "object":
        return set()
    return {key for key in listed(schema, "required") if isinstance(key, str)}


def _resolved(root: Any, schema: Any) -> Any:
    for _ in range(_MAX_STEPS):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            return schema
        schema = local_target(root, schema["$ref"])
    return {}


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)
