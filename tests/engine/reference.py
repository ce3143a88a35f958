"""Greedy decoding by another implementation than the one under test."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM

from tests.engine.client import GAP_LIMIT


class Reference:
    """The model as ``transformers`` runs it, float32."""

    def __init__(self, folder: str):
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def assert_greedy(self, prompt: list[int], reply: list[int]) -> None:
        """Each token of ``reply`` is the most likely one after all before it; so it is the greedy reply.

        Where it is not, the two must be as good as equally likely.
        """
        with torch.inference_mode():
            logits = self._model(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1]
        best = logits.max(dim=-1)
        gaps = best.values - logits.gather(1, torch.tensor(reply)[:, None])[:, 0]
        for at in gaps.nonzero().flatten().tolist():
            assert gaps[at] < GAP_LIMIT, f"token {at}: {reply[at]}, not {best.indices[at]}, by {gaps[at]:.2e}"
