"""Sessions: what drafters are told, and what a fault or a leaving request costs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from sglang_toolspec.runtime.engine.sessions import SessionTable
from sglang_toolspec.runtime.engine.worker import accepted_rows, unseen
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tree import DraftPath

VOCAB = 100


class Recorder:
    """Remembers what was committed and proposes one fixed path."""

    def __init__(self, name: str = "recorder", proposal: tuple[int, ...] = (50, 51)):
        self.name = name
        self.proposal = proposal
        self.committed: list[int] = []

    def commit(self, tokens: list[int]) -> None:
        self.committed += tokens

    def propose(self) -> list[DraftPath]:
        return [DraftPath(tuple(self.proposal), (0.9,) * len(self.proposal), self.name)]


class Broken(Recorder):
    """Raises where ``fails`` says."""

    def __init__(self, fails: str, error: type[Exception] = RuntimeError):
        super().__init__("broken", (60,))
        self.fails, self.error = fails, error

    def commit(self, tokens: list[int]) -> None:
        if self.fails == "commit":
            raise self.error("no")
        super().commit(tokens)

    def propose(self) -> list[DraftPath]:
        if self.fails == "propose":
            raise self.error("no")
        return super().propose()


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def faults(reports: list[str]) -> Faults:
    return Faults(lambda reason, error: reports.append(reason))


class Request(SimpleNamespace):
    """The fields of SGLang's ``Req`` that the table reads."""

    __hash__ = object.__hash__


def request(rid: str = "r", output: tuple[int, ...] = ()) -> Request:
    return Request(rid=rid, origin_input_ids=[7, 8], output_ids=list(output))


class Table(SessionTable):
    """A table that keeps the drafters it made."""

    def __init__(self, faults: Faults, make: Callable[[], Recorder] = Recorder):
        self.drafters: list[Recorder] = []
        super().__init__(lambda req: self._new(make(), faults), faults)

    def _new(self, drafter: Recorder, faults: Faults) -> Session:
        self.drafters.append(drafter)
        return Session([drafter], VOCAB, faults)


@pytest.mark.parametrize("fails", ["commit", "propose"])
def test_a_drafter_that_raises_is_dropped_and_the_others_go_on(faults: Faults, fails: str) -> None:
    good = Recorder()
    session = Session([Broken(fails), good], VOCAB, faults)

    for token in (1, 2, 3):
        session.commit([token])
        tree = session.draft(8)
        assert tree.tokens == [token, 50, 51]

    assert good.committed == [1, 2, 3]
    assert session.committed == 3
    assert faults.counts == {"broken: RuntimeError": 1}


def test_a_reason_is_counted_every_time_and_reported_once(faults: Faults, reports: list[str]) -> None:
    for error in (RuntimeError, RuntimeError, KeyError):
        session = Session([Broken("propose", error)], VOCAB, faults)
        session.draft(8)
        session.draft(8)

    assert faults.counts == {"broken: RuntimeError": 2, "broken: KeyError": 1}
    assert reports == ["broken: RuntimeError", "broken: KeyError"]


@pytest.mark.parametrize("garbage", [-1, VOCAB, 2**40])
def test_a_garbage_id_cuts_its_path_only(faults: Faults, garbage: int) -> None:
    session = Session([Recorder("a", (10, garbage, 11)), Recorder("b", (20, 21))], VOCAB, faults)
    session.commit([1])

    tree = session.draft(8)

    assert sorted(tree.tokens) == [1, 10, 20, 21]
    assert not faults.counts


def test_committing_nothing_changes_nothing(faults: Faults) -> None:
    session = Session([Broken("commit")], VOCAB, faults)

    session.commit([])

    assert session.committed == 0
    assert not faults.counts


def test_each_token_is_committed_once_over_many_steps(faults: Faults) -> None:
    table, req = Table(faults), request()

    for chunk in ([1], [2, 3, 4], [5], [6, 7]):
        req.output_ids += chunk
        assert table.draft(req, [], 8).tokens == [chunk[-1], 50, 51]

    assert [drafter.committed for drafter in table.drafters] == [[1, 2, 3, 4, 5, 6, 7]]


def test_the_root_before_any_output_is_the_last_prompt_token(faults: Faults) -> None:
    assert Table(faults).draft(request(), [], 8).tokens[0] == 8


