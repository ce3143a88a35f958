"""Memory, recall and speed of the history at full size; prints one JSON object.

``python -m tests.bench_history [NAME…]`` runs each measurement in a process of its own, so that what
it adds to the resident memory is its own. Names are the keys of ``MEASUREMENTS``.

Data are made up, because hidden states of real prompts cannot be had by the ten thousand here:

- ``clustered``: prompts of a few kinds. One direction common to all (hidden states of one position
  have one), a centre for each 50 entries, and around it a spread in 16 directions of the cluster's own
  with a little noise in all directions. Cosines are about 0.95 within a cluster and 0.5 between two.
- ``noisy``: the same, but the spread is noise in all directions alone: the hardest clusters there are,
  because the order within one is decided by nothing but noise.
- ``isotropic``: no clusters at all. Nobody could search this by a part of the numbers.

Queries are fresh points of the same distribution; recall is against exact cosines in float32.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from sglang_toolspec.runtime.history.history import History
from sglang_toolspec.runtime.history.manifest import Fingerprint
from sglang_toolspec.runtime.history.opening import open_history

CLUSTER = 50
SPREAD_DIMS = 16
MARK = Fingerprint(model="bench", tokenizer="bench")
TOKENS = 60


class Points:
    """Endless points of one kind; ``take`` returns float32 [count, dim]."""

    def __init__(self, kind: str, dim: int, entries: int, seed: int = 0):
        self._kind, self._dim = kind, dim
        self._rng = np.random.default_rng(seed)
        clusters = max(1, entries // CLUSTER)
        self._common = self._normal(dim)
        self._centres = self._normal(clusters, dim)
        # Directions of each cluster are a few rows of one large set: a set for each would not fit.
        self._directions = self._normal(512, dim)
        self._choice = self._rng.integers(0, 512, (clusters, SPREAD_DIMS))

    def take(self, count: int) -> np.ndarray:
        if self._kind == "isotropic":
            return self._normal(count, self._dim)
        which = self._rng.integers(0, len(self._centres), count)
        points = self._common + self._centres[which]
        if self._kind == "noisy":
            return points + 0.32 * self._normal(count, self._dim)
        weights = self._normal(count, SPREAD_DIMS) * (0.3 / np.sqrt(SPREAD_DIMS))
        for row, (cluster, weight) in enumerate(zip(which, weights, strict=True)):
            points[row] += weight @ self._directions[self._choice[cluster]]
        return points + 0.1 * self._normal(count, self._dim)

    def _normal(self, *shape: int) -> np.ndarray:
        return self._rng.standard_normal(shape, dtype=np.float32)


def resident() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


def tokens(number: int) -> np.ndarray:
    return (np.arange(TOKENS) + number) % 150_000


class Times:
    """How long pieces of work took, in wall and in processor time of their thread."""

    def __init__(self) -> None:
        self._wall: list[float] = []
        self._used: list[float] = []

    @contextmanager
    def one(self) -> Iterator[None]:
        wall, used = time.perf_counter(), time.thread_time()
        yield
        self._used.append(time.thread_time() - used)
        self._wall.append(time.perf_counter() - wall)

    def milliseconds(self, last: int = 0) -> dict[str, float]:
        """Of all pieces, or the last."""
        wall, used = sorted(self._wall[-last:]), sorted(self._used[-last:])
        return {
            "median": round(1000 * statistics.median(wall), 3),
            "p99": round(1000 * wall[int(0.99 * (len(wall) - 1))], 3),
            "max": round(1000 * wall[-1], 3),
            "processor_median": round(1000 * statistics.median(used), 3),
            "processor_max": round(1000 * used[-1], 3),
        }


def fill(history: History, points: Points, count: int, times: Times, start: int = 0) -> Iterator[None]:
    """Add entries, one with each step."""
    for first in range(start, start + count, 500):
        vectors = points.take(min(500, start + count - first))
        for number, vector in enumerate(vectors, first):
            with times.one():
                history.add("tenant", vector, tokens(number), ["get_weather"])
            yield


def drain(steps: Iterator[None]) -> None:
    for _ in steps:
        pass


def recall(kind: str, dim: int = 4096, entries: int = 20_000, turnovers: int = 0) -> dict[str, Any]:
    """Recall@10, memory and times; ``turnovers`` replaces all entries so often before."""
    points = Points(kind, dim, entries)
    Points(kind, dim, entries, seed=1).take(500)  # what making points leaves allocated is not ours
    before = resident()
    history = History(capacity=entries)
    adding, asking = Times(), Times()
    drain(fill(history, points, entries * (1 + turnovers), adding))
    grown = resident() - before
    by_number = {int(e.tokens[0]): e for e in history.entries("tenant")}
    first = entries * turnovers
    assert len(by_number) == entries
    queries = points.take(200)
    # The stored vectors are made once more, rather than kept beside the history that is measured.
    again = Points(kind, dim, entries)
    best: list[list[tuple[float, int]]] = [[] for _ in queries]
    unit_queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    for start in range(0, entries * (1 + turnovers), 500):
        vectors = again.take(500)
        if start < first:
            continue
        cosines = vectors @ unit_queries.T / np.linalg.norm(vectors, axis=1, keepdims=True)
        for query, column in enumerate(cosines.T):
            top = np.argpartition(-column, 10)[:10]
            best[query] = sorted(best[query] + [(-column[i], start + int(i)) for i in top])[:10]
    hits = 0
    for query, expected in zip(queries, best, strict=True):
        with asking.one():
            found = history.similar("tenant", query, 10)
        hits += len({int(n.entry.tokens[0]) for n in found} & {number % 150_000 for _, number in expected})
    stats = history.stats()
    return {
        "dim": dim,
        "entries": entries,
        "recall_at_10": round(hits / (10 * len(queries)), 4),
        "bytes_per_entry_resident_without_tokens": round((grown - stats["token_bytes"]) / entries),
        "bytes_per_entry_estimated": stats["vector_bytes_per_entry"],
        "token_bytes_per_entry": stats["token_bytes"] // entries,
        "query_ms": asking.milliseconds(),
        "add_ms": adding.milliseconds(last=entries),
    }


def query_while_adding(entries: int, dim: int = 896) -> dict[str, Any]:
    """Queries by one thread while another adds 50 entries a second."""
    points = Points("clustered", dim, entries)
    history = History(capacity=entries + 10_000)
    drain(fill(history, points, entries, Times()))
    done = threading.Event()
    asking, adding = Times(), Times()

    def add() -> None:
        for _ in fill(history, Points("clustered", dim, entries, seed=1), 10_000, adding, start=entries):
            if done.wait(0.02):
                return

    thread = threading.Thread(target=add)
    thread.start()
    for query in points.take(5000):
        with asking.one():
            history.similar("tenant", query, 10)
    done.set()
    thread.join()
    return {
        "dim": dim,
        "entries": entries,
        "query_ms": asking.milliseconds(),
        "add_ms": adding.milliseconds(),
    }


def requests(dim: int = 896, capacity: int = 4000, count: int = 20_000) -> dict[str, Any]:
    """A server's life in small: each request asks, credits what it found, and is added; on disk."""
    points = Points("clustered", dim, capacity)
    rng = np.random.default_rng(2)
    with tempfile.TemporaryDirectory() as folder:
        history = open_history(Path(folder) / "h", MARK, capacity)
        resident_mb, took = {}, Times()
        for first in range(0, count, 500):
            for number, vector in enumerate(points.take(500), first):
                tenant = f"tenant {rng.zipf(1.5) % 40}"
                with took.one():
                    found = history.similar(tenant, vector)
                    if found:
                        history.credit(found[0].entry, number % 3)
                    history.add(tenant, vector, tokens(number), ["get_weather"])
            if first % 2000 == 0:
                resident_mb[first] = round(resident() / 1e6, 1)
        whole = history.flush(60)
        stats = history.stats()
        history.close()
    return {"requests": count, "resident_mb": resident_mb, "ms": took.milliseconds(), "flushed": whole} | {
        "stats": stats
    }


