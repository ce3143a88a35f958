"""A session: what its drafters are told, and what a fault of one of them costs."""

from __future__ import annotations

import pytest

from sglang_toolspec.runtime.session import Faults, Session
from tests.sessions import VOCAB, Broken, Recorder


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


def test_a_drafter_that_raises_when_closed_costs_nothing(faults: Faults) -> None:
    good = Recorder()
    session = Session([Broken("close"), good], VOCAB, faults)

    session.close()

    assert good.closed == 1
    assert faults.counts == {"broken: RuntimeError": 1}
