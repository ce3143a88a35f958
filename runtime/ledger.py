"""What became of drafts: summed since start, and request by request for those that ended lately."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from sglang_toolspec.runtime.attribution import Attribution

MAX_REQUESTS = 512
MAX_STEPS = 1 << 16
"""Steps that are kept one by one, of all requests together: a few megabytes."""
MAX_RID = 512
"""Characters of a request id; clients choose it, and one with a longer id is only summed."""


@dataclass
class _Record:
    attribution: Attribution = field(default_factory=Attribution)
    finished: bool = False


class Ledger:
    """``total`` sums all requests, ``finished`` counts them; those noted last are found by id. Mutable."""

    def __init__(self, max_requests: int = MAX_REQUESTS, max_steps: int = MAX_STEPS):
        self.total = Attribution()
        self.finished = 0
        self._max_requests = max_requests
        self._max_steps = max_steps
        self._records: OrderedDict[str, _Record] = OrderedDict()
        self._steps = 0

    def note(self, rid: str, part: Attribution, finished: bool) -> Attribution:
        """``part`` of the reply of ``rid`` has ended, and the reply itself where it is ``finished``.

        A retracted request comes again; its parts are put together. Returns what is known of it.
        """
        self.total.add(part)
        self.finished += finished
        whole = self._so_far(rid, part)
        self._drop(rid)
        if len(rid) <= MAX_RID:
            self._records[rid] = _Record(whole, finished)
            self._steps += len(whole.history)
        while len(self._records) > self._max_requests or self._steps > self._max_steps:
            self._drop(next(iter(self._records)))
        return whole

    def find(self, rid: str, running: Attribution | None = None) -> dict[str, Any] | None:
        """As plain data: the request that has the id now, ``running`` being what its session knows.

        ``None`` where nothing is known of it.
        """
        if running is not None:
            found = _Record(self._so_far(rid, running))
        elif (noted := self._records.get(rid)) is not None:
            found = noted
        else:
            return None
        return {"rid": rid, "finished": found.finished, **found.attribution.to_json()}

    def _so_far(self, rid: str, part: Attribution) -> Attribution:
        """``part`` behind those that it resumes; another request may have had the same id."""
        whole, earlier = Attribution(), self._records.get(rid)
        if part.resumes and earlier is not None:
            whole.append(earlier.attribution)
        whole.append(part)
        return whole

    def _drop(self, rid: str) -> None:
        if (record := self._records.pop(rid, None)) is not None:
            self._steps -= len(record.attribution.history)
