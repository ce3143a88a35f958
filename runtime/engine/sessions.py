"""Sessions of the requests that are being decoded, keyed by ``rid``.

A session lives exactly as long as its request is in the decode batch: the worker
calls ``keep_only`` each step, SGLang tells of each that has finished, and a weak reference drops
the rest when the server is idle. The tokens of a reply's last step are followed when it leaves,
since no draft comes after them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sglang_toolspec.runtime.attribution import Attribution
from sglang_toolspec.runtime.engine.masked import legality
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tree import DraftTree


@dataclass
class _Open:
    """A session with its request, and the reply as SGLang extends it (which the request's end
    outlives)."""

    req: weakref.ref[Any]
    session: Session
    reply: Sequence[int]


class SessionTable:
    """``make(req)`` builds the session of a request (SGLang's ``Req``).

    ``ended(rid, attribution, finished)`` is told what became of a session's drafts when it ends,
    and whether its request has finished; one that was retracted comes again.
    """

    def __init__(
        self,
        make: Callable[[Any], Session],
        faults: Faults,
        ended: Callable[[str, Attribution, bool], None] = lambda rid, attribution, finished: None,
    ):
        self._make = make
        self._ended = ended
        self._faults = faults
        self._sessions: dict[str, _Open] = {}

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
            tree = session.draft(budget, legality(req.grammar))
        except Exception as error:  # drafting must never cost the request
            self._faults.note("session", error)
            return DraftTree.root_only(root)
        tree.tokens[0] = root  # the target reads it as the last token, whatever the drafters follow
        return tree

    def sent(self, req: Any, tree: DraftTree) -> None:
        """``tree`` is what the target verifies for ``req`` in this step."""
        if (known := self._sessions.get(req.rid)) is not None:
            known.session.sent(tree)

    def attribution(self, rid: str) -> Attribution | None:
        """What became of the drafts of a running request, up to its last step."""
        known = self._sessions.get(rid)
        return None if known is None else known.session.attribution

    def running(self) -> list[Attribution]:
        """Of all running requests."""
        return [known.session.attribution for known in list(self._sessions.values())]

    def finished(self, rid: str) -> None:
        """SGLang has ended the reply. Tokens that a step committed past its end are no part of it."""
        known = self._sessions.get(rid)
        req = None if known is None else known.req()
        if req is not None and req.finished():  # else another request has the id by now
            self._forget(rid, req.finished_len, finished=True)

    def keep_only(self, rids: Iterable[str]) -> None:
        """Forget every request that is not among ``rids``."""
        kept = set(rids)
        for rid in [r for r in self._sessions if r not in kept]:
            self._forget(rid)

    def clear(self) -> None:
        for rid in list(self._sessions):
            self._forget(rid)

    def _forget(self, rid: str, end: int | None = None, finished: bool = False) -> None:
        """``end`` is the length of the reply, where that is not all that was committed."""
        # Closing one may collect another request, and with it that one's session.
        known = self._sessions.pop(rid, None)
        if known is None:
            return
        session = known.session
        try:
            session.commit(known.reply[session.committed : end])
            session.close()
            self._ended(rid, session.attribution, finished)
        except Exception as error:  # nor may telling of it
            self._faults.note("session", error)

    def _session(self, req: Any, output_length: int) -> Session:
        rid, reply = req.rid, req.output_ids
        known = self._sessions.get(rid)
        # A reused rid, or a reply that became shorter (retraction): start afresh.
        if known and known.req() is req and known.session.committed <= output_length:
            known.reply = reply
            return known.session
        self._forget(rid)
        ref = weakref.ref(req, lambda ref: self._collected(rid, ref))
        self._sessions[rid] = _Open(ref, self._made(req), reply)
        return self._sessions[rid].session

    def _made(self, req: Any) -> Session:
        """The session of ``req``; one that drafts nothing where it cannot be built."""
        try:
            return self._make(req)
        except Exception as error:  # drafting must never cost the request
            self._faults.note("session", error)
            return Session([], 0, self._faults)

    def _collected(self, rid: str, ref: weakref.ref[Any]) -> None:
        known = self._sessions.get(rid)
        if known and known.req is ref:
            self._forget(rid)
