"""What the target thought likely after each committed token: the food of Token Recycling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sglang_toolspec.runtime.drafters.recycling import CANDIDATES


@dataclass
class Pending:
    """Of one step's rows, on the host as soon as the device has come so far.

    ``accepted`` bool, ``owners`` (which of ``reqs``) and ``tokens`` int64, all ``[rows]``; ``ids``
    int64 and ``chances`` float32 ``[rows, 8]``.
    """

    reqs: list[Any]
    accepted: Tensor
    owners: Tensor
    tokens: Tensor
    ids: Tensor
    chances: Tensor

    def by_request(self) -> Iterator[tuple[Any, list[int], NDArray[np.int32], NDArray[np.float32]]]:
        """For each request its accepted tokens, in order, and their candidates."""
        for i, req in enumerate(self.reqs):
            mine = self.accepted & (self.owners == i)
            yield req, self.tokens[mine].tolist(), self.ids[mine].int().numpy(), self.chances[mine].numpy()


def accepted_candidates(batch: Any, tokens: Tensor, logits: Tensor, accept_index: Tensor) -> Pending:
    """``tokens`` ``[batch * nodes]`` were the input, ``logits`` ``[batch * nodes, vocab]`` came out;
    ``accept_index`` ``[batch, nodes]`` names the accepted rows, ``-1`` past them.

    Chances are among the candidates only. Nothing here waits for a device.
    """
    size, width = accept_index.shape
    owners = torch.arange(size, device=accept_index.device).repeat_interleave(width)
    rows = accept_index.flatten().long()
    if rows.device.type == "cpu":  # as many rows as must be looked at
        owners, rows = owners[rows >= 0], rows[rows >= 0]
        top = logits[rows].topk(CANDIDATES, dim=-1)
        values, ids = top.values, top.indices
    else:
        top = logits.topk(CANDIDATES, dim=-1)
        values, ids = top.values[rows], top.indices[rows]
    chances = values.float().softmax(-1).nan_to_num_()
    columns = (rows >= 0, owners, tokens[rows].long(), ids, chances)
    return Pending(list(batch.reqs), *(column.to("cpu", non_blocking=True) for column in columns))
