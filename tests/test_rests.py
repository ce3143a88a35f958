"""Sources that fail, stall or never pay rest, and are tried again."""

import pytest

from sglang_toolspec.runtime.drafters.base import Drafter
from sglang_toolspec.runtime.rests import FAULTS, FRUITLESS, REST, STALL, Rests
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tree import DraftPath

VOCAB = 100


def wait(rests, drafts):
    for _ in range(drafts):
        rests.step()


def test_a_source_that_fails_in_a_row_rests_and_is_tried_again():
    rests = Rests()
    for _ in range(FAULTS):
        assert rests.awake("copy")
        rests.fault("copy")
    assert not rests.awake("copy")
    assert rests.resting() == ["copy"]
    assert rests.awake("schema")
    wait(rests, REST)
    assert rests.awake("copy")
    assert rests.begun == {"copy": 1}


def test_a_fault_now_and_then_is_no_reason():
    rests = Rests()
    for _ in range(10 * FAULTS):
        rests.fault("copy")
        rests.drafted("copy", 0.0)
    assert rests.awake("copy")


def test_a_stalling_source_rests():
    rests = Rests()
    for _ in range(FAULTS):
        rests.drafted("copy", 2 * STALL)
    assert not rests.awake("copy")


def test_a_source_that_is_never_right_rests():
    rests = Rests()
    for _ in range(FRUITLESS - 1):
        rests.outcome("suffix", right=False)
    rests.outcome("suffix", right=True)
    assert rests.awake("suffix")
    for _ in range(FRUITLESS):
        rests.outcome("suffix", right=False)
    assert not rests.awake("suffix")


class Faulty(Drafter):
    name = "faulty"

    def commit(self, tokens):
        pass

    def close(self):
        pass


class Raising(Faulty):
    def propose(self):
        raise RuntimeError("broken")


class Endless(Faulty):
    def propose(self):
        while True:
            yield DraftPath((5,), (0.5,), (self.name,))


class Garbage(Faulty):
    def propose(self):
        return [DraftPath((10**9, -4), (0.9, 0.8), (self.name,) * 2)]


class Long(Faulty):
    def propose(self):
        n = 10**5
        return [DraftPath((7,) * n, (0.5,) * n, (self.name,) * n)]


class Good(Faulty):
    name = "good"

    def propose(self):
        return [DraftPath((1, 2), (0.9, 0.8), (self.name,) * 2)]


@pytest.mark.parametrize("faulty", [Raising, Endless, Garbage, Long])
def test_a_faulty_source_leaves_the_drafts_of_others(faulty):
    session = Session([faulty(), Good()], VOCAB, Faults(lambda reason, error: None))
    session.commit([3])
    tree = session.draft(16)
    assert tree.tokens[0] == 3
    assert [tree.tokens[node] for node in tree.follow([1, 2])] == [1, 2]
    assert len(tree) <= 16
    assert all(0 <= token < VOCAB for token in tree.tokens)


def test_a_source_that_fails_in_every_request_rests_for_all():
    rests, faults = Rests(), Faults(lambda reason, error: None)
    for _ in range(FAULTS + 5):
        session = Session([Raising()], VOCAB, faults, rests=rests)
        session.commit([3])
        session.draft(8)
    assert faults.counts == {"faulty: RuntimeError": FAULTS}
    assert rests.resting() == ["faulty"]
