"""Spots in values, and what guessers say of them, for tests."""

from __future__ import annotations

import time
from collections.abc import Iterable

from sglang_toolspec.grammars.guesses import Guesses
from sglang_toolspec.grammars.json_spot import Frame, Place, Spot, opened
from sglang_toolspec.grammars.schema import Schema

LONG = 1 << 20


def frame(key: str = "city", tool: str = "get_weather") -> Frame:
    return opened(None, (), array=False, tool=tool).with_key(key)


def spot(raw: str = "", key: str = "city", tool: str = "get_weather", **schema: str) -> Spot:
    """In a string of which ``raw`` is written; ``schema`` holds its keywords."""
    arms = Schema.root({"type": "string", **schema}).arms
    return Spot(Place.IN_STRING, frame(key, tool), arms, raw)


def texts(guesses: Guesses) -> list[str]:
    """Likeliest first."""
    return [guess.text for guess in sorted(guesses.guesses, key=lambda guess: -guess.chance)]


def knows_nothing(guesses: Guesses) -> bool:
    return not guesses.guesses and guesses.ends_here is None


def spent(work: Iterable[object]) -> float:
    """Seconds of this process for all of ``work``."""
    began = time.process_time()
    for _ in work:
        pass
    return time.process_time() - began
