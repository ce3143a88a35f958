"""Every CPU operation against a plain Python loop written from its contract."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from sglang_toolspec.runtime.engine.cpu import kernels
from tests.random_trees import children_of, links_of, mask_of, path_of, random_parents

POOL_ROWS, POOL_LEN = 12, 40
BATCHES = pytest.mark.parametrize("batch", [1, 8])
SEEDS = pytest.mark.parametrize("seed", range(5))


def random_runs(rng: random.Random, batch: int) -> tuple[list[int], list[int], list[int]]:
    """Distinct pool rows (out of more than the batch) and a range ``[start, end)`` in each."""
    rows = rng.sample(range(POOL_ROWS), batch)
    starts = [rng.randrange(POOL_LEN) for _ in rows]
    return rows, starts, [rng.randint(start, POOL_LEN) for start in starts]


def with_padding(values: list[int]) -> Tensor:
    """SGLang passes offsets of a padded batch: entries past the batch must not be read."""
    return torch.tensor([*values, 0, 3])


@BATCHES
@SEEDS
def test_assign_req_to_token_pool_writes_each_run_and_nothing_else(batch: int, seed: int) -> None:
    rng = random.Random(seed)
    rows, starts, ends = random_runs(rng, batch)
    slots = torch.randint(1000, (sum(ends) - sum(starts),))
    pool = torch.full((POOL_ROWS, POOL_LEN), -7, dtype=torch.int32)
    expected, unused = pool.tolist(), iter(slots.tolist())
    for row, start, end in zip(rows, starts, ends, strict=True):
        for column in range(start, end):
            expected[row][column] = next(unused)

    kernels.assign_req_to_token_pool_cpu(
        torch.tensor(rows), pool, with_padding(starts), with_padding(ends), slots, POOL_LEN
    )

    assert pool.tolist() == expected


@BATCHES
@SEEDS
def test_assign_extend_cache_locs_reads_each_run_in_order(batch: int, seed: int) -> None:
    rng = random.Random(seed)
    rows, starts, ends = random_runs(rng, batch)
    pool = torch.randint(1000, (POOL_ROWS, POOL_LEN), dtype=torch.int32)
    total = sum(ends) - sum(starts)
    out = torch.full((total + 5,), -7)
    expected = [pool[r, c].item() for r, s, e in zip(rows, starts, ends, strict=True) for c in range(s, e)]

    kernels.assign_extend_cache_locs_cpu(
        torch.tensor(rows), pool, with_padding(starts), with_padding(ends), out, POOL_LEN
    )

    assert out.tolist() == expected + [-7] * 5


@BATCHES
@SEEDS
def test_assign_draft_cache_locs_reads_the_slots_after_each_sequence(batch: int, seed: int) -> None:
    rng = random.Random(seed)
    topk, steps = 3, 2
    rows = rng.sample(range(POOL_ROWS), batch)
    seq_lens = [rng.randrange(POOL_LEN - topk * steps) for _ in rows]
    pool = torch.randint(1000, (POOL_ROWS, POOL_LEN), dtype=torch.int32)
    out = torch.full((batch * topk * steps + 5,), -7)
    expected = []
    for row, length in zip(rows, seq_lens, strict=True):
        for offset in range(topk * steps):
            expected.append(pool[row, length + offset].item())

    kernels.assign_draft_cache_locs_contiguous_cpu(
        torch.tensor(rows), pool, torch.tensor(seq_lens), out, POOL_LEN, topk, steps
    )

    assert out.tolist() == expected + [-7] * 5


@BATCHES
@SEEDS
def test_fill_accept_out_cache_loc_packs_accepted_slots_and_skips_minus_one(batch: int, seed: int) -> None:
    rng = random.Random(seed)
    nodes = 6
    index = [rng.choice([-1, rng.randrange(batch * nodes)]) for _ in range(batch * nodes)]
    slots = torch.randint(1000, (batch * nodes,))
    out = torch.full((batch * nodes,), -7)
    expected = [slots[i].item() for i in index if i != -1]

    accept_index = torch.tensor(index, dtype=torch.int32).view(batch, nodes)
    kernels.fill_accept_out_cache_loc_cpu(accept_index, slots, out)

    assert out.tolist() == expected + [-7] * (batch * nodes - len(expected))


@BATCHES
@SEEDS
def test_fill_bonus_tokens_takes_the_last_accepted_token(batch: int, seed: int) -> None:
    rng = random.Random(seed)
    stride = 5
    tokens = torch.randint(1000, (batch, stride), dtype=torch.int32)
    lens = [rng.randint(1, stride) for _ in range(batch)]
    bonus = torch.full((batch + 2,), -7)
    expected = [tokens[b][lens[b] - 1].item() for b in range(batch)]

    kernels.fill_bonus_tokens_cpu(tokens.flatten(), torch.tensor(lens, dtype=torch.int32), bonus, stride)

    assert bonus.tolist() == [*expected, -7, -7]


@BATCHES
@SEEDS
@pytest.mark.parametrize("selects", [False, True], ids=["last", "select_index"])
def test_rotate_input_ids_shifts_left_and_places_the_new_token(batch: int, seed: int, selects: bool) -> None:
    rng = random.Random(seed)
    lengths = [rng.randrange(5) for _ in range(batch)]  # an empty request has nothing to rotate
    starts = [sum(lengths[:b]) for b in range(batch)]
    ids = torch.randint(1000, (sum(lengths) + 3,))
    new = torch.randint(1000, (batch, 1))
    select = [start + rng.randrange(max(n, 1)) for start, n in zip(starts, lengths, strict=True)]
    expected = ids.tolist()
    for b in range(batch):
        if lengths[b]:
            old = expected[starts[b] : starts[b] + lengths[b]]
            expected[starts[b] : starts[b] + lengths[b]] = [*old[1:], old[-1]]
            expected[select[b] if selects else starts[b] + lengths[b] - 1] = new[b].item()

    kernels.rotate_input_ids_cpu(
        ids, torch.tensor(starts), torch.tensor(lengths), new, torch.tensor(select) if selects else None
    )

    assert ids.tolist() == expected


def random_forest(rng: random.Random, batch: int, width: int) -> list[list[int]]:
    """Trees of 1 to ``width`` nodes; the rest of each row is padding."""
    return [random_parents(rng, rng.randint(1, width)) for _ in range(batch)]


def greedy_path(parents: list[int], tokens: list[int], wanted: list[int], max_nodes: int) -> list[int]:
    """Nodes accepted from the root on, while some child holds the token wanted after its parent."""
    path = [0]
    while len(path) < max_nodes:
        matching = [c for c in children_of(parents, path[-1]) if tokens[c] == wanted[path[-1]]]
        if not matching:
            break
        path.append(matching[0])
    return path


@BATCHES
@pytest.mark.parametrize("max_nodes", [1, 3, 9], ids="accept_index_of_{}".format)
@pytest.mark.parametrize("seed", range(20))
def test_verify_tree_greedy_walks_as_the_target_chooses(batch: int, max_nodes: int, seed: int) -> None:
    rng, width, vocab = random.Random(seed), 9, 3
    forest = random_forest(rng, batch, width)
    tokens = [[rng.randrange(vocab) if i < len(tree) else 0 for i in range(width)] for tree in forest]
    wanted = [[rng.randrange(vocab) for _ in range(width)] for _ in forest]
    predicts = torch.full((batch * width,), -7, dtype=torch.int32)
    accept_index = torch.full((batch, max_nodes), -1, dtype=torch.int32)
    accepted_drafts = torch.full((batch,), -7, dtype=torch.int32)
    links = [links_of(tree, width) for tree in forest]

    kernels.verify_tree_greedy_cpu(
        predicts,
        accept_index,
        accepted_drafts,
        torch.tensor(tokens),
        torch.arange(batch * width).view(batch, width),
        torch.tensor([child for child, _ in links]),
        torch.tensor([sibling for _, sibling in links]),
        torch.tensor(wanted),
    )

    expected_predicts = [-7] * (batch * width)
    for b, tree in enumerate(forest):
        path = greedy_path(tree, tokens[b], wanted[b], max_nodes)
        flat = [b * width + node for node in path]
        assert accept_index[b].tolist() == flat + [-1] * (max_nodes - len(path))
        assert accepted_drafts[b] == len(path) - 1
        for node, position in zip(path, flat, strict=True):
            expected_predicts[position] = wanted[b][node]
    assert predicts.tolist() == expected_predicts


def test_verify_tree_greedy_never_accepts_a_padding_node() -> None:
    """Padding holds token 0 and the target wants token 0: still only the root is accepted."""
    width = 4
    accept_index = torch.full((1, width), -1)
    accepted_drafts = torch.zeros(1, dtype=torch.int32)
    zeros, none = torch.zeros(1, width, dtype=torch.int64), torch.full((1, width), -1)
    root = torch.arange(width).view(1, width)

    kernels.verify_tree_greedy_cpu(
        torch.zeros(width, dtype=torch.int32), accept_index, accepted_drafts, zeros, root, none, none, zeros
    )

    assert accept_index.tolist() == [[0, -1, -1, -1]]
    assert accepted_drafts.tolist() == [0]


class TreeOutputs:
    """The four tensors that both tree builders fill, one padding row below each."""

    def __init__(self, batch: int, nodes: int):
        self.positions = torch.full(((batch + 1) * nodes,), -7)
        self.index, self.child, self.sibling = (torch.full((batch + 1, nodes), -7) for _ in range(3))

    def check(self, forest: list[list[int]], seq_lens: list[int], nodes: int) -> None:
        batch = len(forest)
        links = [links_of(tree, nodes) for tree in forest]
        depths = [
            [len(path_of(tree, i)) - 1 if i < len(tree) else 0 for i in range(nodes)] for tree in forest
        ]
        padding = [-7] * nodes
        positions = [length + d for length, row in zip(seq_lens, depths, strict=True) for d in row]
        assert self.positions.tolist() == positions + padding
        flat = [list(range(b * nodes, (b + 1) * nodes)) for b in range(batch)]
        assert self.index.tolist() == [*flat, padding]
        assert self.child.tolist() == [*(child for child, _ in links), padding]
        assert self.sibling.tolist() == [*(sibling for _, sibling in links), padding]


@BATCHES
@pytest.mark.parametrize("seed", range(20))
def test_reconstruct_indices_gives_positions_and_links_of_any_tree(batch: int, seed: int) -> None:
    rng, nodes = random.Random(seed), 9
    forest = random_forest(rng, batch, nodes)
    seq_lens = [rng.randrange(100) for _ in forest]
    mask = torch.stack([mask_of(tree, nodes) for tree in forest])
    out = TreeOutputs(batch, nodes)

    kernels.reconstruct_indices_from_tree_mask(
        mask.flatten(), torch.tensor([*seq_lens, 999]), out.positions, out.index, out.child, out.sibling,
        batch, nodes,
    )  # fmt: skip

    out.check(forest, seq_lens, nodes)


def test_reconstruct_indices_of_an_empty_batch_writes_nothing() -> None:
    out = TreeOutputs(0, 3)
    no_mask = torch.zeros(0, dtype=torch.bool)

    kernels.reconstruct_indices_from_tree_mask(
        no_mask, torch.zeros(0), out.positions, out.index, out.child, out.sibling, 0, 3
    )

    out.check([], [], 3)


def random_eagle_choice(
    rng: random.Random, topk: int, depth: int, nodes: int
) -> tuple[list[int], list[int], list[int]]:
    """``(parent_list, selected entries, parents)`` as EAGLE's drafting would yield them.

    The root offers ``topk`` entries; each later level offers ``topk`` for each of the
    ``topk`` entries kept from the level above. ``nodes - 1`` of them are selected, parents first.
    """
    parent_of: dict[int, int | None] = dict.fromkeys(range(topk))
    table, level = [-1, *range(topk)], list(range(topk))
    for _ in range(1, depth):
        kept = table[-topk:]
        level = list(range(len(parent_of), len(parent_of) + topk * topk))
        parent_of |= {entry: kept[j // topk] for j, entry in enumerate(level)}
        table += sorted(rng.sample(level, topk))
    selected: list[int] = []
    while len(selected) < nodes - 1:
        open_entries = [e for e, p in parent_of.items() if e not in selected and (p is None or p in selected)]
        selected.append(rng.choice(open_entries))
    selected.sort()
    node_of = {None: 0} | {entry: i for i, entry in enumerate(selected, start=1)}
    return table, selected, [-1] + [node_of[parent_of[entry]] for entry in selected]


@BATCHES
@SEEDS
def test_build_tree_lays_out_the_entries_that_eagle_selected(batch: int, seed: int) -> None:
    rng, topk, depth, nodes = random.Random(seed), 3, 4, 8
    choices = [random_eagle_choice(rng, topk, depth, nodes) for _ in range(batch)]
    tables, selected, forest = map(list, zip(*choices, strict=True))
    seq_lens = [rng.randrange(100) for _ in forest]
    mask = torch.zeros(batch * nodes * nodes + 4, dtype=torch.bool)
    out = TreeOutputs(batch, nodes)

    kernels.build_tree_kernel_efficient_cpu(
        torch.tensor(tables), torch.tensor(selected), torch.tensor(seq_lens), mask, out.positions,
        out.index, out.child, out.sibling, topk, depth, nodes, kernels.QLEN_ONLY,
    )  # fmt: skip

    out.check(forest, seq_lens, nodes)
    expected = torch.stack([mask_of(tree, nodes) for tree in forest]).flatten()
    assert torch.equal(mask[:-4], expected)
    assert not mask[-4:].any()


def test_build_tree_leaves_a_child_without_its_parent_unlinked() -> None:
    """A draft that is certain is as likely as its parent, and the best entries may hold it alone."""
    topk, nodes, table = 2, 4, [[-1, 0, 1]]
    selected = [[0, 4, 5]]  # 4 and 5 hang below entry 1, which is not selected
    mask, out = torch.zeros(nodes * nodes, dtype=torch.bool), TreeOutputs(1, nodes)

    kernels.build_tree_kernel_efficient_cpu(
        torch.tensor(table), torch.tensor(selected), torch.tensor([7]), mask, out.positions,
        out.index, out.child, out.sibling, topk, 2, nodes, kernels.QLEN_ONLY,
    )  # fmt: skip

    assert mask.view(nodes, nodes).tolist() == mask_of([-1, 0], nodes).tolist()
    assert out.child[0].tolist() == [1, -1, -1, -1]
    assert out.sibling[0].tolist() == [-1] * nodes


def test_build_tree_of_one_step_has_no_parents_to_look_up() -> None:
    topk, nodes = 3, 3
    mask, out = torch.zeros(2 * nodes * nodes, dtype=torch.bool), TreeOutputs(2, nodes)

    kernels.build_tree_kernel_efficient_cpu(
        torch.zeros(2, 0, dtype=torch.int64), torch.tensor([[0, 1], [0, 2]]), torch.tensor([7, 9]), mask,
        out.positions, out.index, out.child, out.sibling, topk, 1, nodes, kernels.QLEN_ONLY,
    )  # fmt: skip

    out.check([[-1, 0, 0], [-1, 0, 0]], [7, 9], nodes)


def test_build_tree_refuses_a_mask_layout_of_gpus() -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    with pytest.raises(ValueError, match="QLEN_ONLY"):
        kernels.build_tree_kernel_efficient_cpu(*[empty] * 8, 1, 1, 1, 0)


def assert_copied(layers: list[torch.Tensor], targets: list[int], sources: list[int]) -> None:
    """The kernel moves rows as if all were read before the first is written."""
    expected = [layer.clone() for layer in layers]
    for new, old in zip(expected, layers, strict=True):
        for target, source in zip(targets, sources, strict=True):
            new[target] = old[source].clone()

    kernels.copy_all_layer_kv_cache_cpu(
        torch.tensor([layer.data_ptr() for layer in layers], dtype=torch.uint64),
        torch.tensor([layer.stride(0) * layer.element_size() for layer in layers]),
        torch.tensor(targets, dtype=torch.int64),
        torch.tensor(sources, dtype=torch.int64),
    )

    assert all(torch.equal(layer, want) for layer, want in zip(layers, expected, strict=True))


@pytest.mark.parametrize(
    ("targets", "sources"),
    [
        ([3, 4, 5], [4, 5, 6]),
        ([5, 6, 7], [4, 5, 6]),
        ([1, 2, 3], [3, 1, 2]),
        ([2, 5, 6], [2, 9, 6]),
        ([4], [0]),
        ([4, 7], [4, 7]),
        ([], []),
    ],
    ids=["overlap down", "overlap up", "cycle", "some stay", "one", "all stay", "none"],
)
def test_copy_kv_cache_moves_rows_of_every_layer_reading_before_writing(
    targets: list[int], sources: list[int]
) -> None:
    layers = [
        torch.randn(11, 2, 8),
        torch.randn(11, 2, 8),
        torch.randn(11, 1, 5).bfloat16(),
        torch.randint(256, (11, 3), dtype=torch.uint8),
    ]
    assert_copied(layers, targets, sources)


@BATCHES
@SEEDS
def test_copy_kv_cache_compacts_the_accepted_nodes_of_each_request(batch: int, seed: int) -> None:
    """Any slots to any slots, as long as no two rows are written to one place."""
    rng, slots = random.Random(seed), 8 * batch + 5
    count = rng.randint(0, 6 * batch)
    targets, sources = rng.sample(range(slots), count), [rng.randrange(slots) for _ in range(count)]
    layers = [torch.randn(slots, 2, 8), torch.randn(slots, 1, 3).bfloat16()]
    assert_copied(layers, targets, sources)


@pytest.mark.parametrize(
    "kernel", [kernels.assign_req_to_token_pool_cpu, kernels.assign_extend_cache_locs_cpu]
)
def test_a_run_past_the_end_of_its_row_is_an_error_not_a_leak(kernel):
    """One slot assigned to an empty slice is dropped without a word by PyTorch."""
    pool, slots = torch.zeros(2, 8, dtype=torch.int32), torch.tensor([5])
    with pytest.raises(IndexError, match="has 8 slots, not 9"):
        kernel(torch.tensor([1]), pool, torch.tensor([8]), torch.tensor([9]), slots, 8)
