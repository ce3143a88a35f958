"""The arguments of a call, checked and converted by what described its tool."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs
from referencing import Registry

from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.sources import tool_fields
from sglang_toolspec.grammars.tools import Tool, ToolSet, shown


def loaded(raw: str, name: str) -> dict[str, Any]:
    """The object that ``raw`` holds; raises ``UserError`` where it holds none."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the arguments of {shown(name)} are no JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"the arguments of {shown(name)} must be an object, not {type(value).__name__}")
    return value


def converted(given: dict[str, Any], tool: Tool, described_by: Any) -> dict[str, Any]:
    """Arguments as a function of that signature gets them, a class has them as fields, or a schema
    allows them; raises ``UserError`` with the place of the first fault."""
    try:
        if isinstance(described_by, type):
            return _fields(TypeAdapter(described_by).validate_python(given))
        if is_function(described_by):
            return TypeAdapter(_collector(described_by)).validate_python(ArgsKwargs((), given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "/".join(map(str, ("", *first["loc"])))
        raise UserError(f"the arguments of {shown(tool.name)} do not fit: {place} {first['msg']}") from error
    _check_schema(given, tool)
    return given


def run(arguments: dict[str, Any], given: dict[str, Any], tool: Tool, described_by: Any) -> Any:
    """What calling the function gives, or an instance of the class."""
    if isinstance(described_by, type):
        return TypeAdapter(described_by).validate_python(given)
    if is_function(described_by):
        return described_by(**arguments)
    raise UserError(f"{shown(tool.name)} was given as a schema, which cannot run; use the call's arguments")


def is_function(described_by: Any) -> bool:
    described = isinstance(described_by, type | Mapping | Tool | ToolSet)
    return callable(described_by) and not described and tool_fields(described_by) is None


def _fields(instance: Any) -> dict[str, Any]:
    return dict(instance) if isinstance(instance, Mapping | BaseModel) else dict(vars(instance))


def _collector(function: Any) -> Any:
    """A function of the same signature that returns its arguments."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    hints = getattr(inner, "__annotations__", None) or getattr(inner.__call__, "__annotations__", {})

    def collect(**arguments: Any) -> dict[str, Any]:
        return arguments

    functools.update_wrapper(collect, function)
    collect.__annotations__ = {key: hint for key, hint in hints.items() if key != "return"}
    collect.__module__ = getattr(inner, "__module__", collect.__module__)
    return collect


def _check_schema(given: dict[str, Any], tool: Tool) -> None:
    """Nothing is fetched for a reference; a schema that cannot be read allows everything."""
    try:
        errors = Draft202012Validator(tool.parameters, registry=Registry()).iter_errors(given)
        fault = best_match(errors)
    except Exception:  # jsonschema raises anything on schemas that are none
        return
    if fault is not None:
        place = "/".join(map(str, ("", *fault.absolute_path))) or "/"
        raise UserError(f"the arguments of {shown(tool.name)} do not fit: {place} {fault.message[:200]}")
