"""Searching: hnswlib's faults stay inside, and tables that grow and shrink find what is nearest."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sglang_toolspec.runtime.history import shelf as shelves
from sglang_toolspec.runtime.history import vectors
from sglang_toolspec.runtime.history.entry import Entry
from sglang_toolspec.runtime.history.graph import Graph
from sglang_toolspec.runtime.history.shelf import Shelf
from sglang_toolspec.runtime.history.table import Query
from sglang_toolspec.runtime.history.vectors import VectorCode, unit_vector
from tests.histories import direction, exact

DIM = 16


def units(count: int, dim: int = DIM, start: int = 0) -> np.ndarray:
    found = np.stack([direction(number, dim) for number in range(start, start + count)])
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def graph(count: int, slots: int = 100) -> Graph:
    made = Graph(DIM, slots)
    if count:
        made.put(range(count), units(count))
    return made


def test_a_query_for_more_than_is_left_after_dropping() -> None:
    """hnswlib throws: add 5, drop 3, ask for 3."""
    made = graph(5)
    for slot in (0, 2, 4):
        made.drop(slot)

    slots, _ = made.nearest(units(1)[0], 3)

    assert sorted(slots.tolist()) == [1, 3]


@pytest.mark.parametrize("dropped", [0, 5])
def test_a_query_where_nothing_is(dropped: int) -> None:
    """hnswlib throws."""
    made = graph(dropped)
    for slot in range(dropped):
        made.drop(slot)

    slots, similarity = made.nearest(units(1)[0], 3)

    assert len(slots) == len(similarity) == 0


def test_nodes_that_cannot_be_reached_cost_neighbours_not_an_exception() -> None:
    class Unreachable:
        def set_ef(self, ef: int) -> None: ...

        def knn_query(self, vector: np.ndarray, k: int, num_threads: int) -> tuple[np.ndarray, np.ndarray]:
            if k > 2:
                raise RuntimeError("Cannot return the results in a contiguous 2D array.")
            return np.array([[7, 8]][:k]), np.array([[0.25, 0.5]])

    made = graph(10)
    made._index = Unreachable()

    slots, similarity = made.nearest(units(1)[0], 10)

    assert slots.tolist() == [7, 8]
    assert similarity.tolist() == [0.75, 0.5]


def test_a_query_for_more_than_ef_candidates() -> None:
    """ef is 10 unless it is set, and a query for more throws."""
    made = graph(300, slots=300)

    slots, similarity = made.nearest(units(1)[0], 250)

    assert len(set(slots.tolist())) == 250
    assert similarity.tolist() == sorted(similarity.tolist(), reverse=True)
    assert len(set(slots.tolist()) & set(exact(units(300), units(1)[0], 250))) > 240


def test_a_slot_that_is_used_again_has_the_new_vector_only() -> None:
    made = graph(5, slots=5)
    new = units(1, start=50)
    made.drop(2)
    made.put([2], new)

    slots, similarity = made.nearest(new[0], 5)

    assert slots[0] == 2
    assert similarity[0] == pytest.approx(1, abs=1e-5)
    assert sorted(slots.tolist()) == [0, 1, 2, 3, 4]


def test_growing_beyond_the_declared_capacity() -> None:
    """hnswlib throws unless it is told before."""
    made = graph(5, slots=5)
    made.resize(8)
    made.put(range(5, 8), units(3, start=5))

    assert made.nearest(units(8)[6], 1)[0].tolist() == [6]


# Tables.


def entry(number: int) -> Entry:
    return Entry(number, "A", np.array([number], np.int32), (), 0.0)


def put(shelf: Shelf, code: VectorCode, number: int) -> Entry:
    unit = unit_vector(direction(number, code.dim))
    assert unit is not None
    made = entry(number)
    shelf.put(made, code.row(code.turned(unit)))
    shelf.tidy()
    return made


def nearest(shelf: Shelf, code: VectorCode, number: int, count: int) -> list[int]:
    unit = unit_vector(direction(number, code.dim))
    assert unit is not None
    return [found.entry.id for found in shelf.nearest(Query.of(code, unit), count)]


@pytest.mark.usefixtures("small_tables")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dim", [DIM, 40])
def test_tables_that_grow_and_shrink_find_what_an_exact_search_does(
    seed: int, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "WHOLE_DIM", 20)  # so that 40 numbers are stored as eight bits
    monkeypatch.setattr(vectors, "SEARCHED_DIM", 20)
    chance = random.Random(seed)
    code = VectorCode(dim)
    shelf = Shelf(code, 60)
    live: dict[int, Entry] = {}
    for number in range(400):
        # Phases in which more is added than dropped, and the other way round.
        adding = len(live) < 60 and chance.random() < (0.8 if number // 80 % 2 == 0 else 0.2)
        if adding or not live:
            live[number] = put(shelf, code, number)
        else:
            shelf.drop(live.pop(chance.choice(list(live))))
            shelf.tidy()
        if number % 5 == 0 and live:
            asked = chance.choice(list(live))
            found = nearest(shelf, code, asked, 3)
            ids = list(live)
            points = np.stack([direction(n, dim) for n in ids])
            wanted = [ids[i] for i in exact(points, direction(asked, dim), 3)]
            assert found[0] == asked
            assert len(set(found) & set(wanted)) >= len(wanted) - 1
            assert set(nearest(shelf, code, asked, 100)) == set(live)
    assert list(shelf.entries) == list(live)


@pytest.mark.usefixtures("small_tables")
def test_each_change_moves_a_few_entries_only(monkeypatch: pytest.MonkeyPatch) -> None:
    code = VectorCode(DIM)
    shelf = Shelf(code, 60)
    entries = [put(shelf, code, number) for number in range(60)]
    largest = shelf.bytes
    moved = []
    put_before = shelves.Table.put
    monkeypatch.setattr(shelves.Table, "put", lambda *args: (moved.append(1), put_before(*args)))

    for leaving in entries[:58]:
        shelf.drop(leaving)
        moved.clear()
        shelf.tidy()
        assert len(moved) <= shelves.MOVES

    for _ in range(5):
        shelf.tidy()

    assert shelf.bytes < largest / 100
    assert sorted(nearest(shelf, code, 55, 60)) == list(range(58, 60))


def test_a_tenant_with_few_entries_takes_little_memory() -> None:
    """An empty hnswlib index alone takes 2.6 MB, and there may be a hundred tenants."""
    code = VectorCode(896)
    shelf = Shelf(code, 20_000)
    put(shelf, code, 0)
    assert shelf.bytes < 200_000


@pytest.mark.parametrize("dim", [64, 2048])
def test_recall_among_clusters(dim: int) -> None:
    """At least 0.95 of the ten nearest; tests/bench_history.py measures it at full size."""
    rng = np.random.RandomState(0)
    centres = rng.normal(size=(30, dim))
    spread = rng.normal(size=(30, 8, dim)) / np.sqrt(8)
    members = [c for c in range(30) for _ in range(20)]
    points = np.stack([centres[c] + 0.4 * rng.normal(size=8) @ spread[c] for c in members])
    code = VectorCode(dim)
    shelf = Shelf(code, 2000)
    for number, point in enumerate(points):
        unit = unit_vector(point)
        assert unit is not None
        shelf.put(entry(number), code.row(code.turned(unit)))
        shelf.tidy()

    hits = 0
    for c in range(30):
        query = (centres[c] + 0.4 * rng.normal(size=8) @ spread[c]).astype(np.float32)
        unit = unit_vector(query)
        assert unit is not None
        found = {neighbour.entry.id for neighbour in shelf.nearest(Query.of(code, unit), 10)}
        hits += len(found & set(exact(points, query, 10)))
    assert hits / 300 >= 0.95
