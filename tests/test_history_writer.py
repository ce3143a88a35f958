"""A slow, full or broken disk costs what is on it, and nothing else."""

from __future__ import annotations

import errno
import io
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sglang_toolspec.runtime.history import writer as writers
from sglang_toolspec.runtime.history.folder import Folder, Lock
from sglang_toolspec.runtime.history.history import History
from sglang_toolspec.runtime.history.log import MAGIC, Log, bodies
from sglang_toolspec.runtime.history.writer import Writer
from tests.histories import MARK, A, contents, direction, opened, tokens_of


class Disk(io.BytesIO):
    """A file in memory that takes only so much at a time, and nothing while it is full."""

    room = 10**9
    blocked: threading.Event | None = None

    def write(self, data: object) -> int:
        if self.blocked:
            self.blocked.wait(60)
        view = memoryview(data)[:1000]  # type: ignore[arg-type]
        if self.tell() + len(view) > self.room:
            if self.tell() < self.room:  # what fits is written all the same, as disks do
                super().write(view[: self.room - self.tell()])
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(view)


def records_in(disk: Disk) -> int:
    return sum(1 for _ in bodies(io.BytesIO(disk.getvalue())))


def test_an_append_that_fails_in_the_middle_leaves_whole_records() -> None:
    disk = Disk(MAGIC)
    log = Log(disk, len(MAGIC))
    disk.room = 3000
    with pytest.raises(OSError, match="No space"):
        log.append(bytes(5000))
    assert len(disk.getvalue()) == 3000

    disk.room = 10**9
    log.append(b"short")

    assert disk.getvalue() == MAGIC + b"short"


class Setting:
    """A history on a ``Disk``, and what its writer reported."""

    def __init__(self, path: Path):
        self.path = path
        lock = Lock(path)
        self.folder = Folder.new(path, MARK, 1000, lock)
        self.disk = Disk(MAGIC)
        self.folder._log = Log(self.disk, len(MAGIC))
        self.folder.sync = lambda: None  # type: ignore[method-assign]
        self.reports: list[str] = []
        self.writer = Writer(self.folder, [], self.reports.append)
        self.history = History(journal=self.writer)

    def add(self, numbers: range) -> None:
        for number in numbers:
            assert self.history.add(A, direction(number), [number], [])


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    monkeypatch.setattr(writers, "EVERY", 0.01)
    monkeypatch.setattr(writers, "RETRY", 0.01)
    made = Setting(tmp_path / "h")
    yield made
    if made.disk.blocked:
        made.disk.blocked.set()
    made.history.close()


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


def test_a_full_disk_is_reported_once_and_nothing_is_lost_once_there_is_room(setting: Setting) -> None:
    setting.disk.room = 1500
    setting.add(range(20))
    wait_for(lambda: setting.history.stats()["disk"]["failures"] > 3)

    assert len(setting.reports) == 1
    assert "No space left on device" in setting.reports[0]
    assert setting.history.stats()["entries"] == 20
    assert not setting.history.flush(0.05)

    setting.disk.room = 10**9
    assert setting.history.flush()
    assert records_in(setting.disk) == 20

    setting.disk.room = 0
    setting.add(range(20, 21))
    wait_for(lambda: len(setting.reports) == 2)  # another failure is news


def test_serving_does_not_wait_for_a_disk_that_hangs(setting: Setting) -> None:
    setting.disk.blocked = threading.Event()
    setting.add(range(1))
    time.sleep(0.05)  # the writer hangs now
    setting.add(range(1, 100))

    assert len(setting.history.similar(A, direction(0), 100)) == 100
    assert setting.history.stats()["entries"] == 100
    assert records_in(setting.disk) == 0


def test_what_waits_for_a_disk_is_bounded(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "MAX_WAITING", 2000)
    setting.disk.room = 0
    setting.add(range(50))
    kept = setting.history.stats()["disk"]

    assert kept["waiting_bytes"] <= 2000
    assert 0 < kept["unwritten_entries"] < 50
    assert setting.history.stats()["entries"] == 50

    setting.disk.room = 10**9
    assert not setting.history.flush()  # because some entries never get there
    assert records_in(setting.disk) == 50 - kept["unwritten_entries"]
    setting.history.forget()
    assert setting.history.stats()["disk"]["unwritten_entries"] == 0


def test_many_credits_between_two_writes_are_one_record(setting: Setting) -> None:
    setting.add(range(1))
    [entry] = setting.history.entries(A)
    setting.history.flush()
    before = records_in(setting.disk)
    setting.disk.blocked = threading.Event()
    for _ in range(1000):
        setting.history.credit(entry, 1)
    assert setting.history.stats()["disk"]["waiting_bytes"] < 1000
    setting.disk.blocked.set()
    setting.history.flush()

    assert records_in(setting.disk) - before <= 2


# Compaction.


def test_a_log_that_is_mostly_waste_is_compacted_and_holds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "COMPACT_BYTES", 4000)
    monkeypatch.setattr(writers, "EVERY", 0.0)
    history = opened(tmp_path / "h", capacity=10)
    for number in range(300):
        history.add(A, direction(number), [number], ["tool"])
        if number % 10 == 0:
            history.credit(next(history.entries(A)), 2)
            history.flush()
    before = contents(history)
    assert history.stats()["disk"]["log_bytes"] < 20_000
    history.close()

    logs = list((tmp_path / "h").glob("entries-*.log"))
    assert len(logs) == 1
    assert logs[0].name != "entries-1.log"
    history = opened(tmp_path / "h", capacity=10)
    assert contents(history) == before
    history.close()


def test_a_compaction_that_fails_leaves_the_log_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    history = opened(tmp_path / "h")
    for number in range(5):
        history.add(A, direction(number), [number], [])
    history.flush()

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("sglang_toolspec.runtime.history.manifest.write_whole", full)
        history.add("B", direction(0), [9], [])
        history.forget("B")
        assert not history.flush(1)
        assert history.add(A, direction(5), [5], [])
    history.close()

    assert "cannot be compacted" in caplog.text
    history = opened(tmp_path / "h")
    assert tokens_of(history.entries(A)) == [[5], [4], [3], [2], [1], [0]]
    history.close()
