"""A history outlives its process, also one that is killed, and never believes a wrong folder."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.history import opening
from sglang_toolspec.runtime.history.history import History
from sglang_toolspec.runtime.history.log import MAGIC
from tests.histories import MARK, A, B, Clock, contents, direction, found_tokens, opened, tokens_of


def filled(folder: Path, count: int = 6, **options: Any) -> History:
    history = opened(folder, now=Clock(), **options)
    for number in range(count):
        assert history.add(A, direction(number), [number], ["tool", f"{number}"])
    return history


def log_of(folder: Path) -> Path:
    return folder / json.loads((folder / "manifest.json").read_text())["log"]


def aside_of(folder: Path) -> list[Path]:
    return sorted(folder.parent.glob(f"{folder.name}.refused-*"))


def test_everything_is_as_it_was_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "history"
    history = filled(folder)
    history.add('["\ud800é", null]', direction(7), [7, 2**31 - 1], ["\udfff"])
    first = list(history.entries(A))[-1]
    history.credit(first, 3)
    history.credit(first, 0)
    history.add(A, direction(1), [1], [])  # renewed
    history.forget('["nobody", null]')
    before = contents(history)
    history.close()

    history = opened(folder)

    assert contents(history) == before
    assert found_tokens(history, A, direction(4), 1) == [[4]]
    assert len(history.similar(A, direction(0), 100)) == 6  # ef is 10 after loading an hnswlib file
    history.close()


def test_what_was_removed_stays_removed_after_a_restart(tmp_path: Path) -> None:
    history = filled(tmp_path / "h", 8, capacity=5)
    history.add(B, direction(0), [9], [])
    history.forget(B)
    before = contents(history)
    history.close()

    history = opened(tmp_path / "h", capacity=5)

    assert contents(history) == before
    assert tokens_of(history.entries(A)) == [[7], [6], [5], [4]]
    history.close()


def test_use_still_counts_after_a_restart(tmp_path: Path) -> None:
    history = filled(tmp_path / "h", 5, capacity=5)
    history.credit(list(history.entries(A))[-1], 30)
    history.close()

    history = opened(tmp_path / "h", capacity=5)
    for number in range(10, 13):
        history.add(A, direction(number), [number], [])

    assert tokens_of(history.entries(A)) == [[12], [11], [10], [4], [0]]
    history.close()


def test_a_smaller_capacity_keeps_the_most_useful_and_the_latest_tenants(tmp_path: Path) -> None:
    history = filled(tmp_path / "h", 5)
    history.credit(list(history.entries(A))[-1], 3)
    history.close()
    history = opened(tmp_path / "h", capacity=3)
    assert tokens_of(history.entries(A)) == [[4], [3], [0]]
    history.add(B, direction(0), [9], [])
    history.close()

    history = opened(tmp_path / "h", max_tenants=1)
    assert history.tenants() == [B]
    history.close()
    history = opened(tmp_path / "h")
    assert history.tenants() == [B]
    history.close()


def test_nothing_is_written_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    history = History()
    history.add(A, direction(0), [0], [])
    assert history.flush()
    history.close()
    assert list(tmp_path.iterdir()) == []


def test_files_are_their_owner_s_only(tmp_path: Path) -> None:
    filled(tmp_path / "h").close()
    for path in (tmp_path / "h", *(tmp_path / "h").iterdir()):
        assert path.stat().st_mode & 0o077 == 0


# A process that is killed.


def test_a_record_that_was_cut_off_anywhere_costs_that_record_only(tmp_path: Path) -> None:
    filled(tmp_path / "h", 3).close()
    log = log_of(tmp_path / "h")
    whole = log.read_bytes()
    ends = [len(MAGIC)]
    while ends[-1] < len(whole):
        ends.append(ends[-1] + 12 + int.from_bytes(whole[ends[-1] : ends[-1] + 4], "little"))
    assert len(ends) == 4

    for size in range(ends[1], len(whole)):
        log.write_bytes(whole[:size])
        _, stored = opening.read_entries(tmp_path / "h")
        assert len(stored) == sum(end <= size for end in ends[1:])
    for size in (ends[1] + 1, ends[2] - 1, ends[2], len(whole) - 1):
        log.write_bytes(whole[:size])
        history = opened(tmp_path / "h")
        history.add(A, direction(50), [50], [])
        history.close()
        history = opened(tmp_path / "h")
        assert [50] in tokens_of(history.entries(A))
        assert history.stats()["entries"] == 1 + sum(end <= size for end in ends[1:])
        history.close()
    assert aside_of(tmp_path / "h") == []


def test_zeros_that_a_crash_of_the_machine_leaves_are_cut_off(tmp_path: Path) -> None:
    filled(tmp_path / "h", 3).close()
    with log_of(tmp_path / "h").open("ab") as file:
        file.write(bytes(5000))

    history = opened(tmp_path / "h")
    history.add(A, direction(5), [5], [])
    history.close()
    history = opened(tmp_path / "h")

    assert history.stats()["entries"] == 4
    history.close()


KILLED = """
import sys, time
from tests.histories import A, direction, opened
history = opened(sys.argv[1], capacity=40)
number = 0
while True:
    history.add(A, direction(number), [number], ["tool"])
    sys.stdout.write(f"{number} {time.time()}\\n")
    sys.stdout.flush()
    number += 1
    if number % 25 == 0:
        history.forget(A, older_than=0.05)  # and compact
    time.sleep(0.002)
