"""Sessions: what drafters are told, what a fault or a leaving request costs, and which drafters a
request gets."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sglang_toolspec.runtime.attribution import PREFILL, TARGET, Attribution
from sglang_toolspec.runtime.config import SOURCES, Config
from sglang_toolspec.runtime.engine.drafting import SessionFactory
from sglang_toolspec.runtime.engine.sessions import SessionTable
from sglang_toolspec.runtime.engine.worker import accepted_rows, unseen
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tree import DraftPath
from tests import fakes
from tests.toolsets import GET_WEATHER, LIST_ALARMS, write_call

VOCAB = 100


class Recorder:
    """Remembers what was committed and proposes one fixed path."""

    def __init__(self, name: str = "recorder", proposal: tuple[int, ...] = (50, 51)):
        self.name = name
        self.proposal = proposal
        self.committed: list[int] = []
        self.closed = 0

    def commit(self, tokens: list[int]) -> None:
        self.committed += tokens

    def close(self) -> None:
        self.closed += 1

    def propose(self) -> list[DraftPath]:
        count = len(self.proposal)
        return [DraftPath(tuple(self.proposal), (0.9,) * count, (self.name,) * count)]


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

    def close(self) -> None:
        if self.fails == "close":
            raise self.error("no")
        super().close()


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
    return Request(
        rid=rid, origin_input_ids=[7, 8], output_ids=list(output), grammar=None, finished=lambda: False,
        finished_len=None,
    )  # fmt: skip


class Table(SessionTable):
    """A table that keeps the drafters it made."""

    def __init__(self, faults: Faults, make: Callable[[], Recorder] = Recorder):
        self.drafters: list[Recorder] = []
        self.told: list[tuple[str, Attribution, bool]] = []
        super().__init__(lambda req: self._new(make(), faults), faults, lambda *told: self.told.append(told))

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


def test_a_drafter_that_raises_when_closed_costs_nothing(faults: Faults) -> None:
    good = Recorder()
    session = Session([Broken("close"), good], VOCAB, faults)

    session.close()

    assert good.closed == 1
    assert faults.counts == {"broken: RuntimeError": 1}


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


# Masked requests.


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


# The drafters of a request.

SCHEMA = frozenset({"schema"})
LISTING = f"You may call:\n<tools>\n{json.dumps(GET_WEATHER)}\n</tools>\nIs it cold in Oslo?"
REPLY_SCHEMA = json.dumps({"properties": {"verdict": {"enum": ["guilty"]}}, "required": ["verdict"]})
REPEATING = "Why?\nHello, because. Why?"
"""The suffix drafter knows what follows the line break after it."""
OTHER_BACKEND = Request(ll_matcher=object())


def offered(make: SessionFactory, req: fakes.Request) -> str:
    """The text of all first drafts."""
    session = make(req)
    session.commit(b"\n")
    return "\n".join(fakes.texts_of(session.draft(64)))


def with_schema(schema: str, **more: Any) -> fakes.Request:
    req = fakes.request(grammar=OTHER_BACKEND, **more)
    req.sampling_params.json_schema = schema
    return req


def test_tools_of_the_request_are_drafted() -> None:
    make = fakes.factory(sources=SCHEMA)

    assert "get_weather" in offered(make, fakes.request(tools=[GET_WEATHER]))
    assert offered(make, fakes.request(tools=[GET_WEATHER], choice="none")) == ""
    assert offered(make, fakes.request(tools=[])) == ""


def test_tools_that_only_the_prompt_lists_are_drafted_unless_switched_off() -> None:
    req = fakes.request(LISTING)

    assert "get_weather" in offered(fakes.factory(sources=SCHEMA), req)
    assert offered(fakes.factory(sources=SCHEMA, prompt_tools=False), req) == ""


def test_tools_of_the_request_count_more_than_those_of_the_prompt() -> None:
    make = fakes.factory(sources=SCHEMA)

    assert "get_weather" not in offered(make, fakes.request(LISTING, tools=[LIST_ALARMS]))
    assert offered(make, fakes.request(LISTING, tools=[LIST_ALARMS], choice="none")) == ""


def test_a_reply_with_a_schema_of_its_own_is_drafted() -> None:
    found = offered(fakes.factory(sources=SCHEMA), with_schema(REPLY_SCHEMA))

    assert '{"verdict": "guilty"}' in found


def test_such_a_reply_calls_none_of_the_tools_that_are_offered_besides() -> None:
    make = fakes.factory(sources=SCHEMA)

    for req in (with_schema(REPLY_SCHEMA, prompt=LISTING), with_schema(REPLY_SCHEMA, tools=[GET_WEATHER])):
        found = offered(make, req)
        assert "verdict" in found
        assert "get_weather" not in found


def test_the_schema_of_a_forced_call_is_that_of_its_tools() -> None:
    """SGLang sets one for ``required`` where a parser has no structural tag."""
    forced = json.dumps({"type": "array", "items": {"anyOf": [{"type": "object"}]}})
    req = with_schema(forced, tools=[GET_WEATHER], choice="required")

    assert "get_weather" in offered(fakes.factory(sources=SCHEMA), req)


@pytest.mark.parametrize("schema", ["$$ANY$$", "true", None, "[]", ""])
def test_a_schema_that_says_nothing_is_no_fault(schema: Any) -> None:
    assert offered(fakes.factory(sources=SCHEMA), with_schema(schema)) == ""


@pytest.mark.parametrize("schema", ["{", "{" * 100_000, '{"properties": ' * 90 + "{}" + "}" * 90])
def test_a_malformed_schema_costs_its_own_drafts_only(faults: Faults, schema: str) -> None:
    found = offered(fakes.factory(faults=faults), with_schema(schema, prompt=REPEATING))

    assert "Hello" in found
    assert sum(faults.counts.values()) == 1
    assert next(iter(faults.counts)).startswith("json_schema: ")


@pytest.mark.parametrize("wire", ["", "{", "[]", '{"tools": 1}', '{"tools": [{"name": 1}]}', '{"odd": 1}'])
def test_malformed_custom_params_cost_their_own_drafts_only(faults: Faults, wire: str) -> None:
    req = fakes.request(REPEATING)
    req.sampling_params.custom_params = {"toolspec": wire}

    assert "Hello" in offered(fakes.factory(faults=faults), req)
    assert faults.counts == {"custom_params: UserError": 1}


@pytest.mark.parametrize("custom", [None, {}, {"toolspec": None}, {"toolspec": 3}, {"other": "{"}, "text"])
def test_custom_params_of_others_are_no_fault(custom: Any) -> None:
    req = fakes.request(LISTING)
    req.sampling_params.custom_params = custom

    assert "get_weather" in offered(fakes.factory(sources=SCHEMA), req)


OF_TEXT = tuple(source for source in SOURCES if source not in ("history", "recycling"))
"""Sources that need nothing of the target's states."""


