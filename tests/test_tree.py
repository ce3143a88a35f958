"""Merging drafts into one tree, and laying trees out for verification."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sglang_toolspec.runtime.engine.cpu.kernels import reconstruct_indices_from_tree_mask
from sglang_toolspec.runtime.engine.pack import pack
from sglang_toolspec.runtime.tree import MIN_NODE_WEIGHT, DraftPath, DraftTree, merge
from tests.random_trees import links_of, mask_of, path_of


def tokens_to(tree: DraftTree, node: int) -> list[int]:
    """Tokens from the root's first child down to ``node``."""
    path: list[int] = []
    while node > 0:
        path.append(tree.tokens[node])
        node = tree.parents[node]
    return path[::-1]


def uniform(tokens: Iterable[int], weight: float, source: str) -> DraftPath:
    ids = tuple(tokens)
    return DraftPath(ids, (weight,) * len(ids), (source,) * len(ids))


VOCAB = 5
ROOT = 77


@st.composite
def draft_paths(draw: st.DrawFn) -> DraftPath:
    """Few tokens, so that prefixes are shared; some ids lie outside the vocabulary."""
    tokens = draw(st.lists(st.integers(-1, VOCAB), max_size=6))
    weights = draw(st.lists(st.floats(0, 1), min_size=len(tokens), max_size=len(tokens)))
    sources = draw(st.lists(st.sampled_from("ab"), min_size=len(tokens), max_size=len(tokens)))
    return DraftPath(tuple(tokens), tuple(sorted(weights, reverse=True)), tuple(sources))


offers = st.lists(draft_paths(), max_size=6)
budgets = st.integers(1, 12)


@given(offers, budgets)
def test_parents_come_first_and_the_budget_counts_the_root(paths: list[DraftPath], budget: int) -> None:
    tree = merge(ROOT, paths, budget, VOCAB)

    assert 1 <= len(tree) <= budget
    assert (tree.tokens[0], tree.parents[0]) == (ROOT, -1)
    assert all(0 <= parent < i for i, parent in enumerate(tree.parents) if i)
    assert len(tree.parents) == len(tree.weights) == len(tree.sources) == len(tree)
    assert tree.depths() == [len(path_of(tree.parents, i)) - 1 for i in range(len(tree))]


@given(offers, budgets)
def test_every_node_continues_an_offered_path_of_its_source(paths: list[DraftPath], budget: int) -> None:
    tree = merge(ROOT, paths, budget, VOCAB)

    for node in range(1, len(tree)):
        text = tuple(tokens_to(tree, node))
        assert all(0 <= token < VOCAB for token in text)
        offered = [p.sources[len(text) - 1] for p in paths if p.tokens[: len(text)] == text]
        assert tree.sources[node] in offered


@given(offers, budgets)
def test_siblings_differ(paths: list[DraftPath], budget: int) -> None:
    tree = merge(ROOT, paths, budget, VOCAB)

    edges = list(zip(tree.parents, tree.tokens, strict=True))
    assert len(set(edges)) == len(edges)


@given(offers, budgets)
def test_a_smaller_budget_keeps_the_most_likely_nodes(paths: list[DraftPath], budget: int) -> None:
    everything = merge(ROOT, paths, 1000, VOCAB)
    tree = merge(ROOT, paths, budget, VOCAB)

    assert everything.weights == sorted(everything.weights, reverse=True)
    assert min(everything.weights) >= MIN_NODE_WEIGHT
    assert tree.tokens == everything.tokens[:budget]
    assert tree.parents == everything.parents[:budget]


@given(offers, budgets)
def test_the_first_nodes_of_a_tree_are_the_tree_of_a_smaller_budget(
    paths: list[DraftPath], width: int
) -> None:
    everything = merge(ROOT, paths, 1000, VOCAB)

    assert everything.first(width) == merge(ROOT, paths, width, VOCAB)


@given(offers)
def test_children_are_no_likelier_than_their_parents(paths: list[DraftPath]) -> None:
    tree = merge(ROOT, paths, 1000, VOCAB)

    assert all(tree.weights[i] <= tree.weights[parent] for i, parent in enumerate(tree.parents) if i)


def test_a_cut_tree_shares_nothing_with_the_whole_one() -> None:
    whole = merge(ROOT, [uniform((1, 2, 3), 0.9, "a")], 10, VOCAB)

    whole.first(2).add(4, 1, 0.5, "b")

    assert whole.tokens == [ROOT, 1, 2, 3]


@given(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6), st.integers(0, 5))
def test_a_path_is_cut_at_its_first_id_out_of_the_vocabulary(tokens: list[int], at: int) -> None:
    bad = [*tokens[:at], VOCAB, *tokens[at:]]

    tree = merge(ROOT, [uniform(bad, 1.0, "a")], 100, VOCAB)

    assert tree.tokens == [ROOT, *tokens[:at]]


