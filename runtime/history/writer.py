"""Writes a history's changes down in the background, so that nobody waits for a disk."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sglang_toolspec.runtime.history.folder import Folder
from sglang_toolspec.runtime.history.records import ADDED, CHANGED, REMOVED, Record, Stored, Unusable

EVERY = 0.25
"""Seconds that changes are gathered for before they are written."""
RETRY = 5.0
"""Seconds after a failed write; compacting, which is much more work, waits longer."""
RETRY_COMPACTING = 60.0
MAX_WAITING = 64 << 20
"""Bytes that wait to be written; entries added beyond are not written at all."""
COMPACT_BYTES = 16 << 20
"""A log is compacted once so much of it, and half of it, is of no use any more."""
CLOSING = 30.0
"""Seconds that closing waits for a disk."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """What waits to be done at one moment. ``put`` and ``wanted`` are the counts up to which it is all."""

    queued: list[Record]
    states: list[Record]
    put: int
    wanted: int


class Writer:
    """A ``Journal`` for all threads. ``report`` hears of what fails, once until it works again.

    A disk that fails costs what is on it, and nothing else: the history goes on in memory.
    """

    def __init__(self, folder: Folder, stored: Iterable[Stored], report: Callable[[str], None]):
        self._folder = folder
        self._report = report
        self._changed = threading.Condition()
        self._queue: deque[Record] = deque()
        self._waiting_bytes = 0
        self._states: dict[int, Record] = {}
        """The last CHANGED record of each entry: an entry may change often between two writes."""
        self._unwritten: set[int] = set()
        """Entries that the queue had no room for."""
        self._put = self._written = 0
        """Calls of ``put``, and up to which of them everything was written."""
        self._wanted = self._compacted = 0
        """Calls of ``compact``, and up to which of them it was done."""
        self._hurry = self._closing = False
        # What follows is the thread's alone.
        self._sizes = {item.entry.id: item.size for item in stored}
        """Bytes of the records that still matter."""
        self._live_bytes = sum(self._sizes.values())
        self._failing: set[str] = set()
        self._failures = 0
        self._compact_from = 0.0
        self._thread = threading.Thread(target=self._run, name="toolspec-history", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        with self._changed:
            if record.id in self._unwritten:
                if record.kind == REMOVED:
                    self._unwritten.remove(record.id)
            elif record.kind == CHANGED:
                self._states[record.id] = record
            elif record.kind == ADDED and self._waiting_bytes + len(record.data) > MAX_WAITING:
                self._unwritten.add(record.id)
            else:
                self._states.pop(record.id, None)
                self._queue.append(record)
                self._waiting_bytes += len(record.data)
            if self._put == self._written:  # else the thread is awake already
                self._changed.notify_all()
            self._put += 1

    def compact(self) -> None:
        with self._changed:
            self._wanted += 1
            self._changed.notify_all()

    def stats(self) -> dict[str, int]:
        with self._changed:
            return {
                "log_bytes": self._folder.log_bytes,
                "waiting_bytes": self._waiting_bytes,
                "unwritten_entries": len(self._unwritten),
                "failures": self._failures,
            }

    def flush(self, seconds: float) -> bool:
        with self._changed:
            put, wanted = self._put, self._wanted
            self._hurry = True
            self._changed.notify_all()
            done = self._changed.wait_for(
                lambda: self._written >= put and self._compacted >= wanted, timeout=seconds
            )
            return done and not self._unwritten

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(CLOSING)
        if not self._thread.is_alive():
            self._folder.close()

    def _run(self) -> None:
        closing = False
        while not closing:
            with self._changed:
                self._changed.wait_for(self._has_work)
                pause = RETRY if "written" in self._failing else EVERY
                self._changed.wait_for(lambda: self._hurry or self._closing, timeout=pause)
                self._hurry, closing = False, self._closing
                batch = _Batch(list(self._queue), list(self._states.values()), self._put, self._wanted)
            if self._write(batch) and (batch.wanted > self._compacted or self._is_wasteful()):
                self._compact(batch, in_any_case=closing)

    def _has_work(self) -> bool:
        return self._closing or self._put > self._written or self._wanted > self._compacted

    def _write(self, batch: _Batch) -> bool:
        """Write what was waiting; whether that went well."""
        records = batch.queued + batch.states
        if records:
            if not self._tried("written", lambda: self._folder.append(b"".join(r.data for r in records))):
                return False
            self._tried("synchronised", self._folder.sync)
        with self._changed:
            for record in batch.queued:
                self._queue.popleft()
                self._waiting_bytes -= len(record.data)
            for record in batch.states:
                if self._states.get(record.id) is record:
                    del self._states[record.id]
            self._written = batch.put
            self._changed.notify_all()
        for record in batch.queued:
            self._live_bytes -= self._sizes.pop(record.id, 0)
            if record.kind == ADDED:
                self._sizes[record.id] = len(record.data)
                self._live_bytes += len(record.data)
        return True

    def _is_wasteful(self) -> bool:
        wasted = self._folder.log_bytes - self._live_bytes
        return wasted > max(COMPACT_BYTES, self._folder.log_bytes // 2)

    def _compact(self, batch: _Batch, in_any_case: bool) -> None:
        if time.monotonic() < self._compact_from and not in_any_case:
            return
        if not self._tried("compacted", self._folder.compact):
            self._compact_from = time.monotonic() + RETRY_COMPACTING
            return
        with self._changed:
            self._compacted = batch.wanted
            self._changed.notify_all()

    def _tried(self, what: str, work: Callable[[], object]) -> bool:
        try:
            work()
        except (OSError, Unusable) as error:
            self._failures += 1
            if what not in self._failing:
                self._failing.add(what)
                self._report(
                    f"the history in {self._folder.path} cannot be {what} ({error}); it goes on in memory "
                    "and tries again"
                )
            return False
        self._failing.discard(what)
        return True
