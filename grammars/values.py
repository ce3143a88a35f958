"""What the ``pattern`` or ``format`` of a string forces inside its value."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import lru_cache

import xgrammar

from sglang_toolspec.grammars import patterns
from sglang_toolspec.grammars.cache import GrammarCache, Recipe
from sglang_toolspec.grammars.compile import forced_text, matcher
from sglang_toolspec.grammars.mask_schema import FORMATS

MAX_RAW = 128
"""Characters of a value, beyond which nothing is forced any more."""
_MAX_SECONDS = 0.005
"""Of this thread's time; a pattern that costs more once is not asked again."""


class ValueGrammars:
    """Forced text by text schema (``Arm.text``); for all threads, compiled in the background.

    Patterns that ``patterns.read`` finds too costly or beyond xgrammar force nothing.
    """

    def __init__(self, cache: GrammarCache):
        self._cache = cache
        self._slow: set[str] = set()

    def forced(self, text_schema: Mapping[str, str], raw: str) -> str:
        """What must follow ``raw``, the value so far as JSON without its opening quote.

        It ends with the closing quote where the value is over; ``""`` where nothing is forced
        or known yet, and where ``raw`` breaks the schema.
        """
        recipe = _recipe(text_schema.get("format"), text_schema.get("pattern"))
        if recipe is None or len(raw) > MAX_RAW or recipe.key in self._slow:
            return ""
        grammar = self._cache.get(recipe)
        if grammar is None:
            if not self._cache.failed(recipe):
                self._cache.prepare([recipe])
            return ""
        began = time.thread_time()
        walk = matcher(grammar)
        text = forced_text(walk) if walk.accept_string(f'"{raw}') and not walk.is_terminated() else ""
        if time.thread_time() - began > _MAX_SECONDS and len(self._slow) < 4096:
            self._slow.add(recipe.key)
        return text


@lru_cache(maxsize=4096)
def _recipe(form: str | None, pattern: str | None) -> Recipe | None:
    if form in FORMATS:
        schema = {"type": "string", "format": form}
    elif pattern is not None and (whole := patterns.read(pattern).whole):
        schema = {"type": "string", "pattern": whole}
    else:
        return None
    source = json.dumps(schema)
    return Recipe(f"text {source}", len(source), lambda: _string(source), f"the value schema {source}")


def _string(source: str) -> xgrammar.Grammar:
    return xgrammar.Grammar.from_json_schema(source, any_whitespace=False)
