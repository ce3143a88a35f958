"""The sessions of a batch: each follows its request, and leaves with it."""

from __future__ import annotations

import gc

import pytest

from sglang_toolspec.runtime.attribution import PREFILL, TARGET, Attribution
from sglang_toolspec.runtime.engine.sessions import SessionTable
from sglang_toolspec.runtime.session import Faults, Session
from tests import fakes
from tests.sessions import VOCAB, Recorder, Request, Table, request
from tests.toolsets import GET_WEATHER, write_call


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

    req = request(output=(1, 2))
    tree = table.draft(req, [3], 8)

    assert (tree.tokens, tree.parents) == ([3], [-1])
    assert table.draft(req, [3, 4], 8).tokens == [4]
    assert faults.counts == {"session: KeyError": 1}  # it is not built again in every step


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


@pytest.mark.parametrize("leave", ["finished", "left", "cleared", "collected", "replaced", "shorter"])
def test_a_session_is_closed_once_however_its_request_leaves(faults: Faults, leave: str) -> None:
    table, req = Table(faults), request(output=(1, 2))
    table.draft(req, [], 8)
    session = table.drafters[0]
    assert session.closed == 0

    if leave == "finished":
        req.finished = lambda: True
        table.finished("r")
        table.keep_only([])
    elif leave == "left":
        table.keep_only([])
    elif leave == "cleared":
        table.clear()
    elif leave == "replaced":
        table.draft(request(output=(1, 2, 3)), [], 8)
    elif leave == "shorter":
        req.output_ids = [1]
        table.draft(req, [], 8)
    del req
    gc.collect()
    table.clear()

    assert [drafter.closed for drafter in table.drafters] == [1] * len(table.drafters)
    assert session.committed == [1, 2]
    assert len(table.told) == len(table.drafters)


@pytest.mark.parametrize("collected", [False, True])
def test_the_last_tokens_of_a_reply_are_followed_before_it_is_closed(faults: Faults, collected: bool) -> None:
    """No draft comes after the step that ends a reply, but its tokens are learned from."""
    table, req = Table(faults), request(output=(1,))
    table.draft(req, [], 8)

    req.output_ids += [2, 3]
    if collected:
        del req
        gc.collect()
    else:
        table.keep_only([])

    assert len(table) == 0
    assert table.drafters[0].committed == [1, 2, 3]
    assert table.drafters[0].closed == 1


def test_what_became_of_the_drafts_is_told_when_the_reply_has_finished(faults: Faults) -> None:
    table, req = Table(faults), request(output=(1,))
    table.sent(req, table.draft(req, [], 8))
    assert table.attribution("r").steps == 0

    req.output_ids += [50, 9]
    table.sent(req, table.draft(req, [], 8))
    assert [told.tokens for told in table.running()] == [3]

    req.output_ids += [50, 51, 3]  # 51 ends the reply, the step went on
    req.finished, req.finished_len = (lambda: True), 5
    table.finished("r")

    [(rid, told, finished)] = table.told
    assert (rid, finished, told.tokens, told.steps) == ("r", True, 5, 2)
    assert told.history == [(PREFILL,), ("recorder", TARGET), ("recorder", "recorder")]
    assert told.proposed == {"recorder": 4}
    assert table.drafters[0].committed == [1, 50, 9, 50, 51]
    assert table.attribution("r") is None
    assert table.running() == []


def test_the_end_of_a_request_leaves_a_later_one_with_its_id_alone(faults: Faults) -> None:
    table, later = Table(faults), request(output=(1,))
    table.draft(later, [], 8)

    table.finished("r")  # an earlier one, whose session is gone
    table.finished("unknown")

    assert len(table) == 1
    assert table.told == []


def test_a_retracted_request_resumes_and_no_token_is_counted_twice(faults: Faults) -> None:
    table, req = Table(faults), request(output=(1,))
    table.sent(req, table.draft(req, [], 8))
    req.output_ids += [50, 9]
    table.keep_only([])

    req.output_ids += [4]  # of its second prefill
    table.sent(req, table.draft(req, [], 8))
    req.output_ids += [50, 9]
    req.finished = lambda: True
    table.finished("r")

    (_, first, first_finished), (_, second, second_finished) = table.told
    assert (first.resumes, first_finished, first.tokens) == (False, False, 3)
    assert (second.resumes, second_finished, second.tokens) == (True, True, 3)


def test_a_fault_while_telling_costs_nothing_else(faults: Faults) -> None:
    def ended(rid: str, told: Attribution, finished: bool) -> None:
        raise OSError("no space left")

    table = SessionTable(lambda req: Session([], VOCAB, faults), faults, ended)
    req = request(output=(1,))
    table.draft(req, [], 8)
    table.keep_only([])

    assert len(table) == 0
    assert faults.counts == {"session: OSError": 1}


def test_tokens_that_came_early_are_not_followed_twice(faults: Faults) -> None:
    table, req = Table(faults), request(output=(1,))
    table.draft(req, [2, 3], 8)

    req.output_ids += [2, 3, 4]
    table.keep_only([])

    assert table.drafters[0].committed == [1, 2, 3, 4]


def test_closing_one_session_may_collect_the_request_of_another(faults: Faults) -> None:
    """As the garbage collector may do at any time."""
    others = [request("b", (1,)), request("c", (1,))]

    class Last(Recorder):
        def close(self) -> None:
            super().close()
            others.clear()

    made = iter([Last(), Recorder(), Recorder()])
    table = Table(faults, lambda: next(made))
    for req in (first := request("a", (1,)), *others):
        table.draft(req, [], 8)
    del req

    table.keep_only([])

    assert first.rid == "a"
    assert len(table) == 0
    assert [drafter.closed for drafter in table.drafters] == [1, 1, 1]
    assert not faults.counts


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


class Matcher:
    """Allows the tokens below ``limit``."""

    def __init__(self, limit: int):
        self.limit = limit

    def fork(self) -> Matcher:
        return self

    def is_terminated(self) -> bool:
        return False

    def accept_token(self, token: int) -> bool:
        return token < self.limit

    def rollback(self, count: int) -> None:
        pass


def test_what_a_mask_refuses_is_taken_out_of_the_tree(faults: Faults) -> None:
    table, req = Table(faults), request(output=(1,))
    req.grammar = Request(matcher=Matcher(51))

    assert table.draft(req, [], 8).tokens == [1, 50]
    assert table.draft(req, [90], 8).tokens == [90, 50]  # the root is committed already


def test_a_matcher_that_fails_costs_the_draft_only(faults: Faults) -> None:
    table, req = Table(faults), request(output=(1,))
    req.grammar = Request(matcher=Request(is_terminated=lambda: False))

    assert table.draft(req, [], 8).tokens == [1]
    assert faults.counts == {"session: AttributeError": 1}


def test_a_table_learns_from_the_end_of_a_reply(faults: Faults) -> None:
    """The last step of a reply writes its last value, and closes the call."""
    make = fakes.factory(faults=faults)
    table = SessionTable(make, faults)
    reply = list(write_call("hermes", "get_weather", {"city": "Trondheim"}).encode())
    first = fakes.request(tools=[GET_WEATHER], rid="first")
    first.output_ids.extend(reply[:10])
    table.draft(first, [], 8)

    first.output_ids.extend([*reply[10:], fakes.END])
    table.keep_only([])

    second = fakes.request(tools=[GET_WEATHER], rid="second")
    second.output_ids.extend(reply[: reply.index(ord("T"))])
    assert any(text.startswith("Trondheim") for text in fakes.texts_of(table.draft(second, [], 32)))
    assert not faults.counts
