"""Draft grammars: a tool set in one dialect, compiled by xgrammar without a vocabulary.

The drafter asks a matcher for forced *text*, never for a token mask, so it compiles
against a two-token vocabulary. That costs milliseconds where a real vocabulary costs
seconds, and the result does not depend on the model.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import xgrammar

from sglang_toolspec.grammars.draft_schema import arguments_schema
from sglang_toolspec.grammars.formats import Dialect
from sglang_toolspec.grammars.tools import Tool, ToolSet

_TEXT_ONLY = xgrammar.TokenizerInfo([b"a", b"</s>"], stop_token_ids=[1])
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|.)")
_ANY_OBJECT: dict[str, object] = {"type": "object", "additionalProperties": True}


@dataclass(frozen=True)
class DraftGrammar:
    """A tool set in one dialect; immutable and shared by all requests."""

    tools: ToolSet
    dialect: Dialect

    @cached_property
    def ordered(self) -> xgrammar.CompiledGrammar:
        """Keys in declared order: the next key is forced text."""
        return self._compile(any_order=False)

    @cached_property
    def any_order(self) -> xgrammar.CompiledGrammar:
        """Keys in any order, for replies that leave the declared one."""
        return self._compile(any_order=True)

    def _compile(self, any_order: bool) -> xgrammar.CompiledGrammar:
        calls = [_call_grammar(tool, self.dialect, any_order) for tool in self.tools.tools]
        body = xgrammar.Grammar.union(*calls) if len(calls) > 1 else calls[0]
        if self.dialect.separator is not None:
            body = _repeated(body, self.dialect.separator)
        whole = xgrammar.Grammar.concat(_literal(self.dialect.open), body, _literal(self.dialect.close))
        compiler = xgrammar.GrammarCompiler(_TEXT_ONLY, max_threads=1, cache_enabled=False)
        return compiler.compile_grammar(whole)


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


def _literal(text: str) -> xgrammar.Grammar:
    return xgrammar.Grammar.from_ebnf(f"root ::= {json.dumps(text, ensure_ascii=False)}")


def _repeated(call: xgrammar.Grammar, separator: str) -> xgrammar.Grammar:
    """``call (separator call)*``; a grammar prints as EBNF whose main rule is ``root``."""
    ebnf = f"calls ::= root ({json.dumps(separator)} root)*\n{_ESCAPE.sub(_fixed_width, str(call))}"
    return xgrammar.Grammar.from_ebnf(ebnf, root_rule_name="calls")


def _fixed_width(escape: re.Match[str]) -> str:
    """xgrammar prints ``\\xdf`` before any character, and reads ``\\xdfe`` as one character."""
    return f"\\u00{escape[1]}" if escape[1] else escape[0]


def _call_grammar(tool: Tool, dialect: Dialect, any_order: bool) -> xgrammar.Grammar:
    arguments, defs = arguments_schema(tool.parameters)
    try:
        return _call(tool.name, arguments, defs, dialect, any_order)
    except RuntimeError:
        # xgrammar cannot express this schema: its name and keys' frame still draft.
        return _call(tool.name, _ANY_OBJECT, {}, dialect, any_order)


def _call(
    name: str, arguments: dict[str, object], defs: dict[str, object], dialect: Dialect, any_order: bool
) -> xgrammar.Grammar:
    def json_grammar(schema: dict[str, object]) -> xgrammar.Grammar:
        return xgrammar.Grammar.from_json_schema(
            json.dumps({**schema, **defs}),
            any_whitespace=False,
            indent=dialect.indent,
            separators=(dialect.item_separator, dialect.key_separator),
            any_order=any_order,
        )

    if dialect.head is not None:
        head = dialect.head.format(name=json.dumps(name, ensure_ascii=False))
        return xgrammar.Grammar.concat(_literal(head), json_grammar(arguments), _literal("}"))
    properties = {dialect.name_key: {"const": name}, dialect.arguments_key: arguments}
    return json_grammar({"type": "object", "properties": properties, "required": list(properties)})


class GrammarCache:
    """Draft grammars by tool set and dialect, compiled off the decode path.

    ``get`` never blocks on a compile: it returns ``None`` until a background thread is
    done, and for good when the tool set cannot be compiled (``on_failure`` hears why,
    once). One thread compiles, so that many new tool sets cannot crowd out decoding.
    Bounded by entries (one per tool set and dialect), oldest use first out.
    """

    def __init__(self, capacity: int = 2048, on_failure: Callable[[str], None] = lambda reason: None):
        self._capacity = capacity
        self._on_failure = on_failure
        self._ready: OrderedDict[tuple[str, str], DraftGrammar | None] = OrderedDict()
        self._waiting: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._compiler = ThreadPoolExecutor(max_workers=1, thread_name_prefix="toolspec-compile")

    def get(self, tools: ToolSet, dialect: Dialect) -> DraftGrammar | None:
        key = (tools.key, dialect.name)
        with self._lock:
            if key in self._ready:
                self._ready.move_to_end(key)
                return self._ready[key]
        return None

    def settled(self, tools: ToolSet, dialects: tuple[Dialect, ...]) -> bool:
        """Whether nothing of these is still being compiled."""
        with self._lock:
            return not any((tools.key, d.name) in self._waiting for d in dialects)

    def prepare(self, tools: ToolSet, dialects: tuple[Dialect, ...]) -> None:
        """Start compiling what is missing; returns at once."""
        with self._lock:
            missing = [d for d in self._missing(tools, dialects) if (tools.key, d.name) not in self._waiting]
            self._waiting.update((tools.key, d.name) for d in missing)
        if missing:
            self._compiler.submit(self._compile_all, tools, missing)

    def compile_now(self, tools: ToolSet, dialects: tuple[Dialect, ...]) -> None:
        """As ``prepare``, but done on return. For tests, tools and warm-up."""
        with self._lock:
            missing = self._missing(tools, dialects)
        self._compile_all(tools, missing)

    def _missing(self, tools: ToolSet, dialects: tuple[Dialect, ...]) -> list[Dialect]:
        """Dialects never compiled for ``tools``; none where there is nothing to call."""
        return [d for d in dialects if tools.tools and (tools.key, d.name) not in self._ready]

    def _compile_all(self, tools: ToolSet, dialects: list[Dialect]) -> None:
        failures: dict[str, Exception] = {}
        for dialect in dialects:
            grammar: DraftGrammar | None = DraftGrammar(tools, dialect)
            try:
                _ = grammar.ordered, grammar.any_order  # type: ignore[union-attr]
            except Exception as error:  # whatever it is, drafters must not wait for this for ever
                grammar = None
                failures[dialect.name] = error
            self._settle((tools.key, dialect.name), grammar)
        if failures:
            first = next(iter(failures.values()))
            self._on_failure(f"tool set {tools.key[:12]}, dialects {', '.join(failures)}: {first}")

    def _settle(self, key: tuple[str, str], grammar: DraftGrammar | None) -> None:
        with self._lock:
            self._ready[key] = grammar
            self._waiting.discard(key)
            while len(self._ready) > self._capacity:
                self._ready.popitem(last=False)