EXAMPLE = [
    DraftPath((1, 2, 3), (0.9, 0.8, 0.5), ("schema", "schema", "value")),
    DraftPath((1, 2, 4), (0.9, 0.8, 0.2), ("copy", "copy", "copy")),
    DraftPath((5,), (0.4,), ("copy",)),
]
"""
9 ─┬─ 1 ─── 2 ─┬─ 3        nodes in order of weight:  0  1  2  3  4  5
   └─ 5        └─ 4                           tokens:  9  1  2  3  5  4
"""


def test_the_drawn_example() -> None:
    tree = merge(9, EXAMPLE, 6, 10)

    assert tree.tokens == [9, 1, 2, 3, 5, 4]
    assert tree.parents == [-1, 0, 1, 2, 0, 2]
    assert tree.sources == ["", "schema", "schema", "value", "copy", "copy"]
    assert tokens_to(tree, 5) == [1, 2, 4]

    packed = pack([tree], 7)

    assert packed.tokens.tolist() == [[9, 1, 2, 3, 5, 4, 0]]
    assert packed.depths.tolist() == [[0, 1, 2, 3, 1, 3, 0]]
    assert packed.next_token.tolist() == [[1, 2, 3, -1, -1, -1, -1]]
    assert packed.next_sibling.tolist() == [[-1, 4, -1, 5, -1, -1, -1]]
    assert packed.mask[0].astype(int).tolist() == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 0, 0, 0, 1, 0, 0],
        [1, 1, 1, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 1],
    ]


def test_branches_of_one_source_share_what_they_are_parts_of() -> None:
    """Each has its own low weight from the start, though all begin alike: none of them is sure."""
    names = [
        DraftPath((1, token), (weight, weight), ("schema", "schema"))
        for token, weight in ((2, 0.5), (3, 0.3))
    ]
    surely = DraftPath((1,), (0.9,), ("copy",))

    tree = merge(9, [*names, surely], 9, 10)

    start, left, right = tree.weights[1:]
    assert start == pytest.approx(0.95)
    assert (left / start, right / start) == pytest.approx((0.5 / 0.8, 0.3 / 0.8))


def test_branches_that_leave_room_keep_their_chances() -> None:
    ways = [DraftPath((1, 2), (1.0, 0.5), ("copy", "copy")), DraftPath((1, 3), (1.0, 0.2), ("copy", "copy"))]

    assert merge(9, ways, 9, 10).weights == pytest.approx([1.0, 1.0, 0.5, 0.2])


@st.composite
def trees(draw: st.DrawFn) -> DraftTree:
    size = draw(st.integers(1, 9))
    parents = [-1] + [draw(st.integers(0, i - 1)) for i in range(1, size)]
    tokens = draw(st.lists(st.integers(0, VOCAB - 1), min_size=size, max_size=size))
    return DraftTree(tokens, parents, [1.0] * size, [""] * size)


@given(st.lists(trees(), min_size=1, max_size=4), st.integers(0, 3))
def test_packed_trees_equal_a_naive_reference_and_what_sglang_derives(
    forest: list[DraftTree], spare: int
) -> None:
    width, batch = max(map(len, forest)) + spare, len(forest)

    packed = pack(forest, width)

    assert packed.width == width
    for b, tree in enumerate(forest):
        padding = [0] * (width - len(tree))
        assert packed.tokens[b].tolist() == tree.tokens + padding
        assert packed.depths[b].tolist() == tree.depths() + padding
        child, sibling = links_of(tree.parents, width)
        assert packed.next_token[b].tolist() == child
        assert packed.next_sibling[b].tolist() == sibling
        assert packed.mask[b].tolist() == mask_of(tree.parents, width).tolist()
    positions = torch.zeros(batch * width, dtype=torch.int64)
    index, child, sibling = torch.zeros(3, batch, width, dtype=torch.int64)
    reconstruct_indices_from_tree_mask(
        torch.from_numpy(packed.mask), torch.zeros(batch), positions, index, child, sibling, batch, width
    )
    assert positions.tolist() == packed.depths.flatten().tolist()
    assert child.tolist() == packed.next_token.tolist()
    assert sibling.tolist() == packed.next_sibling.tolist()


def test_pack_refuses_a_tree_wider_than_the_step() -> None:
    with pytest.raises(ValueError, match="3 nodes does not fit into 2"):
        pack([DraftTree([1, 2, 3], [-1, 0, 1])], 2)


@pytest.mark.parametrize("parent", [1, 2, -1], ids=["itself", "a later node", "a second root"])
def test_pack_refuses_a_child_before_its_parent(parent: int) -> None:
    with pytest.raises(ValueError, match="node 1 has parent"):
        pack([DraftTree([1, 2, 3], [-1, parent, 0])], 3)


def test_a_drafter_whose_weights_grow_is_no_surer_than_sure() -> None:
    path = DraftPath((1, 2, 3), (0.2, 0.9, 5.0), ("a", "a", "a"))
    tree = merge(0, [path], budget=8, vocab_size=10)

    assert tree.tokens == [0, 1, 2, 3]
    assert all(0 < claim.chance <= 1 for claim in tree.claims)
    assert tree.weights == sorted(tree.weights, reverse=True)