def test_a_fault_while_the_session_is_built_costs_the_draft_only(faults: Faults) -> None:
    def make(req: Request) -> Session:
        raise KeyError("tools")

    table = SessionTable(make, faults)

    tree = table.draft(request(output=(1, 2)), [3], 8)

    assert (tree.tokens, tree.parents) == ([3], [-1])
    assert faults.counts == {"session: KeyError": 1}


def test_keep_only_forgets_requests_that_left(faults: Faults) -> None:
    table = Table(faults)
    reqs = [request(rid, (1,)) for rid in "abc"]
    for req in reqs:
        table.draft(req, [], 8)

    table.keep_only(["a", "c", "unknown"])
    assert len(table) == 2
    table.draft(reqs[0], [], 8)
    assert len(table.drafters) == 3  # "a" goes on with its session
    table.draft(reqs[1], [], 8)
    assert len(table.drafters) == 4  # "b" starts afresh


def test_clear_forgets_everything(faults: Faults) -> None:
    table = Table(faults)
    req = request(output=(1,))
    table.draft(req, [], 8)

    table.clear()

    assert len(table) == 0


def test_a_collected_request_takes_its_session_along(faults: Faults) -> None:
    table = Table(faults)
    stays, goes = request("stays", (1,)), request("goes", (1,))
    table.draft(stays, [], 8)
    table.draft(goes, [], 8)

    del goes
    gc.collect()

    assert len(table) == 1


def test_a_reused_rid_starts_afresh_and_outlives_its_predecessor(faults: Faults) -> None:
    table = Table(faults)
    old, new = request("r", (1, 2)), request("r", (3, 4))
    table.draft(old, [], 8)

    table.draft(new, [], 8)
    del old
    gc.collect()
    new.output_ids.append(5)
    table.draft(new, [], 8)

    assert [drafter.committed for drafter in table.drafters] == [[1, 2], [3, 4, 5]]
    assert len(table) == 1


def test_a_reply_that_became_shorter_starts_afresh(faults: Faults) -> None:
    table, req = Table(faults), request(output=(1, 2, 3))
    table.draft(req, [], 8)

    req.output_ids = [1]
    assert table.draft(req, [], 8).tokens[0] == 1

    assert [drafter.committed for drafter in table.drafters] == [[1, 2, 3], [1]]


def test_the_root_is_the_requests_last_token_even_if_the_reply_was_rewritten(faults: Faults) -> None:
    table, req = Table(faults), request(output=(1, 2))
    table.draft(req, [], 8)

    req.output_ids = [1, 9]

    assert table.draft(req, [], 8).tokens[0] == 9


REPLY = [[1], [2, 3], [4], [5, 6, 7], [8], [9, 10], [11]]
"""What is accepted step by step; the first chunk is the prefill's token."""


@pytest.mark.parametrize("pauses", [set(), {0}, {1}, {3}, {2, 3}, set(range(7))], ids=str)
def test_results_that_arrive_one_step_late_are_committed_once(faults: Faults, pauses: set[int]) -> None:
    """Overlap scheduling against synchronous scheduling, over the same reply.

    Before a step in ``pauses`` another request is prefilled, which gives the scheduler time
    to process the result that SGLang still relays as the last step's accepted tokens.
    """
    late, on_time = Table(faults), Table(faults)
    req, synchronous = request("late"), request("sync")
    prompt = len(req.origin_input_ids)
    done = 0
    for step, accepted in enumerate(REPLY):
        synchronous.output_ids += accepted
        done += len(accepted)
        if step in pauses:
            req.output_ids += accepted

        tree = late.draft(req, unseen(accepted, req, prompt + done), 8)

        assert tree.tokens == on_time.draft(synchronous, [], 8).tokens
        assert tree.tokens[0] == accepted[-1]
        if step not in pauses:  # processed while the next step runs
            req.output_ids += accepted

    assert late.drafters[0].committed == on_time.drafters[0].committed == list(range(1, 12))
    assert len(late.drafters) == 1
    assert not faults.counts


def test_accepted_rows_cuts_each_stride_at_its_length() -> None:
    tokens = torch.tensor([1, 2, 3, 0, 4, 0, 0, 0, 5, 6, 7, 8], dtype=torch.int32)

    assert accepted_rows(tokens, torch.tensor([3, 1, 4])) == [[1, 2, 3], [4], [5, 6, 7, 8]]
    assert accepted_rows(torch.zeros(2, 4), torch.tensor([0, 0])) == [[], []]
