"""What a replay compares: our drafters with more or fewer sources, and those of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sglang_toolspec.runtime.config import RECIPES, SOURCES, Config

if TYPE_CHECKING:
    from sglang_toolspec.runtime.peers.sessions import Make
    from sglang_toolspec.runtime.replay import Assemble
    from sglang_toolspec.runtime.session import Faults
    from sglang_toolspec.runtime.tokens import TokenCodec

PAPER = "paper as written"
NGRAM = "SGLang NGRAM"
ALL, PLAIN = "all", "plain"

Sessions = Callable[["TokenCodec", "str | None", "Faults", int], "Assemble"]
"""For a tokenizer, a tool-call parser, where faults are noted, and the most nodes of a tree."""


@dataclass(frozen=True)
class Variant:
    """One row of the table. ``width``: most nodes of a tree where none are asked for; ``None`` for the
    server's. ``whole``: all of a tree is verified, whatever that costs."""

    name: str
    sessions: Sessions
    width: int | None = None
    whole: bool = False


def variants(config: Config, ablate: bool) -> Iterator[Variant]:
    """All chosen sources, and each time all but one, where that is asked."""
    sources = used(config)
    if sources:
        yield Variant(ALL if config.recipe == RECIPES[0] else config.recipe, _ours(config))
    if ablate and len(sources) > 1:
        for left_out in sources:
            rest = frozenset(sources) - {left_out}
            yield Variant(f"without {left_out}", _ours(replace(config, sources=rest)))


def plain() -> Variant:
    return Variant(PLAIN, _ours(Config(sources=frozenset())))


def peers(unavailable: Callable[[str], None]) -> Iterator[Variant]:
    """Others' drafters; of one that cannot be had ``unavailable`` is told in a sentence."""
    from sglang_toolspec.runtime.drafters.paper import NODES
    from sglang_toolspec.runtime.peers.sessions import PEERS

    for name, peer in PEERS.items():
        yield Variant(name, _alone(peer), whole=True)
    if (ngram := _ngram(unavailable)) is not None:
        yield Variant(NGRAM, _alone(ngram), whole=True)
    yield Variant(PAPER, _ours(Config(recipe="paper")), NODES, whole=True)


def used(config: Config) -> list[str]:
    """Its sources, in their usual order."""
    return [source for source in SOURCES if source in config.used_sources]


def _ours(config: Config) -> Sessions:
    from sglang_toolspec.runtime.assembly import Assembler

    return lambda codec, parser, faults, _: Assembler(codec, parser, faults, config)


def _alone(peer: Callable[[int], Make]) -> Sessions:
    from sglang_toolspec.runtime.peers.sessions import PeerSessions

    return lambda codec, _, faults, width: PeerSessions(peer(width), codec.vocab_size, faults)


def _ngram(unavailable: Callable[[str], None]) -> Callable[[int], Make] | None:
    try:
        from sglang_toolspec.runtime.engine.ngram_peer import ngram

        ngram(2)
    except (ImportError, OSError, RuntimeError) as error:
        why = " ".join(str(error).split())[:200]
        unavailable(f"{NGRAM} is left out, its corpus cannot be built here: {why}")
        return None
    return ngram
