"""What users see of drafting: ``/server_info``, ``/toolspec/requests``, ``/metrics``, and the log."""

from __future__ import annotations

import json
import logging
from typing import Any

from sglang_toolspec.runtime.attribution import Attribution
from sglang_toolspec.runtime.engine.metrics import Metrics
from sglang_toolspec.runtime.engine.sessions import SessionTable
from sglang_toolspec.runtime.ledger import MAX_RID, Ledger
from sglang_toolspec.runtime.session import Faults

logger = logging.getLogger(__name__)


class Report:
    """``log`` says whether each finished request is logged. Mutable."""

    def __init__(self, sessions: SessionTable, faults: Faults, log: bool, metrics: Metrics | None):
        self._sessions = sessions
        self._faults = faults
        self._log = log
        self._metrics = metrics
        self._ledger = Ledger()

    def drafted(self, seconds: float) -> None:
        """Host time of one step's drafting."""
        if self._metrics is not None:
            self._metrics.drafted(seconds)
            self._metrics.now(len(self._sessions), self._faults.counts)

    def ended(self, rid: str, part: Attribution, finished: bool) -> None:
        """A session has ended, and its request too where it is ``finished``."""
        whole = self._ledger.note(rid, part, finished)
        if self._metrics is not None:
            self._metrics.ended(part, finished)
            self._metrics.now(len(self._sessions), self._faults.counts)
        if self._log and finished:
            logger.info("toolspec: %s", log_line(rid, whole))

    def replies(self) -> dict[str, Any]:
        """Sums since start, with the requests that are running."""
        total = Attribution()
        for part in (self._ledger.total, *self._sessions.running()):
            total.add(part)
        return {"finished": self._ledger.finished, **total.sums()}

    def request(self, rid: str) -> dict[str, Any] | None:
        """What became of the drafts of one request, running or ended lately."""
        return self._ledger.find(rid, self._sessions.attribution(rid))


def log_line(rid: str, told: Attribution) -> str:
    """One line, whatever a client put into its ``rid``."""
    accepted = ", ".join(f"{source} {count}" for source, count in told.accepted.most_common())
    return f"request {json.dumps(rid[:MAX_RID])}: {told}, accepted: {accepted or 'none'}"
