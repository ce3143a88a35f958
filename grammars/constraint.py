"""Constraints: the structural tag under which a reply can only hold calls that fit their schemas.

In the model's own format, so that several calls stay possible, and with bounded white space.
"""

from __future__ import annotations

import json
from typing import Any

from sglang_toolspec.errors import UserError
from sglang_toolspec.grammars.formats import FORMATS, NAME_KEY, Format, formats_for, pieces
from sglang_toolspec.grammars.mask_schema import mask_schema
from sglang_toolspec.grammars.tools import Tool, ToolSet, shown

MAX_WHITESPACE = 12
"""White space between two marks: enough for four levels of pretty printing, not for a loop."""

# SGLang's --tool-call-parser names whose format xgrammar describes, by xgrammar's name.
_XGRAMMAR_MODELS = {
    "llama3": "llama",
    "deepseekv31": "deepseek_v3_1",
    "deepseekv32": "deepseek_v3_2",
    "deepseekv4": "deepseek_v4",
    "deepseekv41": "deepseek_v4_1",
    "kimi_k2": "kimi",
    "qwen3_coder": "qwen_3_coder",
    "step3p5": "qwen_3_coder",
    "nanbeige": "qwen_3_coder",
    "gpt-oss": "harmony",
    "glm47": "glm_4_7",
}
_FROM_FORMAT = ("qwen25", "qwen", "hermes", "mistral", "deepseekv3")
_AS_ARRAY = (None, "glm", "glm45")
"""Parsers for which SGLang reads a required call from a JSON array, not from the model's format."""
_NAME_IN_JSON = ("llama",)
_ANY_ARGUMENTS: dict[str, Any] = {"type": "object"}


def constraint_tag(
    tools: ToolSet, parser: str | None, tool_choice: str, strict: bool
) -> dict[str, Any] | None:
    """The structural tag for ``tool_choice``: ``auto``, ``required``, or the name of one tool.

    ``strict`` holds the arguments to their schema (``enforce.unenforceable`` tells how well);
    without it they are any object. ``None`` where there is nothing to constrain: ``auto`` is
    free unless strict, and SGLang's other parsers have constraints of their own. Raises
    ``UserError`` where no tool can be called.
    """
    chosen = _chosen(tools, tool_choice)
    if tool_choice == "auto" and (not strict or not chosen):
        return None
    if model := _XGRAMMAR_MODELS.get(parser or ""):
        return _xgrammar_tag(model, chosen, tool_choice == "auto", strict)
    if parser in _FROM_FORMAT:
        return _format_tag(formats_for(parser)[0], chosen, tool_choice == "auto", strict)
    if parser in _AS_ARRAY and tool_choice != "auto":
        return _format_tag(FORMATS["array"], chosen, False, strict)
    return None


def constraint_source(tools: ToolSet, parser: str | None, tool_choice: str, strict: bool) -> str | None:
    """``constraint_tag`` as JSON text."""
    tag = constraint_tag(tools, parser, tool_choice, strict)
    return None if tag is None else json.dumps(tag)


def _chosen(tools: ToolSet, tool_choice: str) -> tuple[Tool, ...]:
    if tool_choice == "auto":
        return tools.tools
    if not tools.tools:
        raise UserError("tool_choice requires a call but /tools is empty; send tools, or use 'auto'")
    if tool_choice == "required":
        return tools.tools
    if tool_choice not in tools.by_name:
        raise UserError(f"tool_choice names {shown(tool_choice)}, which /tools lacks; name one of the tools")
    return (tools.by_name[tool_choice],)


def _arguments(tool: Tool, strict: bool) -> dict[str, Any]:
    if not strict:
        return _ANY_ARGUMENTS
    schema = mask_schema(dict(tool.parameters))
    # Tools that declare nothing are called with {}; without a type xgrammar allows any JSON.
    return schema if schema else {"type": "object", "properties": {}, "additionalProperties": False}


def _xgrammar_tag(model: str, tools: tuple[Tool, ...], auto: bool, strict: bool) -> dict[str, Any]:
    # Importing xgrammar imports torch.
    from xgrammar import get_model_structural_tag

    def name(tool: Tool) -> str:
        return _quoted(tool.name)[1:-1] if model in _NAME_IN_JSON else tool.name

    functions = [{"name": name(tool), "parameters": _arguments(tool, strict)} for tool in tools]
    tag = get_model_structural_tag(
        model,
        tools=[{"type": "function", "function": function} for function in functions],
        # A named tool is required among one: that may be called several times.
        tool_choice="auto" if auto else "required",
        reasoning="disabled",  # SGLang's reasoning parser constrains that part
        max_whitespace_cnt=MAX_WHITESPACE,
    )
    made: dict[str, Any] = json.loads(tag.model_dump_json())
    if model == "harmony" and not auto:
        made["format"]["at_least_one"] = True  # xgrammar 0.2.7 would accept an empty reply
    return made


def _format_tag(form: Format, tools: tuple[Tool, ...], auto: bool, strict: bool) -> dict[str, Any]:
    calls = [_call_tag(form, tool, strict) for tool in tools]
    if not form.close:
        trigger = pieces(form.call)[0][0].strip()
        return _tag(_triggered(trigger, calls, at_least_one=not auto))
    several = {
        "type": "tags_with_separator", "tags": calls, "separator": form.between, "at_least_one": True
    }  # fmt: skip
    block = {"type": "tag", "begin": form.open, "content": several, "end": form.close}
    return _tag(_triggered(form.open.strip(), [block], at_least_one=False) if auto else block)


def _triggered(trigger: str, tags: list[dict[str, Any]], at_least_one: bool) -> dict[str, Any]:
    return {"type": "triggered_tags", "triggers": [trigger], "tags": tags, "at_least_one": at_least_one}


def _tag(content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "structural_tag", "format": content}


def _call_tag(form: Format, tool: Tool, strict: bool) -> dict[str, Any]:
    """One call, cut where its arguments stand."""
    before, after, text = "", "", ""
    for piece, is_hole in pieces(form.call):
        if not is_hole:
            text += piece
        elif piece == "name":
            text += tool.name
        else:  # {object} or {arguments}
            opening, closing = "", ""
            if piece == "object":
                opening = f'{{"{NAME_KEY}": {_quoted(tool.name)}, "{form.arguments_key}": '
                closing = "}"
            before, after, text = text + opening, closing, ""
    content = {
        "type": "json_schema",
        "json_schema": _arguments(tool, strict),
        "max_whitespace_cnt": MAX_WHITESPACE,
    }
    return {"type": "tag", "begin": before, "content": content, "end": after + text}


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)
