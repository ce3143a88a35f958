"""Draft trees of a batch laid out as SGLang's verify wants them. Plain numpy, no SGLang."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sglang_toolspec.runtime.tree import DraftTree


@dataclass(frozen=True)
class PackedTrees:
    """Trees of one batch, padded to ``width`` nodes.

    ``tokens``, ``depths``, ``next_token`` (first child) and ``next_sibling`` are int64
    ``[batch, width]``, links ``-1`` where there is none; ``mask`` is bool
    ``[batch, width, width]``, true where the column is the row itself or its ancestor.
    A padding node sees only itself and hangs on nothing, so it is never accepted.
    """

    tokens: NDArray[np.int64]
    depths: NDArray[np.int64]
    next_token: NDArray[np.int64]
    next_sibling: NDArray[np.int64]
    mask: NDArray[np.bool_]

    @property
    def width(self) -> int:
        return self.tokens.shape[1]


def pack(trees: list[DraftTree], width: int) -> PackedTrees:
    """Raises ``ValueError`` when a tree has more than ``width`` nodes or a child before its parent."""
    batch = len(trees)
    tokens = np.zeros((batch, width), dtype=np.int64)
    depths = np.zeros((batch, width), dtype=np.int64)
    next_token = np.full((batch, width), -1, dtype=np.int64)
    next_sibling = np.full((batch, width), -1, dtype=np.int64)
    mask = np.zeros((batch, width, width), dtype=np.bool_)
    mask[:, np.arange(width), np.arange(width)] = True
    for b, tree in enumerate(trees):
        if len(tree) > width:
            raise ValueError(f"a tree of {len(tree)} nodes does not fit into {width}")
        tokens[b, : len(tree)] = tree.tokens
        last_child: dict[int, int] = {}
        for i, parent in enumerate(tree.parents[1:], start=1):
            if not 0 <= parent < i:
                raise ValueError(f"node {i} has parent {parent}, which does not come before it")
            mask[b, i] |= mask[b, parent]
            if parent in last_child:
                next_sibling[b, last_child[parent]] = i
            else:
                next_token[b, parent] = i
            last_child[parent] = i
        depths[b, : len(tree)] = tree.depths()
    return PackedTrees(tokens, depths, next_token, next_sibling, mask)
