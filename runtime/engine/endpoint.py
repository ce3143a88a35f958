"""``GET /toolspec/requests/{rid}`` on SGLang's own HTTP server: what became of a request's drafts.

``meta_info`` is no place for it: what a worker adds there is sliced by output token, and a
streamed chat reply has none. The question travels to the scheduler as SGLang's
``GetInternalStateReq`` with a mark and the id in its ``rid``, which SGLang leaves empty;
``hooks.add_stats`` answers it there. Only counts and names of sources are told.
"""

from __future__ import annotations

import sys
from typing import Any

from fastapi import HTTPException, Request
from sglang.srt.managers.io_struct import GetInternalStateReq

from sglang_toolspec.runtime.ledger import MAX_REQUESTS

PATH = "/toolspec/requests/{rid:path}"
_MARK = "toolspec/requests/"
"""Keeps the id apart from ids that mean something to SGLang, such as those of health checks."""
_SHOWN_RID = 100


def asked_rid(question: Any) -> str | None:
    """The request that a ``GetInternalStateReq`` asks for; ``None`` for a plain one."""
    rid = question.rid
    return rid.removeprefix(_MARK) if isinstance(rid, str) and rid.startswith(_MARK) else None


async def read_request(rid: str, request: Request) -> dict[str, Any]:
    """The handler; 404 where nothing is known of the request."""
    manager = request.app.state.toolspec_manager
    manager.auto_create_handle_loop()
    answers = await manager.get_internal_state_communicator(GetInternalStateReq(rid=_MARK + rid))
    told = [a.internal_state["toolspec"] for a in answers if "toolspec" in a.internal_state]
    if not told:
        raise HTTPException(
            404, "this server does not run TOOLSPEC; start it with --speculative-algorithm TOOLSPEC"
        )
    found = next((answer for answer in told if answer is not None), None)  # one per data-parallel rank
    if found is None:
        raise HTTPException(
            404,
            f"no drafts are known for the request {rid[:_SHOWN_RID]!r}: it has not begun to decode, or its "
            f"reply was one token, or it is not among the last {MAX_REQUESTS} requests",
        )
    return found


def add_endpoint(result: Any, manager: Any, *args: Any, **kwargs: Any) -> None:
    """After ``TokenizerManager.__init__``: the route, if this process runs SGLang's HTTP server."""
    server = sys.modules.get("sglang.srt.entrypoints.http_server")
    if server is not None:
        mount(server.app, manager)


def mount(app: Any, manager: Any) -> None:
    """Add the route to SGLang's FastAPI ``app``, whose API key guards all routes. Idempotent."""
    app.state.toolspec_manager = manager
    if all(getattr(route, "path", None) != PATH for route in app.routes):
        app.add_api_route(PATH, read_request, methods=["GET"], response_model=None)
