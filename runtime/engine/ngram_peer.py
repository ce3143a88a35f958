"""SGLang's NGRAM as a drafter for replays: its own C++ corpus, compiled on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sglang_toolspec.runtime.assembly import DraftRequest
from sglang_toolspec.runtime.drafters.recycling import Candidates
from sglang_toolspec.runtime.peers.prompt_lookup import SURE
from sglang_toolspec.runtime.peers.sessions import Make
from sglang_toolspec.runtime.tree import DraftPath

_SETTINGS = ("min_bfs_breadth", "max_bfs_breadth", "match_type", "max_trie_depth", "capacity")


class NgramDrafter:
    """One request, as ``NGRAMWorker`` treats it: each step looks its last tokens up, then inserts them."""

    name = "ngram"

    def __init__(self, corpus: Any, rid: str, prompt: Sequence[int], depth: int):
        self._corpus = corpus
        self._rid = rid
        self._depth = depth
        self._tail = list(prompt[-depth:])
        self._length = len(prompt)

    def commit(self, tokens: Sequence[int]) -> None:
        self._tail = [*self._tail, *tokens][-self._depth :]
        self._length += len(tokens)

    def close(self) -> None:
        self._corpus.erase_match_state([self._rid])

    def propose(self) -> list[DraftPath]:
        self._corpus.synchronize()
        tokens, mask = self._corpus.batch_get([self._rid], [self._tail], [self._length])
        self._corpus.batch_put([self._tail])
        return [self._path(way) for way in ways(tokens, mask.reshape(len(tokens), -1))]

    def _path(self, way: tuple[int, ...]) -> DraftPath:
        weights = tuple(SURE**i for i in range(1, len(way) + 1))
        return DraftPath(way, weights, (self.name,) * len(way))


def ways(tokens: np.ndarray, mask: np.ndarray) -> list[tuple[int, ...]]:
    """From the root's children to each node; ``mask[i, j]``: node ``j`` leads to node ``i``."""
    return [tuple(tokens[1:][mask[i, 1:] == 1].tolist()) for i in range(1, len(tokens))]


def ngram(width: int) -> Make:
    """``width`` draft tokens, all else as SGLang has it by default.

    Raises ``ImportError``, ``OSError`` or ``RuntimeError`` where the corpus cannot be built.
    """
    from sglang.srt.arg_groups.fields.spec import Spec
    from sglang.srt.speculative.cpp_ngram.ngram_corpus import NgramCorpus

    settings = {name: getattr(Spec(), f"speculative_ngram_{name}") for name in _SETTINGS}
    corpus = NgramCorpus(draft_token_num=width, **settings)
    asked = iter(range(1 << 62))

    def make(request: DraftRequest, _: Candidates) -> NgramDrafter:
        return NgramDrafter(corpus, str(next(asked)), request.prompt, settings["max_trie_depth"])

    return make
