"""One tool set from whatever describes tools in Python.

OpenAI's and MCP's tools, pydantic models and other typed classes, functions, plain JSON
Schemas, and this project's own ``Tool`` and ``ToolSet``, in any mixture. What a schema says
is not judged here: real catalogues hold ``"type": "dict"``, a ``required`` that is no list,
and worse, and a draft only loses the places that it cannot read.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.tools import Tool, ToolSet, checked_tool, openai_tool, shown

_GIVE = "give an OpenAI or MCP tool, a pydantic model, a function, or a JSON Schema with a 'title'"
_MCP_SCHEMA = ("inputSchema", "input_schema")
_OBJECT_TYPES = ("object", "dict")
_DEFS = ("$defs", "definitions")
_UNREADABLE = (PydanticUserError, NameError, AttributeError, TypeError, ValueError, SyntaxError)
"""What pydantic, or evaluating a type hint, raises on a signature that it cannot describe."""
_UNNAMED = {
    inspect.Parameter.POSITIONAL_ONLY: "the positional-only '{}'",
    inspect.Parameter.VAR_POSITIONAL: "*{}",
    inspect.Parameter.VAR_KEYWORD: "**{}",
}
"""Parameters that no call by name can fill, as a message writes them."""


def tool_set(tools: Any, where: str = "tools") -> ToolSet:
    """The tool set of ``tools``: one description of a tool, or an iterable of several.

    Raises ``UserError`` with the JSON pointer of the first fault, which starts at ``where``,
    and the tool's name where that is known. The result shares nothing with ``tools``.
    """
    return tools if isinstance(tools, ToolSet) else described_tools(tools, where)[0]


def described_tools(tools: Any, where: str = "tools") -> tuple[ToolSet, dict[str, Any]]:
    """As ``tool_set``, and by name what each tool was described by."""
    by_name: dict[str, Any] = {}

    def read() -> Iterator[tuple[str, Tool]]:
        for at, item in _placed(tools, where):
            for place, tool in _read(item, at):
                by_name[tool.name] = item
                yield place, tool

    return ToolSet.from_checked(read(), where), by_name


def _placed(tools: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Descriptions, each with its JSON pointer."""
    if isinstance(tools, str | bytes):
        raise UserError(f"/{where} is text; parse it into a list of tools first")
    if isinstance(tools, ToolSet) or not isinstance(tools, Iterable) or _is_one(tools):
        yield f"/{where}", tools
    else:
        yield from ((f"/{where}/{i}", item) for i, item in enumerate(tools))


def _is_one(tools: Any) -> bool:
    """Whether an iterable is a single item all the same, as pydantic's instances are."""
    return isinstance(tools, Mapping | type) or callable(tools) or hasattr(tools, "model_dump")


def _read(item: Any, at: str) -> Iterator[tuple[str, Tool]]:
    if isinstance(item, ToolSet):
        yield from ((at, tool) for tool in item.tools)
    else:
        yield at, _tool(item, at)


def _tool(item: Any, at: str) -> Tool:
    if isinstance(item, Tool):
        return _checked(item.name, item.parameters, item.description, at, "parameters")
    if isinstance(item, Mapping):
        return _from_mapping(item, at)
    if isinstance(item, type):
        return _from_class(item, at)
    if (fields := tool_fields(item)) is not None:
        return _from_mapping(fields, at)
    if callable(item):
        return _from_callable(item, at)
    raise UserError(f"{at} is of type {type(item).__name__}; {_GIVE}")


def tool_fields(item: Any) -> Mapping[str, Any] | None:
    """An object with a tool's attributes, such as ``mcp.types.Tool``, as a mapping."""
    for key in (*_MCP_SCHEMA, "parameters"):
        if hasattr(item, "name") and hasattr(item, key):
            fields = {"name": item.name, "description": getattr(item, "description", None)}
            return {**fields, key: getattr(item, key)}
    dump = getattr(item, "model_dump", None)
    if isinstance(item, type) or not callable(dump):
        return None
    dumped = dump(by_alias=True)
    return dumped if isinstance(dumped, Mapping) and "function" in dumped else None


def _from_mapping(item: Mapping[str, Any], at: str) -> Tool:
    if "function" in item:
        return openai_tool(item, at)
    if "name" in item:
        return _from_named(item, at)
    schema = _root_resolved(item)
    if not any(key in schema for key in ("properties", "$schema", *_DEFS)) and not _is_object(schema):
        raise UserError(f"{at} has none of 'function', 'name' and 'properties'; {_GIVE}")
    if "title" not in schema:
        raise UserError(f"{at} is a JSON Schema without a 'title'; add one, it names the tool")
    return _from_schema(schema["title"], schema, at, name_at=f"{at}/title")


def _from_named(item: Mapping[str, Any], at: str) -> Tool:
    """From ``{"name", …}`` with the schema below MCP's key, below OpenAI's, or beside the name."""
    for key in _MCP_SCHEMA:
        if key in item:
            return _checked(item["name"], item[key], item.get("description"), at, key)
    if "parameters" in item or "properties" not in item:
        return openai_tool(item, at)
    schema = {key: value for key, value in item.items() if key != "name"}
    return _from_schema(item["name"], schema, at, name_at=f"{at}/name")


