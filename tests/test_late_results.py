"""Accepted tokens that SGLang hands on before, or after, it has added them to the reply."""

from __future__ import annotations

import pytest
import torch

from sglang_toolspec.runtime.engine.worker import accepted_rows, unseen
from sglang_toolspec.runtime.session import Faults
from tests.sessions import Table, request

REPLY = [[1], [2, 3], [4], [5, 6, 7], [8], [9, 10], [11]]
"""What is accepted step by step; the first chunk is the prefill's token."""


@pytest.mark.parametrize("pauses", [set(), {0}, {1}, {3}, {2, 3}, set(range(7))], ids=str)
def test_results_that_arrive_one_step_late_are_committed_once(faults: Faults, pauses: set[int]) -> None:
    """Overlap scheduling against synchronous scheduling, over the same reply.

    Before a step in ``pauses`` another request is prefilled, which gives the scheduler time
    to process the result that SGLang still relays as the last step's accepted tokens.
    """
    late, on_time = Table(faults), Table(faults)
    req, synchronous = request("late"), request("sync")
    prompt = len(req.origin_input_ids)
    done = 0
    for step, accepted in enumerate(REPLY):
        synchronous.output_ids += accepted
        done += len(accepted)
        if step in pauses:
            req.output_ids += accepted

        tree = late.draft(req, unseen(accepted, req, prompt + done), 8)

        assert tree.tokens == on_time.draft(synchronous, [], 8).tokens
        assert tree.tokens[0] == accepted[-1]
        if step not in pauses:  # processed while the next step runs
            req.output_ids += accepted

    assert late.drafters[0].committed == on_time.drafters[0].committed == list(range(1, 12))
    assert len(late.drafters) == 1
    assert not faults.counts


def test_accepted_rows_cuts_each_stride_at_its_length() -> None:
    tokens = torch.tensor([1, 2, 3, 0, 4, 0, 0, 0, 5, 6, 7, 8], dtype=torch.int32)

    assert accepted_rows(tokens, torch.tensor([3, 1, 4])) == [[1, 2, 3], [4], [5, 6, 7, 8]]
    assert accepted_rows(torch.zeros(2, 4), torch.tensor([0, 0])) == [[], []]