@pytest.mark.parametrize(
    "sources", [(), *combinations(OF_TEXT, 1), *combinations(OF_TEXT, 2), OF_TEXT], ids="+".join
)
def test_only_the_chosen_sources_draft(sources: tuple[str, ...]) -> None:
    make = fakes.factory(sources=frozenset(sources))
    reply = write_call("hermes", "get_weather", {"city": "Oslo", "days": 3})
    prompt = f"For example {reply}. Is it cold in Oslo?"

    for _ in range(2):  # values are remembered from the first reply
        trees = fakes.followed(make, fakes.request(prompt, [GET_WEATHER]), reply)

    found = {name for tree in trees for name in tree.sources} - {""}
    # Guesses of values have a place only in what the schema drafts.
    assert found == (set(sources) if "schema" in sources else set(sources) & {"suffix"})


def test_a_mask_of_another_kind_is_told_to_the_schema_drafter() -> None:
    asked: set[bool] = set()

    class Codec(fakes.ByteCodec):
        def encode(self, text: str, literal: bool = False) -> tuple[int, ...]:
            asked.add(literal)
            return super().encode(text)

    codec = Codec()
    for grammar, literal in ((None, False), (OTHER_BACKEND, True), (Request(grammar=None), False)):
        asked.clear()
        offered(
            fakes.factory(sources=SCHEMA, codec=codec), fakes.request(tools=[GET_WEATHER], grammar=grammar)
        )
        assert asked == {literal}


def test_without_a_codec_nothing_is_drafted(faults: Faults) -> None:
    make = SessionFactory(None, "qwen25", faults, Config())

    session = make(fakes.request(LISTING, tools=[GET_WEATHER]))
    session.commit([1, 2])

    assert session.draft(8).tokens == [2]


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
