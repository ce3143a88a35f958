"""Draft grammars: a tool set in one dialect, compiled by xgrammar without a vocabulary.

The drafter asks a matcher for forced *text*, never for a token mask, so it compiles
against a two-token vocabulary. That costs milliseconds where a real vocabulary costs
seconds, and the result does not depend on the model.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import xgrammar

from sglang_toolspec.grammars.draft_schema import arguments_schema
from sglang_toolspec.grammars.formats import Dialect
from sglang_toolspec.grammars.tools import Tool, ToolSet

_TEXT_ONLY = xgrammar.TokenizerInfo([b"a", b"</s>"], stop_token_ids=[1])
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
        call = xgrammar.Grammar.union(*calls) if len(calls) > 1 else calls[0]
        parts = [call]
        if self.dialect.separator is not None:
            # The first object ends the block or starts another; two are enough for a
            # draft, and the automaton begins a new block after each.
            more = xgrammar.Grammar.concat(_literal(self.dialect.separator), call)
            parts.append(xgrammar.Grammar.union(_literal(""), more))
        whole = [_literal(self.dialect.open), *parts, _literal(self.dialect.close)]
        compiler = xgrammar.GrammarCompiler(_TEXT_ONLY, max_threads=1, cache_enabled=False)
        return compiler.compile_grammar(xgrammar.Grammar.concat(*whole))


def matcher(grammar: xgrammar.CompiledGrammar) -> xgrammar.GrammarMatcher:
    """A matcher at the start of ``grammar``; mutable, one per tracked call."""
    return xgrammar.GrammarMatcher(grammar, terminate_without_stop_token=True)


def _literal(text: str) -> xgrammar.Grammar:
    return xgrammar.Grammar.from_ebnf(f"root ::= {json.dumps(text)}")


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
    once). Bounded by entries, oldest use first out.
    """

    def __init__(self, capacity: int = 256, on_failure: Callable[[str], None] = lambda reason: None):
        self._capacity = capacity
        self._on_failure = on_failure
        self._ready: OrderedDict[tuple[str, str], DraftGrammar | None] = OrderedDict()
        self._waiting: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

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
            missing = [d for d in dialects if (tools.key, d.name) not in self._ready]
            missing = [d for d in missing if (tools.key, d.name) not in self._waiting]
            self._waiting.update((tools.key, d.name) for d in missing)
        if missing and tools.tools:
            threading.Thread(
                target=self._compile_all, args=(tools, missing), name="toolspec-compile", daemon=True
            ).start()

    def compile_now(self, tools: ToolSet, dialects: tuple[Dialect, ...]) -> None:
        """As ``prepare``, but done on return. For tests, tools and warm-up."""
        self._compile_all(tools, [d for d in dialects if self.get(tools, d) is None])

    def _compile_all(self, tools: ToolSet, dialects: list[Dialect]) -> None:
        for dialect in dialects:
            grammar: DraftGrammar | None = DraftGrammar(tools, dialect)
            try:
                _ = grammar.ordered, grammar.any_order  # type: ignore[union-attr]
            except (RuntimeError, ValueError) as error:
                grammar = None
                self._on_failure(f"tool set {tools.key[:12]}, dialect {dialect.name}: {error}")
            with self._lock:
                self._ready[(tools.key, dialect.name)] = grammar
                self._waiting.discard((tools.key, dialect.name))
                while len(self._ready) > self._capacity:
                    self._ready.popitem(last=False)
