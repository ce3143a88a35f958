"""The query of retrieval: the hidden state of each request's last prompt token (paper, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from torch import Tensor


class PromptVectors:
    """Captured at prefill, kept as long as the request; mutable.

    SGLang returns one row per request and chunk (``CaptureHiddenMode.LAST``); the last chunk of
    a prompt overwrites the ones before. A retracted request is prefilled with its reply, whose
    last state is no query: the first one stays.
    """

    def __init__(self) -> None:
        self._vectors: WeakKeyDictionary[Any, Tensor] = WeakKeyDictionary()

    @staticmethod
    def mode(batch: Any) -> CaptureHiddenMode | None:
        """What to capture in the prefill of ``batch``; ``None`` where clients ask for as much."""
        return CaptureHiddenMode.LAST if batch.return_hidden_states_mode < CaptureHiddenMode.LAST else None

    def note(self, batch: Any, logits_output: Any) -> None:
        """Take the vectors out of a prefill's result; leave it as clients asked for it."""
        hidden = logits_output.hidden_states
        if hidden is None:
            return
        ends: Sequence[int] = range(len(batch.reqs))
        if hidden.shape[0] != len(batch.reqs):  # every row of the prompts, for a client
            ends = [end - 1 for end in accumulate(batch.extend_lens)]
        for req, end in zip(batch.reqs, ends, strict=True):
            if not req.output_ids:
                self._vectors[req] = hidden[end].clone()
        if not batch.return_hidden_states:
            logits_output.hidden_states = None

    def of(self, req: Any) -> NDArray[np.float32] | None:
        """Float32 ``[hidden size]``; ``None`` where it was not captured. Waits for the device."""
        vector = self._vectors.get(req)
        return None if vector is None else vector.float().cpu().numpy()
