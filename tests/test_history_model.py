"""After any sequence of changes a history holds what a plain list would."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_toolspec.runtime.history import shelf, table
from sglang_toolspec.runtime.history.history import VARIANTS, History
from sglang_toolspec.runtime.history.ranking import FULL_USE, GRACE
from tests.histories import Clock, contents, opened

TENANTS = "abcd"
PLACES = np.eye(12, dtype=np.float32)
"""Vectors that are the same, or nothing like each other."""
MAX_TENANTS = 3


@dataclass
class Plain:
    id: int
    tenant: str
    place: int
    token: int
    created: float
    stamp: int
    used: int = 0
    drafted: int = 0


@dataclass
class Model:
    """The rules of ``History``, in the plainest way."""

    capacity: int
    now: Clock = field(default_factory=Clock)
    entries: list[Plain] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Tenants with entries, the one asked about last at the end."""
    added: int = 0
    next_id: int = 1

    def of(self, tenant: str) -> list[Plain]:
        return sorted((e for e in self.entries if e.tenant == tenant), key=lambda e: -e.created)

    def add(self, tenant: str, place: int, token: int) -> None:
        created = self.now()
        twins = [e for e in self.of(tenant) if e.place == place]
        for twin in twins:
            if twin.token == token:
                twin.created, twin.stamp = created, self.added
                self.ask(tenant)
                return
        if len(twins) >= VARIANTS:
            self.remove(min(twins, key=lambda e: e.created))
        elif len(self.entries) >= self.capacity:
            self.remove(min(self.entries, key=lambda e: (self.standing(e), e.id)))
        if tenant not in self.asked:
            while len(self.asked) >= MAX_TENANTS:
                for entry in self.of(self.asked[0]):
                    self.remove(entry)
            self.asked.append(tenant)
        self.added += 1
        self.entries.append(Plain(self.next_id, tenant, place, token, created, self.added))
        self.next_id += 1
        self.ask(tenant)

    def standing(self, entry: Plain) -> float:
        return entry.stamp + GRACE * self.capacity * min(entry.used, FULL_USE) / FULL_USE

    def credit(self, tenant: str, which: int, accepted: int) -> None:
        if entries := self.of(tenant):
            entry = entries[which % len(entries)]
            entry.drafted += 1
            if accepted:
                entry.used += accepted
                entry.stamp = self.added

    def forget(self, tenant: str | None, older_than: float | None) -> int:
        until = None if older_than is None else self.now() - older_than
        gone = [
            e for e in self.entries if tenant in (None, e.tenant) and (until is None or e.created < until)
        ]
        for entry in gone:
            self.remove(entry)
        return len(gone)

    def remove(self, entry: Plain) -> None:
        self.entries.remove(entry)
        if not self.of(entry.tenant):
            self.asked.remove(entry.tenant)

    def ask(self, tenant: str) -> None:
        if tenant in self.asked:
            self.asked.remove(tenant)
            self.asked.append(tenant)

    def restart(self) -> None:
        self.asked.sort(key=lambda tenant: max((e.stamp, e.id) for e in self.of(tenant)))
        self.added = max((e.stamp for e in self.entries), default=0)

    def contents(self) -> dict[str, list[tuple[Any, ...]]]:
        return {
            tenant: [([e.token], ("t",), e.created, e.used, e.drafted, tenant) for e in self.of(tenant)]
            for tenant in self.asked
        }


TENANT = st.sampled_from(TENANTS)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), TENANT, st.integers(0, len(PLACES) - 1), st.integers(0, 5)),
        st.tuples(st.just("add"), st.just("a"), st.integers(0, len(PLACES) - 1), st.just(0)),
        st.tuples(st.just("credit"), TENANT, st.integers(0, 9), st.sampled_from([0, 1, 30, 100])),
        st.tuples(st.just("ask"), TENANT, st.integers(0, len(PLACES) - 1)),
        st.tuples(st.just("forget"), st.none() | TENANT, st.none() | st.sampled_from([2.5, 10.5])),
        st.tuples(st.just("restart")),
    ),
    max_size=60,
)


def check_asked(history: History, model: Model, tenant: str, place: int) -> None:
    found = history.similar(tenant, 3 * PLACES[place], 100)
    model.ask(tenant)
    expected = model.of(tenant)
    assert sorted(e.entry.tokens[0] for e in found) == sorted(e.token for e in expected)
    same = [e for e in found if e.similarity > 0.999]
    assert found[: len(same)] == same
    assert sorted(e.entry.tokens[0] for e in same) == sorted(e.token for e in expected if e.place == place)


@pytest.mark.parametrize("capacity", [1, 5, 12])
@settings(max_examples=40)
@given(changes=CHANGES)
def test_a_history_holds_what_a_plain_list_would(capacity: int, changes: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as small:
        for module in (table, shelf):
            small.setattr(module, "FLAT_SLOTS", 6)
        small.setattr(shelf, "FIRST_SLOTS", 3)
        clock = Clock()
        options = {"capacity": capacity, "max_tenants": MAX_TENANTS, "now": clock}
        model = Model(capacity)
        history = opened(Path(name) / "h", **options)
        for change in changes:
            match change:
                case ("add", tenant, place, token):
                    assert history.add(tenant, PLACES[place], [token], ["t"])
                    model.add(tenant, place, token)
                case ("credit", tenant, which, accepted):
                    if entries := list(history.entries(tenant)):
                        history.credit(entries[which % len(entries)], accepted)
                    model.credit(tenant, which, accepted)
                case ("ask", tenant, place):
                    check_asked(history, model, tenant, place)
                case ("forget", tenant, older_than):
                    assert history.forget(tenant, older_than) == model.forget(tenant, older_than)
                case _:
                    history.close()
                    history = opened(Path(name) / "h", **options)
                    model.restart()
            assert contents(history) == model.contents()
            assert list(contents(history)) == model.asked
        history.close()
