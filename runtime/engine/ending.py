"""Where a reply ends: SGLang keeps all that the last verify step accepted, also what lies behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ending:
    """``stops`` are token ids that end a reply, ``longest`` is the most tokens it may have."""

    stops: frozenset[int]
    longest: int

    @classmethod
    def of(cls, req: Any) -> Ending:
        """As ``Req.update_finish_state`` has it, but for stop strings. Outlives ``req``, as replies do."""
        params, tokenizer = req.sampling_params, req.tokenizer
        stops: set[int | None] = set()
        if not params.ignore_eos:
            stops.update(params.stop_token_ids or (), req.eos_token_ids or ())
            stops.add(getattr(tokenizer, "eos_token_id", None))
            stops.update(getattr(tokenizer, "additional_stop_token_ids", None) or ())
        return cls(frozenset(stop for stop in stops if stop is not None), params.max_new_tokens)

    def cut(self, reply: Sequence[int]) -> Sequence[int]:
        """``reply`` through its end."""
        stop = next((at for at, token in enumerate(reply) if token in self.stops), self.longest)
        return reply[: min(stop + 1, self.longest)]