"""


@pytest.mark.parametrize("seconds", [0.9, 1.4])
def test_a_killed_process_loses_at_most_the_last_second(tmp_path: Path, seconds: float) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "h")], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    first = child.stdout.readline()  # it has started
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    killed = time.time()
    said = first + child.stdout.read()
    child.wait()
    whole = said[: said.rfind("\n")].split("\n")  # the kill may have cut the last line
    added = [(int(number), float(at)) for number, at in map(str.split, whole)]

    history = opened(tmp_path / "h", capacity=40)

    there = {tokens[0] for tokens in tokens_of(history.entries(A))}
    safe = [number for number, at in added if at < killed - 1.0]
    assert there
    assert aside_of(tmp_path / "h") == []
    # What was removed again is not missing: numbers come in order, so a newer one must be there.
    assert max(there) >= max(safe, default=0)
    history.close()


def test_a_compaction_that_was_killed_leaves_the_old_log_in_force(tmp_path: Path) -> None:
    filled(tmp_path / "h").close()
    (tmp_path / "h" / "entries-2.log").write_bytes(MAGIC + b"half")
    (tmp_path / "h" / "xyz.part").write_bytes(b"{")

    history = opened(tmp_path / "h")

    assert history.stats()["entries"] == 6
    names = {file.name for file in (tmp_path / "h").iterdir()}
    assert names == {"entries-1.log", "lock", "manifest.json"}
    history.close()


# A wrong folder.


def damage(folder: Path, how: str) -> None:
    manifest, log = folder / "manifest.json", log_of(folder)
    data = bytearray(log.read_bytes())
    if how == "a bit of a record":
        data[len(MAGIC) + 60] ^= 1
        log.write_bytes(data)
    elif how == "a length":
        data[len(MAGIC) + 1] ^= 1
        log.write_bytes(data)
    elif how == "the log's beginning":
        data[0] ^= 1
        log.write_bytes(data)
    elif how == "the log is missing":
        log.unlink()
    elif how == "the manifest is missing":
        manifest.unlink()
    elif how == "the manifest is no JSON":
        manifest.write_text(manifest.read_text()[:-5])
    elif how == "a path in the manifest":
        manifest.write_text(manifest.read_text().replace("entries-1.log", "../entries-1.log"))
    elif how == "an unknown key":
        manifest.write_text('{"more": 1,' + manifest.read_text()[1:])
    elif how == "another format":
        manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    elif how == "the log was exchanged":
        manifest.write_text(manifest.read_text().replace('"crc32": ', '"crc32": 1'))


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("a bit of a record", "its log is damaged at byte 23"),
        ("a length", "its log is damaged at byte 23"),
        ("the log's beginning", "the first 23 bytes of its log are not those that were written"),
        ("the log is missing", r"its log entries-1\.log is missing"),
        ("the manifest is missing", r"its manifest\.json is missing"),
        ("the manifest is no JSON", r"manifest\.json is wrong at"),
        ("a path in the manifest", r"manifest\.json is wrong at '/log'"),
        ("an unknown key", r"manifest\.json is wrong at '/more'"),
        ("another format", r"manifest\.json is wrong at '/format'"),
        ("the log was exchanged", "the first 23 bytes"),
    ],
)
def test_a_damaged_folder_is_set_aside_with_the_reason(
    tmp_path: Path, how: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path / "h").close()
    damage(tmp_path / "h", how)
    before = {file.name: file.read_bytes() for file in (tmp_path / "h").iterdir()}

    with caplog.at_level(logging.WARNING):
        history = opened(tmp_path / "h")

    assert history.stats()["entries"] == 0
    assert history.add(A, direction(0), [0], [])
    [aside] = aside_of(tmp_path / "h")
    assert {file.name: file.read_bytes() for file in aside.iterdir()} == before
    [record] = caplog.records
    assert str(aside) in record.getMessage()
    assert re.search(reason, record.getMessage())
    history.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "large"}, "it is for the model 'tiny', not 'large'"),
        ({"tokenizer": "ffff"}, "it is for another tokenizer"),
        ({"dimension": 65}, "it is for vectors of 64 numbers, not 65"),
    ],
)
def test_a_folder_of_another_model_is_set_aside(
    tmp_path: Path, change: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """hnswlib loads an index of another dimension without a word."""
    filled(tmp_path / "h").close()

    history = opened(tmp_path / "h", fingerprint=MARK.model_copy(update=change))

    assert history.stats()["entries"] == 0
    assert len(aside_of(tmp_path / "h")) == 1
    assert reason in caplog.text
    history.close()


def test_a_folder_set_aside_twice_in_a_second_keeps_both(tmp_path: Path) -> None:
    for model in ("a", "b", "c"):
        opened(tmp_path / "h", fingerprint=MARK.model_copy(update={"model": model})).close()
    assert len(aside_of(tmp_path / "h")) == 2


def test_the_dimension_is_learned_once_and_binds(tmp_path: Path) -> None:
    history = opened(tmp_path / "h")
    assert history.dim is None
    history.add(A, direction(0), [0], [])
    history.close()

    history = opened(tmp_path / "h", fingerprint=MARK.model_copy(update={"dimension": 64}))
    assert history.dim == 64
    assert not history.add(A, direction(0, 65), [0], [])
    history.close()


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(UserError, match=r"is not a history and holds 'letters\.txt'"):
        opened(tmp_path)
    assert (tmp_path / "letters.txt").read_text() == "dear"
    assert tmp_path.exists()


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "h").write_text("x")
    with pytest.raises(UserError, match="cannot be used"):
        opened(tmp_path / "h")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="cannot be used: Permission denied"):
        opened(tmp_path / "h")


# Two processes.


def test_a_second_process_is_refused_until_the_first_is_done(tmp_path: Path) -> None:
    history = filled(tmp_path / "h")
    code = (
        "import sys; from tests.histories import opened\n"
        "try: print(opened(sys.argv[1]).stats()['entries'])\n"
        "except ValueError as error: print(error)"
    )
    second = [sys.executable, "-c", code, str(tmp_path / "h")]

    refused = subprocess.run(second, capture_output=True, text=True, check=True).stdout
    history.close()
    welcome = subprocess.run(second, capture_output=True, text=True, check=True).stdout

    assert "is in use by another process" in refused
    assert welcome == "6\n"


def test_a_refused_open_leaves_the_lock_as_it_was(tmp_path: Path) -> None:
    history = filled(tmp_path / "h")
    for _ in range(2):
        with pytest.raises(UserError, match="in use"):
            opened(tmp_path / "h")
    history.close()
    opened(tmp_path / "h").close()


def test_the_core_needs_neither_sglang_nor_torch() -> None:
    code = (
        "import sys, sglang_toolspec.runtime.history.opening\nprint({'torch', 'sglang'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_working_directory_can_be_a_history_and_be_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "h").mkdir()
    monkeypatch.chdir(tmp_path / "h")
    opened(Path()).close()
    opened(Path(), fingerprint=MARK.model_copy(update={"model": "other"})).close()
    assert len(aside_of(tmp_path / "h")) == 1
