"""Candidates of the target after the accepted rows of a verify step."""

from types import SimpleNamespace

import pytest
import torch

from sglang_toolspec.runtime.drafters.recycling import CANDIDATES
from sglang_toolspec.runtime.engine.candidates import accepted_candidates

VOCAB = 50


def pending(accept_index, width=4):
    torch.manual_seed(0)
    size = len(accept_index)
    logits = torch.randn(size * width, VOCAB)
    tokens = torch.arange(size * width) + 100
    batch = SimpleNamespace(reqs=[f"request {i}" for i in range(size)])
    return accepted_candidates(batch, tokens, logits, torch.tensor(accept_index, dtype=torch.int32)), logits


def test_each_request_gets_the_candidates_of_its_accepted_rows_in_order():
    found, logits = pending([[0, 2, -1, -1], [4, -1, -1, -1], [8, 9, 10, 11]])
    by_request = {req: (tokens, ids, chances) for req, tokens, ids, chances in found.by_request()}
    assert [by_request[f"request {i}"][0] for i in range(3)] == [[100, 102], [104], [108, 109, 110, 111]]
    _, ids, chances = by_request["request 0"]
    assert ids.shape == chances.shape == (2, CANDIDATES)
    assert ids[1].tolist() == logits[2].topk(CANDIDATES).indices.tolist()
    assert chances.sum(-1) == pytest.approx([1, 1])
    assert (chances[:, :-1] >= chances[:, 1:]).all()


def test_rows_that_a_mask_left_nothing_of_are_no_candidates():
    index = torch.tensor([[0]], dtype=torch.int32)
    logits = torch.full((1, VOCAB), float("-inf"))
    found = accepted_candidates(SimpleNamespace(reqs=["r"]), torch.tensor([7]), logits, index)
    ((_, tokens, _, chances),) = found.by_request()
    assert tokens == [7]
    assert chances.tolist() == [[0.0] * CANDIDATES]
