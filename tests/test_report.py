"""What users see of drafting: the endpoint behind SGLang's API key, its answers, metrics, the log."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from sglang.srt.managers.io_struct import GetInternalStateReq
from sglang.srt.utils.auth import add_api_key_middleware

from sglang_toolspec.runtime.attribution import Attribution
from sglang_toolspec.runtime.engine import endpoint
from sglang_toolspec.runtime.engine.hooks import add_stats
from sglang_toolspec.runtime.engine.metrics import Metrics
from sglang_toolspec.runtime.engine.report import Report, log_line
from sglang_toolspec.runtime.session import Faults
from tests.test_ledger import told


class Sessions(dict[str, Attribution]):
    """A session table that only tells of running requests."""

    def attribution(self, rid: str) -> Attribution | None:
        return self.get(rid)

    def running(self) -> list[Attribution]:
        return list(self.values())


def report(log: bool = False, metrics: Metrics | None = None, **running: Attribution) -> Report:
    return Report(Sessions(running), Faults(lambda reason, error: None), log, metrics)  # type: ignore[arg-type]


def scheduler(worker: Any) -> Any:
    """A scheduler's side of the question."""

    def answer(question: GetInternalStateReq) -> Any:
        result = SimpleNamespace(internal_state={"page_size": 1})
        return add_stats(result, SimpleNamespace(draft_worker=worker), question)

    return answer


def worker(**running: Attribution) -> Any:
    made = report(**running)
    return SimpleNamespace(report=made, stats=lambda: {"replies": made.replies()})


def server(*answers: Any, api_key: str | None = None) -> FastAPI:
    """An app with the route, and one scheduler for each of ``answers``."""

    async def ask(question: GetInternalStateReq) -> list[Any]:
        return [answer(question) for answer in answers]

    app = FastAPI()
    manager = SimpleNamespace(auto_create_handle_loop=lambda: None, get_internal_state_communicator=ask)
    endpoint.mount(app, manager)
    endpoint.mount(app, manager)
    if api_key:
        add_api_key_middleware(app, api_key=api_key, admin_api_key=None)
    return app


def get(app: FastAPI, rid: str, **headers: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
            return await client.get(f"/toolspec/requests/{rid}", headers=headers)

    return asyncio.run(ask())


def test_a_request_is_answered_by_the_rank_that_knows_it() -> None:
    app = server(scheduler(worker()), scheduler(worker(mine=told("sc"))))
    reply = get(app, "mine")
    assert reply.status_code == 200
    assert reply.json()["accepted"] == {"schema": 1, "copy": 1}
    assert "page_size" not in reply.json()


def test_an_unknown_request_is_404_in_one_sentence() -> None:
    reply = get(server(scheduler(worker(mine=told("s")))), "m" * 5000)
    assert reply.status_code == 404
    assert "no drafts are known" in reply.json()["detail"]
    assert len(reply.text) < 400


def test_a_server_without_toolspec_says_so() -> None:
    reply = get(server(scheduler(SimpleNamespace())), "mine")
    assert reply.status_code == 404
    assert "does not run TOOLSPEC" in reply.json()["detail"]


@pytest.mark.parametrize("rid", ["HEALTH_CHECK_1", "a/b c?", "toolspec/requests/x", "x" * 300, "日本"])
def test_any_id_reaches_the_scheduler_as_the_client_wrote_it(rid: str) -> None:
    """An id of a health check would not be answered at all while the server is busy."""
    seen = []

    def answer(question: GetInternalStateReq) -> Any:
        seen.append(question.rid)
        return scheduler(worker(**{rid: told("s")}))(question)

    from urllib.parse import quote

    assert get(server(answer), quote(rid, safe="")).json()["rid"] == rid
    assert not seen[0].startswith("HEALTH_CHECK")


def test_the_api_key_guards_the_endpoint() -> None:
    app = server(scheduler(worker(mine=told("s"))), api_key="secret")
    assert get(app, "mine").status_code == 401
    assert get(app, "mine", Authorization="Bearer wrong").status_code == 401
    assert get(app, "mine", Authorization="Bearer secret").status_code == 200


def test_server_info_has_sums_and_no_single_requests() -> None:
    result = scheduler(worker(a=told("ss"), b=told("c")))(GetInternalStateReq())
    replies = result.internal_state["toolspec"]["replies"]
    assert result.internal_state["page_size"] == 1
    assert (replies["tokens"], replies["verify_steps"]) == (7, 2)
    assert replies["accepted"] == {"schema": 2, "copy": 1}
    assert "steps" not in replies


def test_sums_hold_ended_and_running_requests() -> None:
    made = report(running=told("c"))
    made.ended("r", told("ss"), True)
    assert (made.replies()["finished"], made.replies()["tokens"]) == (1, 7)


def test_metrics_count_by_source_and_reason() -> None:
    registry, faults = CollectorRegistry(), Faults(lambda reason, error: None)
    metrics = Metrics({"model_name": "m"}, registry)
    made = Report(Sessions(a=told()), faults, False, metrics)  # type: ignore[arg-type]
    faults.note("schema", ValueError())
    made.ended("r", told("ss", "c"), False)
    faults.note("schema", ValueError())
    made.ended("r", told("s", prefilled=9), True)
    made.drafted(0.25)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"sglang_toolspec_{name}", {"model_name": "m", **labels})

    assert value("accepted_tokens_total", source="schema") == 3
    assert value("accepted_tokens_total", source="copy") == 1
    assert value("proposed_tokens_total", source="suffix") == 3
    assert (value("tokens_total"), value("verify_steps_total"), value("requests_total")) == (9, 3, 1)
    assert value("faults_total", reason="schema: ValueError") == 2
    assert value("drafting_seconds_total") == 0.25
    assert value("sessions") == 1


def test_the_log_has_one_line_for_a_finished_request_if_asked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for log in (False, True):
        made = report(log)
        made.ended("r-1", told("ss"), False)
        made.ended("r-1", told("c", prefilled=5), True)
    assert [record.getMessage() for record in caplog.records] == [
        'toolspec: request "r-1": 7 tokens in 2 verify steps, accept length 3.50, accepted: schema 2, copy 1'
    ]


def test_an_id_cannot_forge_a_line_of_the_log() -> None:
    line = log_line("x\n2026 INFO all is well\x1b[2J" + "y" * 9999, told())
    assert line.isprintable()
    assert len(line) < 800
