"""Draft grammars: a tool set in one format, compiled by xgrammar without a vocabulary.

A draft asks for forced *text*, never for a token mask, so a grammar is compiled against a
two-token vocabulary. That costs milliseconds where a real vocabulary costs seconds, and the
result does not depend on the model. The grammar fixes every separator, so that what follows
from the schema is forced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import xgrammar

from sglang_toolspec.grammars.draft_schema import arguments_schema
from sglang_toolspec.grammars.ebnf import printed
from sglang_toolspec.grammars.formats import NAME_KEY, Format, pieces
from sglang_toolspec.grammars.layout import Preset
from sglang_toolspec.grammars.mask_schema import distinct
from sglang_toolspec.grammars.script import Key, Literal, Parameters, Value, script
from sglang_toolspec.grammars.tools import Tool, ToolSet

TEXT_ONLY = xgrammar.TokenizerInfo([b"a", b"</s>"], stop_token_ids=[1])
"""The vocabulary of whoever needs none."""

_ANY_OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": True}


def draft_grammar(tools: ToolSet, form: Format, preset: Preset, any_order: bool = False) -> xgrammar.Grammar:
    """A block of calls of ``form``, ``open call (between call)* close``, laid out as ``preset``.

    ``any_order`` frees the order of keys, and with it which of them must stand. A schema that
    xgrammar refuses reads as any object. ``tools`` must not be empty; xgrammar indents with
    spaces only.
    """
    call = _union(_call(tool, form, preset, any_order) for tool in tools.tools)
    parts = [_literal(form.open), _repeated(call, form.between), _literal(form.close)]
    return _concat(part for part in parts if part is not None)


def compiled(grammar: xgrammar.Grammar) -> xgrammar.CompiledGrammar:
    """``grammar`` without a vocabulary; immutable, shared."""
    compiler = xgrammar.GrammarCompiler(TEXT_ONLY, max_threads=1, cache_enabled=False)
    return compiler.compile_grammar(grammar)


def matcher(grammar: xgrammar.CompiledGrammar) -> xgrammar.GrammarMatcher:
    """A matcher at the start of ``grammar``; mutable, one per tracked call."""
    return xgrammar.GrammarMatcher(grammar, terminate_without_stop_token=True)


def forced_text(matcher: xgrammar.GrammarMatcher) -> str:
    """What the matcher's grammar forces next, in whole characters."""
    try:
        return str(matcher.find_jump_forward_string())
    except UnicodeDecodeError as error:
        # Choices that share the first bytes of a character force a part of it.
        return bytes(error.object[: error.start]).decode()


def _call(tool: Tool, form: Format, preset: Preset, any_order: bool) -> xgrammar.Grammar:
    arguments, defs = arguments_schema(tool.parameters)
    try:
        return _Call(tool.name, arguments, defs, form, preset, any_order).grammar()
    except RuntimeError:
        # xgrammar cannot express this schema: its name and keys' frame still draft.
        return _Call(tool.name, _ANY_OBJECT, {}, form, preset, any_order).grammar()


