"""Drafters, requests and a table that remember what they were told, for tests."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from sglang_toolspec.runtime.attribution import Attribution
from sglang_toolspec.runtime.engine.sessions import SessionTable
from sglang_toolspec.runtime.session import Faults, Session
from sglang_toolspec.runtime.tree import DraftPath

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