def _from_schema(name: Any, schema: Mapping[str, Any], at: str, name_at: str) -> Tool:
    if "type" in schema and not _is_object(schema):
        raise UserError(
            f"{at} (tool {shown(str(name))}) describes {shown(str(schema['type']))}; "
            "make it an object, whose properties are the tool's parameters"
        )
    return checked_tool(name, schema, schema.get("description"), name_at=name_at, schema_at=at)


def _from_class(cls: type, at: str) -> Tool:
    """From a pydantic model, a dataclass, or whatever else pydantic describes as an object."""
    schema = _root_resolved(_json_schema(cls, cls.__name__, at))
    return _from_schema(schema.get("title", cls.__name__), schema, at, name_at=at)


def _from_callable(function: Callable[..., Any], at: str) -> Tool:
    """From a signature; a parameter without a type hint takes any JSON."""
    inner = inspect.unwrap(function)
    if not (inspect.isroutine(inner) or isinstance(inner, functools.partial)):
        inner = inner.__call__  # an object with that method
    name = _callable_name(function)
    if name == "<lambda>":
        raise UserError(f"{at} is a lambda, which has no name; write it with def")
    implicit = _implicit_parameter(inner, name, at)
    schema = _json_schema(inner, name, at)
    properties = schema.get("properties", {})
    if implicit is not None:
        properties.pop(implicit, None)
        schema["required"] = [r for r in schema.get("required", []) if r != implicit]
    doc = _docstring(function, inner)
    for parameter, text in _parameter_texts(doc).items():
        if parameter in properties:
            properties[parameter].setdefault("description", text)
    description = " ".join(doc.split("\n\n")[0].split())
    return checked_tool(name, schema, description, name_at=at, schema_at=at)


def _implicit_parameter(function: Callable[..., Any], name: str, at: str) -> str | None:
    """The ``self`` of a method that is not bound. Refuses parameters that have no name to call by."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise UserError(f"{at} (tool {shown(name)}) has no readable signature; wrap it with def") from error
    for parameter in parameters:
        if parameter.kind in _UNNAMED:
            written = _UNNAMED[parameter.kind].format(parameter.name)
            raise UserError(
                f"{at} (tool {shown(name)}) takes {written}, which a call by name cannot fill; "
                "write each parameter out"
            )
    first = parameters[0] if parameters else None
    if first is None or first.name not in ("self", "cls") or first.annotation is not first.empty:
        return None
    return first.name


def _callable_name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _docstring(function: Any, inner: Any) -> str:
    """Of the function itself; an object's own is its ``__call__``'s, else its class's."""
    while isinstance(function, functools.partial):
        function = inner = function.func
    return inspect.getdoc(inner) or inspect.getdoc(function) or ""


def _parameter_texts(doc: str) -> dict[str, str]:
    """Descriptions of parameters in a docstring of Google's, NumPy's or Sphinx' style."""
    try:
        # Comes with SGLang, by way of anthropic; only descriptions need it.
        import docstring_parser
    except ImportError:
        return {}
    try:
        parsed = docstring_parser.parse(doc)
    except docstring_parser.ParseError:
        return {}
    return {p.arg_name: " ".join(p.description.split()) for p in parsed.params if p.description}


class _Quiet(GenerateJsonSchema):
    """Leaves out defaults that are not JSON without a warning: a call needs no default."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        pass


def _json_schema(described: Any, name: str, at: str) -> dict[str, Any]:
    try:
        return TypeAdapter(described).json_schema(schema_generator=_Quiet)
    except _UNREADABLE as error:
        reason = str(error).split("\n", 1)[0].rstrip(".")
        raise UserError(
            f"{at} (tool {shown(name)}) has no JSON Schema: {reason}; change its type hints"
        ) from error


def _root_resolved(schema: Mapping[str, Any]) -> dict[str, Any]:
    """``schema`` with a reference at its root followed: so pydantic writes recursive models."""
    target = schema.get("$ref")
    for key in _DEFS:
        defs, prefix = schema.get(key), f"#/{key}/"
        if isinstance(target, str) and target.startswith(prefix) and isinstance(defs, Mapping):
            found = defs.get(target.removeprefix(prefix))
            if isinstance(found, Mapping):
                return {**found, **{k: v for k, v in schema.items() if k != "$ref"}}
    return dict(schema)


def _is_object(schema: Mapping[str, Any]) -> bool:
    types = schema.get("type")
    listed = types if isinstance(types, list | tuple) else [types]
    return any(str(t).lower() in _OBJECT_TYPES for t in listed)


def _checked(name: Any, schema: Any, description: Any, at: str, key: str) -> Tool:
    return checked_tool(name, schema, description, name_at=f"{at}/name", schema_at=f"{at}/{key}")