class _Call:
    """The grammar of calls to one tool."""

    def __init__(
        self,
        name: str,
        arguments: dict[str, Any],
        defs: dict[str, Any],
        form: Format,
        preset: Preset,
        any_order: bool,
    ):
        self._name = name
        self._arguments = arguments
        self._defs = defs
        self._form = form
        self._preset = preset
        self._any_order = any_order

    def grammar(self) -> xgrammar.Grammar:
        parts = (
            self._part(piece) if is_hole else _literal(piece) for piece, is_hole in pieces(self._form.call)
        )
        return _concat(part for part in parts if part is not None)

    def _part(self, hole: str) -> xgrammar.Grammar | None:
        if hole == "name":
            return _literal(self._name)
        if hole == "index":
            return xgrammar.Grammar.from_regex("[0-9]{1,3}")
        if hole == "arguments":
            return self._json(self._arguments)
        return self._parameters() if hole == "parameters" else self._object()

    def _object(self) -> xgrammar.Grammar:
        name_key, arguments_key = NAME_KEY, self._form.arguments_key
        if self._form.tight_name:
            head = f'{{"{name_key}":{_quoted(self._name)}, "{arguments_key}":'
            return _concat([_text(head), self._json(self._arguments), _text("}")])
        properties = {name_key: {"const": self._name}, arguments_key: self._arguments}
        return self._json({"type": "object", "properties": properties, "required": list(properties)})

    def _json(self, schema: Mapping[str, Any]) -> xgrammar.Grammar:
        return xgrammar.Grammar.from_json_schema(
            json.dumps(_told_apart({**schema, **self._defs})),
            any_whitespace=False,
            indent=None if self._preset.indent is None else len(self._preset.indent),
            separators=(self._preset.item, self._preset.colon),
            any_order=self._any_order,
        )

    def _parameters(self) -> xgrammar.Grammar | None:
        """Each declared parameter, in the form's markup.

        xgrammar's own XML styles leave the white space free, so that nothing would be forced.
        """
        step = next(s for s in script(self._form) if isinstance(s, Parameters))
        declared = self._arguments.get("properties") or {}
        written = [(name, self._parameter(step, name, schema)) for name, schema in declared.items()]
        if self._any_order:
            return _repeated(_union(g for _, g in written), "", at_least=0) if written else None
        required = self._arguments.get("required") or ()
        optional = [g if name in required else _union([g, _text("")]) for name, g in written]
        return _concat(optional) if optional else None

    def _parameter(self, step: Parameters, name: str, schema: Any) -> xgrammar.Grammar:
        parts = []
        for part in step.parameter:
            if isinstance(part, Literal):
                parts.append(_text(part.text))
            elif isinstance(part, Key):
                parts.append(_text(name))
            elif isinstance(part, Value):
                parts += [self._value(schema, part.end), _text(part.end)]
        return _concat(parts)

    def _value(self, schema: Any, end: str) -> xgrammar.Grammar:
        """A value as markup holds it: text without quotes, all else as JSON."""
        plain = schema if isinstance(schema, Mapping) else {}
        choices = [plain["const"]] if "const" in plain else plain.get("enum")
        if choices and all(isinstance(c, str) for c in choices):
            return _union(_text(choice) for choice in choices)
        types = plain.get("type")
        listed = types if isinstance(types, list) else [types]
        if choices or (types and "string" not in listed):
            return self._json(plain)
        excluded = json.dumps(end, ensure_ascii=False)
        return xgrammar.Grammar.from_ebnf(
            f"root ::= TagDispatch(loop_after_dispatch=false, excludes=({excluded}))"
        )


def _told_apart(schema: Any) -> Any:
    """``schema`` with equal parts only where they are equal, and without compound finite values,
    which xgrammar writes in a layout of its own."""
    if not isinstance(schema, Mapping):
        return schema
    kept = distinct(schema, _told_apart)
    values = [schema["const"]] if "const" in schema else schema.get("enum", [])
    if any(isinstance(value, list | dict) for value in values):
        kept = {k: v for k, v in kept.items() if k not in ("const", "enum", "x-values")}
    return kept


def _concat(parts: Iterable[xgrammar.Grammar]) -> xgrammar.Grammar:
    listed = list(parts)
    return xgrammar.Grammar.concat(*listed) if len(listed) > 1 else listed[0]


def _union(parts: Iterable[xgrammar.Grammar]) -> xgrammar.Grammar:
    listed = list(parts)
    return xgrammar.Grammar.union(*listed) if len(listed) > 1 else listed[0]


def _literal(text: str) -> xgrammar.Grammar | None:
    return _text(text) if text else None


def _text(text: str) -> xgrammar.Grammar:
    return xgrammar.Grammar.from_ebnf(f"root ::= {_quoted(text)}")


def _repeated(call: xgrammar.Grammar, separator: str, at_least: int = 1) -> xgrammar.Grammar:
    """``call (separator call)*``; a grammar prints as EBNF whose main rule is ``root``."""
    body = f"root ({_quoted(separator)} root)*" if at_least else "root*"
    ebnf = f"calls ::= {body}\n{printed(call)}"
    return xgrammar.Grammar.from_ebnf(ebnf, root_rule_name="calls")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
