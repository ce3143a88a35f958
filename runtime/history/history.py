"""Replies of the past by the hidden state at the end of their prompt, each tenant's by themselves."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from sglang_toolspec.runtime.history.entry import Call, Entry, Neighbour, checked_call, is_tenant
from sglang_toolspec.runtime.history.ranking import Ranking
from sglang_toolspec.runtime.history.records import Record, Stored, added, changed, removed
from sglang_toolspec.runtime.history.replay import most_useful
from sglang_toolspec.runtime.history.shelf import Shelf
from sglang_toolspec.runtime.history.table import Query
from sglang_toolspec.runtime.history.vectors import VectorCode, unit_vector

CAPACITY = 20_000
MAX_TENANTS = 128
SAME = 0.9999
"""Cosine from which two prompts count as one."""
VARIANTS = 4
"""Different replies kept for what counts as one prompt, the newest."""


class Journal(Protocol):
    """Where changes are written down. Nothing here raises; only ``flush`` and ``close`` may block."""

    def put(self, record: Record) -> None: ...

    def compact(self) -> None:
        """Soon leave nothing of removed entries on disk."""

    def stats(self) -> dict[str, int]: ...

    def flush(self, seconds: float) -> bool:
        """Wait until all of it is on disk; whether it is."""

    def close(self) -> None: ...


class History:
    """For all threads: one lock, because an hnswlib index cannot be searched while it changes.

    At most ``capacity`` entries in all and ``max_tenants`` tenants; the tenant that was not asked
    about for longest goes first. All vectors have ``dim`` numbers, as many as the first one where it
    is not given. ``now`` is in seconds since 1970.
    """

    def __init__(
        self,
        capacity: int = CAPACITY,
        max_tenants: int = MAX_TENANTS,
        dim: int | None = None,
        journal: Journal | None = None,
        now: Callable[[], float] = time.time,
    ):
        if capacity < 1 or max_tenants < 1:
            raise ValueError(f"capacity and max_tenants must be at least 1, not {capacity} and {max_tenants}")
        self._capacity = capacity
        self._max_tenants = max_tenants
        self._code = VectorCode(dim) if dim is not None else None
        self._journal = journal
        self._now = now
        self._lock = threading.Lock()
        self._shelves: OrderedDict[str, Shelf] = OrderedDict()
        """By tenant, the one asked about last at the end; none is empty."""
        self._ranking = Ranking(capacity)
        self._entries = 0
        self._token_bytes = 0
        self._next_id = 1
        self._counts: Counter[str] = Counter()

    @property
    def dim(self) -> int | None:
        """Numbers in a vector; ``None`` before the first."""
        return self._code.dim if self._code else None

    def add(self, tenant: str, vector: Any, tokens: Sequence[int], tools: Sequence[str]) -> bool:
        """Remember that a prompt with hidden state ``vector`` was answered with ``tokens``.

        A prompt and reply that are there already become new again. ``False``, and no change, for
        arguments that cannot be kept.
        """
        call = checked_call(tenant, vector, tokens, tools, created=self._now())
        if call is None:
            with self._lock:
                self._counts["refused"] += 1
            return False
        return self.insert(call)

    def insert(self, call: Call) -> bool:
        """``add`` for a call that has a past of its own."""
        with self._lock:
            if self.dim not in (None, len(call.vector)):
                self._counts["refused"] += 1
                return False
            query = Query.of(self._code_for(len(call.vector)), call.vector)
            twins = self._twins(call.tenant, query)
            for twin in twins:
                if twin.tokens.tobytes() == call.tokens.tobytes():
                    self._renew(twin, call)
                    return True
            if len(twins) >= VARIANTS:
                self._remove(min(twins, key=lambda twin: (twin.created, twin.id)))
            elif self._entries >= self._capacity:
                self._evict()
            self._put(call, query)
            return True

    def similar(self, tenant: str, vector: Any, k: int = 10) -> list[Neighbour]:
        """At most ``k`` entries of this tenant whose prompts are most like ``vector``, best first."""
        unit, code = unit_vector(vector), self._code
        if unit is None or code is None or code.dim != len(unit) or k < 1 or not is_tenant(tenant):
            return []
        query = Query.of(code, unit)
        with self._lock:
            if (shelf := self._shelves.get(tenant)) is None:
                return []
            self._shelves.move_to_end(tenant)
            return shelf.nearest(query, k)

    def credit(self, entry: Entry, accepted: int) -> None:
        """A draft made from ``entry`` was verified, and ``accepted`` of its tokens were right."""
        with self._lock:
            if entry.slot < 0:
                return
            entry.drafted += 1
            if accepted > 0:
                entry.used += int(accepted)
                self._ranking.renew(entry)
            if self._journal:
                self._journal.put(changed(entry))

    def entries(self, tenant: str) -> Iterator[Entry]:
        """This tenant's entries as they are now, the newest first."""
        with self._lock:
            shelf = self._shelves.get(tenant)
            return reversed(list(shelf.entries.values()) if shelf else [])

    def tenants(self) -> list[str]:
        """Those with entries, the one asked about last at the end."""
        with self._lock:
            return list(self._shelves)

    def forget(self, tenant: str | None = None, older_than: float | None = None) -> int:
        """Remove the entries of one tenant or of all, added more than ``older_than`` seconds ago or
        whenever. Returns how many there were."""
        with self._lock:
            until = None if older_than is None else self._now() - older_than
            shelves = [shelf for name, shelf in self._shelves.items() if tenant in (None, name)]
            gone = [
                entry
                for shelf in shelves
                for entry in shelf.entries.values()
                if until is None or entry.created < until
            ]
            for entry in gone:
                self._remove(entry)
            for shelf in shelves:
                shelf.tidy()
            if gone and self._journal:
                self._journal.compact()
            return len(gone)

    def stats(self) -> dict[str, Any]:
        """Counts, and estimated sizes in bytes: tokens apart from vectors with their links."""
        with self._lock:
            vectors = sum(shelf.bytes for shelf in self._shelves.values())
            found: dict[str, Any] = {
                "entries": self._entries,
                "tenants": len(self._shelves),
                "capacity": self._capacity,
                "dimension": self.dim,
                "token_bytes": self._token_bytes,
                "vector_bytes": vectors,
                "vector_bytes_per_entry": round(vectors / max(1, self._entries)),
            }
            for name in ("added", "renewed", "evicted", "refused"):
                found[name] = self._counts[name]
            if self._journal:
                found["disk"] = self._journal.stats()
            return found

    def restore(self, stored: Sequence[Stored]) -> None:
        """Take over what a folder holds, as much as there is room for; once, on a new history."""
        by_tenant: dict[str, list[Stored]] = {}
        for item in most_useful(stored, self._capacity):
            by_tenant.setdefault(item.entry.tenant, []).append(item)
        latest = sorted(by_tenant.values(), key=lambda items: max(map(_last_use, items)))
        with self._lock:
            for items in latest[-self._max_tenants :]:
                items.sort(key=lambda item: (item.entry.created, item.entry.id))
                self._restore_tenant(items)
            self._next_id = 1 + max((item.entry.id for item in stored), default=0)
            self._ranking.fill(item.entry for item in stored if item.entry.slot >= 0)
            if self._journal:
                for item in stored:
                    if item.entry.slot < 0:
                        self._journal.put(removed(item.entry))

    def flush(self, seconds: float = 10.0) -> bool:
        """Wait until everything is on disk, where there is one; whether it is."""
        journal = self._journal
        return journal.flush(seconds) if journal else True

    def close(self) -> None:
        """Write what is left and let go of the folder; later changes stay in memory."""
        with self._lock:
            journal, self._journal = self._journal, None
        if journal:
            journal.close()

    # What follows needs the lock.

    def _code_for(self, dim: int) -> VectorCode:
        if self._code is None:
            self._code = VectorCode(dim)
        return self._code

    def _twins(self, tenant: str, query: Query) -> list[Entry]:
        shelf = self._shelves.get(tenant)
        near = shelf.nearest(query, VARIANTS) if shelf else []
        return [entry for entry, similarity in near if similarity >= SAME]

    def _put(self, call: Call, query: Query) -> None:
        code = self._code_for(len(call.vector))
        if call.tenant not in self._shelves:
            while len(self._shelves) >= self._max_tenants:
                self._drop_tenant(next(iter(self._shelves)))
            self._shelves[call.tenant] = Shelf(code, self._capacity)
        shelf = self._shelves[call.tenant]
        entry = Entry(
            self._next_id, call.tenant, call.tokens, call.tools, call.created, call.used, call.drafted
        )
        row = code.row(query.turned)
        shelf.put(entry, row)
        self._ranking.enter(entry)
        self._next_id += 1
        self._entries += 1
        self._token_bytes += entry.tokens.nbytes
        self._counts["added"] += 1
        if self._journal:
            self._journal.put(added(entry, row))
        self._shelves.move_to_end(call.tenant)
        shelf.tidy()

    def _renew(self, entry: Entry, call: Call) -> None:
        entry.created = max(entry.created, call.created)
        # Not their sum: the same file may be imported twice.
        entry.used = max(entry.used, call.used)
        entry.drafted = max(entry.drafted, call.drafted)
        self._ranking.renew(entry)
        self._shelves[entry.tenant].renew(entry)
        self._shelves.move_to_end(entry.tenant)
        self._counts["renewed"] += 1
        if self._journal:
            self._journal.put(changed(entry))

    def _evict(self) -> None:
        entry = self._ranking.least()
        shelf = self._shelves[entry.tenant]
        self._remove(entry)
        shelf.tidy()
        self._counts["evicted"] += 1

    def _drop_tenant(self, tenant: str) -> None:
        for entry in list(self._shelves[tenant].entries.values()):
            self._remove(entry)
            self._counts["evicted"] += 1

    def _remove(self, entry: Entry) -> None:
        shelf = self._shelves[entry.tenant]
        shelf.drop(entry)
        self._ranking.leave(entry)
        self._entries -= 1
        self._token_bytes -= entry.tokens.nbytes
        if self._journal:
            self._journal.put(removed(entry))
        if not shelf.entries:
            del self._shelves[entry.tenant]

    def _restore_tenant(self, items: list[Stored]) -> None:
        code = self._code_for(len(items[0].row))
        shelf = self._shelves[items[0].entry.tenant] = Shelf(code, self._capacity)
        shelf.fill([item.entry for item in items], [item.row for item in items])
        self._entries += len(items)
        self._token_bytes += sum(item.entry.tokens.nbytes for item in items)


def _last_use(item: Stored) -> tuple[int, int]:
    return item.entry.stamp, item.entry.id