def load(dim: int = 896, entries: int = 20_000) -> dict[str, Any]:
    """Seconds until a history on disk is ready again: its index is built anew."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "h"
        history = open_history(folder, MARK, entries)
        drain(fill(history, Points("clustered", dim, entries), entries, Times()))
        history.close()
        size = sum(file.stat().st_size for file in folder.iterdir())
        began = time.perf_counter()
        history = open_history(folder, MARK, entries)
        seconds = time.perf_counter() - began
        found = history.stats()["entries"]
        history.close()
    return {"dim": dim, "entries": found, "seconds": round(seconds, 2), "file_mb": round(size / 1e6, 1)}


MEASUREMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "clustered_4096": lambda: recall("clustered"),
    "noisy_4096": lambda: recall("noisy"),
    "isotropic_4096": lambda: recall("isotropic"),
    "clustered_896": lambda: recall("clustered", 896),
    "clustered_896_100000": lambda: recall("clustered", 896, 100_000),
    "turned_over_4096": lambda: recall("clustered", turnovers=2),
    "turned_over_896": lambda: recall("clustered", 896, turnovers=2),
    "query_1000": lambda: query_while_adding(1000),
    "query_100000": lambda: query_while_adding(100_000),
    "requests": requests,
    "load_20000": load,
    "load_20000_4096": lambda: load(4096),
}


def main() -> None:
    names = sys.argv[1:] or list(MEASUREMENTS)
    if unknown := set(names) - set(MEASUREMENTS):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(MEASUREMENTS)}")
    if len(names) == 1:
        print(json.dumps({names[0]: MEASUREMENTS[names[0]]()}))
        return
    report: dict[str, Any] = {}
    for name in names:
        command = [sys.executable, "-m", "tests.bench_history", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        report |= json.loads(done.stdout)
        print(name, report[name], file=sys.stderr)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
