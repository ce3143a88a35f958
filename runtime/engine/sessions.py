"""Sessions of the requests that are being decoded, keyed by ``rid``.

A session lives exactly as long as its request is in the decode batch: the worker
calls ``keep_only`` each step, and a weak reference drops the rest when the server is idle.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tree import DraftTree


class SessionTable:
    """``make(req)`` builds the session of a request (SGLang's ``Req``)."""

    def __init__(self, make: Callable[[Any], Session], faults: Faults):
        self._make = make
        self._faults = faults
        self._sessions: dict[str, tuple[weakref.ref[Any], Session]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def draft(self, req: Any, unprocessed: Sequence[int], budget: int) -> DraftTree:
        """The tree of ``req``.

        ``unprocessed`` are tokens that were accepted but are not in ``req.output_ids`` yet
        (overlap scheduling delivers results one step late). A fault costs the draft only.
        """
        output = [*req.output_ids, *unprocessed]
        root = output[-1] if output else req.origin_input_ids[-1]
        try:
            session = self._session(req, len(output))
            session.commit(output[session.committed :])
            tree = session.draft(budget)
        except Exception as error:  # drafting must never cost the request
            self._faults.note("session", error)
            return DraftTree.root_only(root)
        tree.tokens[0] = root  # the target reads it as the last token, whatever the drafters follow
        return tree

    def keep_only(self, rids: Iterable[str]) -> None:
        """Forget every request that is not among ``rids``."""
        kept = set(rids)
        for rid in [r for r in self._sessions if r not in kept]:
            del self._sessions[rid]

    def clear(self) -> None:
        self._sessions.clear()

    def _session(self, req: Any, output_length: int) -> Session:
        known = self._sessions.get(req.rid)
        # A reused rid, or a reply that became shorter (retraction): start afresh.
        if known and known[0]() is req and known[1].committed <= output_length:
            return known[1]
        session = self._make(req)
        rid = req.rid
        self._sessions[rid] = (weakref.ref(req, lambda ref: self._collected(rid, ref)), session)
        return session

    def _collected(self, rid: str, ref: weakref.ref[Any]) -> None:
        known = self._sessions.get(rid)
        if known and known[0] is ref:
            del self._sessions[rid]
