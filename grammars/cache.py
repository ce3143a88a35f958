"""Compiled grammars: made off the caller's thread, kept in memory and on disk."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import xgrammar

from sglang_toolspec.grammars.compile import TEXT_ONLY, draft_grammar
from sglang_toolspec.grammars.constraint import constraint_source
from sglang_toolspec.grammars.formats import Format
from sglang_toolspec.grammars.grammar_files import GrammarFiles, Vocabulary, estimated_bytes
from sglang_toolspec.grammars.layout import Preset
from sglang_toolspec.grammars.tools import ToolSet

logger = logging.getLogger(__name__)

_MAX_ENTRIES = 4096


@dataclass(frozen=True)
class Recipe:
    """What to compile. Recipes with the same ``key`` make the same grammar."""

    key: str
    size: int = field(compare=False)
    """Bytes of what is compiled: tools, a pattern."""
    grammar: Callable[[], xgrammar.Grammar] = field(compare=False, repr=False)
    subject: str = field(default="", compare=False)
    """Whose failures are reported once."""
    masks: bool = field(default=False, compare=False)
    """Whether token masks are wanted, not only forced text."""


def draft_recipe(tools: ToolSet, form: Format, preset: Preset, any_order: bool = False) -> Recipe:
    key = f"draft {tools.key} {form!r} {preset!r} {any_order}"
    subject = f"tool set {tools.key[:12]}"
    return Recipe(key, len(tools.wire), lambda: draft_grammar(tools, form, preset, any_order), subject)


def constraint_recipe(tools: ToolSet, parser: str | None, tool_choice: str, strict: bool) -> Recipe | None:
    """``None`` where there is nothing to constrain; raises as ``constraint_tag`` does."""
    source = constraint_source(tools, parser, tool_choice, strict)
    if source is None:
        return None
    key = f"constraint {tools.key} {parser} {tool_choice} {strict}"
    subject = f"tool set {tools.key[:12]}"
    return Recipe(key, len(source), lambda: xgrammar.Grammar.from_structural_tag(source), subject, masks=True)


@dataclass(frozen=True)
class Limits:
    bytes: int = 256 << 20
    """Of the grammars in memory."""
    seconds: float = 30.0
    """For one grammar. xgrammar cannot be interrupted: its thread is left to itself then."""
    abandoned: int = 2
    """Threads that may be left to themselves; while there are so many, nothing is compiled."""
    source_bytes: int = 2 << 20
    waiting: int = 1024
    file_bytes: int = 16 << 20
    folder_bytes: int = 512 << 20
    read_bytes_per_second: float = 30e6
    """At which xgrammar reads its serialized form. What compiles faster than that is not stored."""


@dataclass
class Counts:
    """What a cache has done so far."""

    compiled: int = 0
    loaded: int = 0
    stored: int = 0
    failed: int = 0
    abandoned: int = 0


class GrammarCache:
    """Grammars by recipe; for all threads.

    ``get`` never blocks: it is ``None`` until a background thread is done, and for good where
    compiling failed (``on_failure`` hears why, once for each subject). One thread compiles at a
    time, so that many new tool sets cannot crowd out decoding. ``folder`` survives a restart.
    """

    def __init__(
        self,
        vocabulary: Vocabulary | None = None,
        folder: Path | None = None,
        limits: Limits = Limits(),
        on_failure: Callable[[str], None] = lambda reason: None,
        threads: int = 1,
    ):
        self._vocabulary = vocabulary
        self._limits = limits
        self._on_failure = on_failure
        self._threads = threads
        self._files = GrammarFiles(folder, limits.file_bytes, limits.folder_bytes) if folder else None
        self._ready: OrderedDict[str, xgrammar.CompiledGrammar | None] = OrderedDict()
        self._bytes = 0
        self._queue: deque[Recipe] = deque()
        self._waiting: set[str] = set()
        self._storing = ""
        """What is written to disk now."""
        self._reported: OrderedDict[str, None] = OrderedDict()
        self._changed = threading.Condition()
        self._working = False
        self._stuck = 0
        self._compilers: dict[bool, xgrammar.GrammarCompiler] = {}
        self._text_only = Vocabulary.of(TEXT_ONLY)
        self.counts = Counts()

    @property
    def bytes(self) -> int:
        """Of the grammars in memory, as xgrammar estimates them."""
        return self._bytes

    def get(self, recipe: Recipe) -> xgrammar.CompiledGrammar | None:
        with self._changed:
            if recipe.key in self._ready:
                self._ready.move_to_end(recipe.key)
            return self._ready.get(recipe.key)

    def settled(self, recipes: Iterable[Recipe]) -> bool:
        """Whether nothing of these is still waiting."""
        with self._changed:
            return not any(recipe.key in self._waiting for recipe in recipes)

    def failed(self, recipe: Recipe) -> bool:
        with self._changed:
            return recipe.key in self._ready and self._ready[recipe.key] is None

    def prepare(self, recipes: Iterable[Recipe]) -> None:
        """Start making what is missing; returns at once."""
        with self._changed:
            for recipe in recipes:
                known = recipe.key in self._ready or recipe.key in self._waiting
                if not known and len(self._queue) < self._limits.waiting:
                    self._waiting.add(recipe.key)
                    self._queue.append(recipe)
            if self._queue and not self._working:
                self._working = True
                threading.Thread(target=self._work, name="toolspec-compile", daemon=True).start()

    def compile_now(self, recipes: Iterable[Recipe]) -> None:
        """As ``prepare``, but done on return. For tests, tools and warm-up."""
        listed = list(recipes)
        self.prepare(listed)
        with self._changed:
            unfinished = {recipe.key for recipe in listed}
            self._changed.wait_for(lambda: not unfinished & self._waiting and self._storing not in unfinished)

    def _work(self) -> None:
        while (recipe := self._next()) is not None:
            attempt = _Attempt()
            reason = self._make(recipe, attempt)
            grammar = None if reason else attempt.grammar
            first = self._settle(recipe, grammar)
            try:
                if grammar is not None:
                    self._store(recipe, grammar, attempt.seconds)
                elif first:
                    self._on_failure(f"{recipe.subject or recipe.key}: {reason}")
            except Exception:  # a full disk costs only the next start
                logger.exception("%s was compiled, but could not be stored or reported", recipe)

    def _next(self) -> Recipe | None:
        with self._changed:
            self._storing = ""
            self._changed.notify_all()
            if self._queue:
                return self._queue.popleft()
            self._working = False
            return None

    def _make(self, recipe: Recipe, attempt: _Attempt) -> str:
        """Makes the grammar of ``attempt``; returns why there is none, else ``""``."""
        limits = self._limits
        if recipe.size > limits.source_bytes:
            return f"{recipe.size} bytes of schemas are more than {limits.source_bytes}; shorten them"
        if self._stuck >= limits.abandoned:
            return f"{self._stuck} grammars are still being compiled after their time; simplify them"
        if attempt.done_within(limits.seconds, lambda: self._load_or_compile(recipe, attempt)):
            return attempt.reason
        self._compilers.pop(recipe.masks, None)  # the thread may hold its locks
        with self._changed:
            self._stuck += 1
            self.counts.abandoned += 1
        attempt.when_done(self._unstick)
        return f"compiling took longer than {limits.seconds:g} s; simplify the schemas"

    def _unstick(self) -> None:
        with self._changed:
            self._stuck -= 1

    def _load_or_compile(self, recipe: Recipe, attempt: _Attempt) -> None:
        vocabulary = self._vocabulary_for(recipe)
        if self._files is not None and (found := self._files.load(recipe.key, vocabulary)):
            attempt.grammar = found
            self.counts.loaded += 1
            return
        began = time.perf_counter()
        attempt.grammar = self._compiler(recipe.masks, vocabulary).compile_grammar(recipe.grammar())
        attempt.seconds = time.perf_counter() - began
        self.counts.compiled += 1

    def _store(self, recipe: Recipe, grammar: xgrammar.CompiledGrammar, seconds: float) -> None:
        """On disk, where that is cheaper than compiling again (``seconds``; 0 if it was loaded)."""
        if self._files is None or not seconds:
            return
        expected = estimated_bytes(grammar)
        if expected > min(self._limits.file_bytes, seconds * self._limits.read_bytes_per_second):
            return
        self.counts.stored += self._files.store(recipe.key, self._vocabulary_for(recipe), grammar)

    def _vocabulary_for(self, recipe: Recipe) -> Vocabulary:
        if not recipe.masks:
            return self._text_only
        if self._vocabulary is None:
            raise ValueError("masks need a vocabulary; give one to the cache")
        return self._vocabulary

    def _compiler(self, masks: bool, vocabulary: Vocabulary) -> xgrammar.GrammarCompiler:
        if masks not in self._compilers:
            # Its cache shares the masks of equal rules: four times faster for a large tool set.
            self._compilers[masks] = xgrammar.GrammarCompiler(
                vocabulary.info,
                max_threads=self._threads,
                cache_enabled=masks,
                cache_limit_bytes=self._limits.bytes // 4,
            )
        return self._compilers[masks]

    def _settle(self, recipe: Recipe, grammar: xgrammar.CompiledGrammar | None) -> bool:
        """Returns whether this is the first failure of the recipe's subject."""
        subject = recipe.subject or recipe.key
        with self._changed:
            self._ready[recipe.key] = grammar
            self._bytes += grammar.memory_size_bytes if grammar else 0
            self._waiting.discard(recipe.key)
            self._storing = recipe.key
            while len(self._ready) > 1 and (
                self._bytes > self._limits.bytes or len(self._ready) > _MAX_ENTRIES
            ):
                _, dropped = self._ready.popitem(last=False)
                self._bytes -= dropped.memory_size_bytes if dropped else 0
            self._changed.notify_all()
            if grammar is not None:
                return False
            self.counts.failed += 1
            first = subject not in self._reported
            self._reported[subject] = None
            while len(self._reported) > _MAX_ENTRIES:
                self._reported.popitem(last=False)
            return first


class _Attempt:
    """One compilation on a thread of its own, which may be left to itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = False
        self._then: Callable[[], None] | None = None
        self.grammar: xgrammar.CompiledGrammar | None = None
        self.seconds = 0.0
        """That compiling took."""
        self.reason = ""

    def done_within(self, seconds: float, make: Callable[[], None]) -> bool:
        thread = threading.Thread(target=self._run, args=[make], name="toolspec-grammar", daemon=True)
        thread.start()
        thread.join(seconds)
        return not thread.is_alive()

    def when_done(self, then: Callable[[], None]) -> None:
        with self._lock:
            if not self._done:
                self._then = then
                return
        then()

    def _run(self, make: Callable[[], None]) -> None:
        try:
            make()
        except Exception as error:  # whatever it is, nobody must wait for this for ever
            self.reason = str(error).strip() or repr(error)
        with self._lock:
            self._done = True
        if self._then is not None:
            self._then()
