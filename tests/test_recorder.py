"""Recording: what is written is what was served, privately, and serving never waits for it."""

from __future__ import annotations

import gc
import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime import recorder
from sglang_toolspec.runtime.assembly import Assembler, DraftRequest
from sglang_toolspec.runtime.config import Config
from sglang_toolspec.runtime.engine.drafting import SessionFactory
from sglang_toolspec.runtime.engine.recording import record_file
from sglang_toolspec.runtime.engine.sessions import SessionTable
from sglang_toolspec.runtime.recorder import Recorder, RecordFile, open_private
from sglang_toolspec.runtime.recording import Header, Recorded, Run, read_runs, vector_of
from sglang_toolspec.runtime.replay import Simulation
from sglang_toolspec.runtime.session import Faults
from tests import fakes
from tests.toolsets import GET_WEATHER, SEND_EMAIL, write_call

HEADER = Header(
    toolspec_record=1, model="m", tokenizer="bytes", vocab_size=257, stop_ids=[fakes.END], parser="qwen25",
    width=16,
)  # fmt: skip
CALL = write_call("hermes", "get_weather", {"city": "Oslo", "days": 3})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "recorded.jsonl"


@pytest.fixture
def faults() -> Faults:
    return Faults(lambda reason, error: None)


@pytest.fixture
def records(file: Path, faults: Faults) -> Iterator[RecordFile]:
    opened = RecordFile(file, HEADER, faults)
    yield opened
    opened.close()


def recorder_for(records: RecordFile, request: DraftRequest | None = None, stopped: bool = True) -> Recorder:
    return Recorder(request or DraftRequest([1, 2]), records, lambda: stopped)


def one(
    records: RecordFile, tokens: list[int], request: DraftRequest | None = None, stopped: bool = True
) -> None:
    following = recorder_for(records, request, stopped)
    following.commit(tokens)
    following.close()


def written(records: RecordFile, file: Path) -> list[Recorded]:
    records.close()
    (run,) = read_runs(file) or [Run(HEADER)]
    return run.replies


# A request and its line.


def test_a_request_is_read_back_as_it_was(records: RecordFile, file: Path) -> None:
    vector = np.array([0.5, -2.0, 0.0], np.float32)
    request = DraftRequest(
        [104, 105],
        '{"tools": [], "tool_choice": "auto"}',
        '{"type": "object"}',
        masked=True,
        tenant="me",
        vector=vector,
    )
    one(records, [1, 2, fakes.END], request)
    one(records, [3], stopped=False)

    first, second = written(records, file)

    assert (first.prompt_ids, first.output_ids, first.stopped) == ([104, 105], [1, 2, fakes.END], True)
    assert (first.tools, first.json_schema, first.masked) == (request.tools, request.json_schema, True)
    assert first.request.vector.tolist() == [0.25, -1.0, 0.0]  # the direction
    assert second == Recorded(prompt_ids=[1, 2], output_ids=[3], stopped=False, tenant=second.tenant)
    assert json.loads(file.read_text().splitlines()[0]) == HEADER.model_dump()


@pytest.mark.parametrize("vector", [[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], []])
def test_a_vector_without_a_direction_is_left_out(records: RecordFile, file: Path, vector: Any) -> None:
    one(records, [1], DraftRequest([1], vector=np.array(vector, np.float32)))

    assert written(records, file)[0].vector is None


def test_huge_vectors_keep_their_direction(records: RecordFile, file: Path) -> None:
    one(records, [1], DraftRequest([1], vector=np.array([1e38, -1e38], np.float32)))

    assert vector_of(written(records, file)[0].vector).tolist() == [1.0, -1.0]


def test_candidates_come_back_exactly(records: RecordFile, file: Path) -> None:
    following = recorder_for(records)
    random = np.random.default_rng(0)
    ids = random.integers(0, 257, (3, 8))
    chances = random.random((3, 8)).astype(np.float32)
    following.commit([5])
    following.note(ids[:1], chances[:1])
    following.commit([6, 7])
    following.note(ids[1:], chances[1:])
    following.close()

    (found,) = written(records, file)

    assert all(np.array_equal(a, b) for a, b in zip(found.thought_likely(0, 9), (ids, chances), strict=True))
    assert [len(part) for part in found.thought_likely(2, 4)] == [1, 1]
    assert found.thought_likely(3, 5)[0].shape == (0, 8)


def test_candidates_of_a_reply_that_was_taken_up_in_its_middle_are_left_out(
    records: RecordFile, file: Path
) -> None:
    following = recorder_for(records)
    following.commit([5, 6])
    following.note(np.zeros((1, 8), np.int64), np.zeros((1, 8), np.float32))
    following.close()

    assert written(records, file)[0].candidates is None


# Tenants.


def test_tenants_are_told_apart_and_not_named(file: Path, faults: Faults) -> None:
    for _ in range(2):  # starts of the server
        records = RecordFile(file, HEADER, faults)
        for tenant in ("Alice's salt", "Bob's salt", "Alice's salt"):
            one(records, [1], DraftRequest([1], tenant=tenant))
        records.close()

    runs = [[reply.tenant for reply in run.replies] for run in read_runs(file)]

    assert "salt" not in file.read_text()
    for first, second, third in runs:
        assert first == third != second
    assert not set(runs[0]) & set(runs[1])


# The file.


def test_only_the_owner_may_read_it(file: Path, faults: Faults) -> None:
    file.touch(0o644)

    RecordFile(file, HEADER, faults).close()

    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("place", "says"),
    [("", "Is a directory"), ("missing/r.jsonl", "No such file"), ("fifo", "not a regular file")],
)
def test_a_file_that_cannot_be_is_refused_in_one_sentence(tmp_path: Path, place: str, says: str) -> None:
    os.mkfifo(tmp_path / "fifo")

    with pytest.raises(UserError, match=f"--toolspec-record .*{says}"):
        open_private(tmp_path / place)


def test_runs_are_appended_and_a_broken_line_spoils_itself_only(file: Path, faults: Faults) -> None:
    for _ in range(2):
        records = RecordFile(file, HEADER, faults)
        one(records, [1])
        records.close()
    assert [len(run.replies) for run in read_runs(file)] == [1, 1]

    with file.open("a") as out:
        out.write('{"prompt_ids": [1')
    RecordFile(file, HEADER, faults).close()

    assert file.read_text().splitlines()[4] == '{"prompt_ids": [1'
    assert json.loads(file.read_text().splitlines()[5])["toolspec_record"] == 1


def test_without_the_setting_nothing_is_recorded(file: Path, faults: Faults) -> None:
    assert record_file(Config(), fakes.ByteCodec(), "m", None, 16, faults) is None
    assert record_file(Config(record=file), None, "m", None, 16, faults) is None
    assert not file.exists()


def test_the_header_names_the_server(file: Path, faults: Faults) -> None:
    record_file(Config(record=file), fakes.ByteCodec(), "m", "qwen25", 16, faults).close()

    assert json.loads(file.read_text()) == HEADER.model_dump()


# Serving goes on.


class Blocked:
    """A disk that takes its time, or fails."""

    def __init__(self, out: Any, error: OSError | None = None):
        self.go_on = threading.Event()
        self.writes = 0
        self._out, self._error = out, error

    def __enter__(self) -> Blocked:
        return self

    def __exit__(self, *args: Any) -> None:
        self._out.close()

    def write(self, line: bytes) -> None:
        self.writes += 1
        if self.writes > 1:  # the header is through
            if self._error is not None:
                raise self._error
            self.go_on.wait(10)
        self._out.write(line)

    def flush(self) -> None:
        self._out.flush()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(error: OSError | None = None) -> list[Blocked]:
        made: list[Blocked] = []
        monkeypatch.setattr(
            recorder, "open_private", lambda file: made.append(Blocked(open_private(file), error)) or made[0]
        )
        return made

    return install


def test_a_slow_disk_costs_records_and_no_time(
    disk: Any, file: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_WAITING", 3)
    made = disk()
    records = RecordFile(file, HEADER, faults)

    for token in range(20):  # returns, though nothing is written
        one(records, [token])
    made[0].go_on.set()

    found = written(records, file)
    assert 3 <= len(found) <= 5  # three that waited, and one that was being written
    assert faults.counts == {"record: Full": 20 - len(found)}


def test_a_full_disk_is_told_once_and_ends_the_recording(disk: Any, file: Path) -> None:
    told: list[str] = []
    faults = Faults(lambda reason, error: told.append(f"{reason} {error}"))
    made = disk(OSError(28, "No space left on device"))
    records = RecordFile(file, HEADER, faults)

    one(records, [1])
    records._writer.join(10)
    for token in range(3 * recorder.MAX_WAITING):
        one(records, [token])

    assert told == ["record: OSError [Errno 28] No space left on device"]
    assert made[0].writes == 2
    assert sum(faults.counts.values()) == 1


@pytest.mark.parametrize("prompt", [[5, 1 << 40], [257], [-1]])
def test_a_prompt_with_ids_that_are_none_is_left_out_alone(
    records: RecordFile, file: Path, faults: Faults, prompt: list[int]
) -> None:
    one(records, [1], DraftRequest(prompt))
    one(records, [2])

    assert [reply.output_ids for reply in written(records, file)] == [[2]]
    assert sum(faults.counts.values()) == 1


def test_a_line_that_no_replay_would_read_is_left_out(
    records: RecordFile, file: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_LINE", 2000)
    one(records, [1], DraftRequest([100] * 1000))
    one(records, [2])

    assert [reply.output_ids for reply in written(records, file)] == [[2]]
    assert faults.counts == {"record: ValueError": 1}


# Requests of the engine.


class Noted:
    """Of one step: ``candidates.Pending``, where the target was rather sure of what it wrote next."""

    def __init__(self, req: fakes.Request, written: list[int], start: int, stop: int):
        self.req, self.tokens = req, written[start:stop]
        self.ids = np.zeros((stop - start, 8), np.int64)
        self.ids[:, 0] = written[start + 1 : stop + 1]
        self.chances = np.array([[0.6, *[0.05] * 7]] * (stop - start), np.float32)

    def by_request(self) -> Iterator[Any]:
        yield self.req, self.tokens, self.ids, self.chances


def serve(make: SessionFactory, requests: list[tuple[fakes.Request, list[int]]], width: int) -> list[int]:
    """Verify steps of requests one after another, by a target that writes the given tokens greedily
    and, as SGLang does, keeps what it accepts behind an end."""
    table, steps = SessionTable(make, Faults(fakes.no_fault)), []
    for number, (req, written) in enumerate(requests):
        req.rid = str(number)
        end = written.index(fakes.END) + 1
        req.output_ids.append(written[0])
        steps.append(0)
        while not req.finished():
            table.keep_only([req.rid])
            tree = table.draft(req, [], width)
            table.sent(req, tree)
            done = len(req.output_ids)
            after = done + len(tree.follow(written[done:])) + 1
            req.output_ids.extend(written[done:after])
            steps[-1] += 1
            if after >= end:
                req.finished_len, req.finished_reason = end, SimpleNamespace(matched=fakes.END)
            make.note_candidates(Noted(req, written, done - 1, after - 1))
        table.finished(req.rid)
    return steps


def test_a_replay_takes_the_steps_that_the_server_took(records: RecordFile, file: Path) -> None:
    mail = write_call("hermes", "send_email", {"to": "zoe@example.org", "subject": "Oslo", "body": "Cold."})
    replies = [CALL, mail, f"Let me see.\n{CALL}", mail, CALL]
    served = [
        (
            fakes.request(f"{i}: mail zoe@example.org", [GET_WEATHER, SEND_EMAIL], extra_key="ab"[i % 2]),
            [*reply.encode(), fakes.END, *CALL.encode()],  # what it would write behind the end
        )
        for i, reply in enumerate(replies)
    ]
    steps = serve(fakes.factory(records=records), served, width=16)

    found = written(records, file)

    assert [bytes(reply.output_ids[:-1]).decode() for reply in found] == replies
    assert all(reply.stopped for reply in found)
    assemble = Assembler(fakes.ByteCodec(), "qwen25", Faults(fakes.no_fault), Config())
    simulation, replayed = Simulation(width=16), []
    for reply in found:
        before = simulation.sums.steps
        simulation.add(assemble, reply)
        replayed.append(simulation.sums.steps - before)
    assert replayed == steps
    assert sum(steps) < sum(map(len, replies)) / 2
    assert simulation.sums.accepted.keys() >= {"schema", "copy", "suffix", "recycling"}


@pytest.mark.parametrize(
    ("reason", "stopped"),
    [
        (SimpleNamespace(matched=fakes.END), [True]),
        (SimpleNamespace(matched="stop string"), [False]),
        (SimpleNamespace(length=2), [False]),
        (None, []),  # retracted
    ],
)
def test_requests_are_recorded_when_they_have_finished(
    records: RecordFile, file: Path, reason: Any, stopped: list[bool]
) -> None:
    table = SessionTable(fakes.factory(records=records), Faults(fakes.no_fault))
    req = fakes.request()
    req.output_ids.extend(b"ab")
    table.draft(req, [], 8)
    req.output_ids.extend(b"cd")
    req.finished_reason, req.finished_len = reason, 3

    table.finished(req.rid)
    table.keep_only([])

    found = written(records, file)
    assert [reply.stopped for reply in found] == stopped
    assert all(reply.output_ids == list(b"abc") for reply in found)


def test_recording_keeps_no_request_alive(records: RecordFile, file: Path) -> None:
    table = SessionTable(fakes.factory(records=records), Faults(fakes.no_fault))
    req = fakes.request()
    req.output_ids.extend(b"ab")
    table.draft(req, [], 8)

    del req
    gc.collect()

    assert len(table) == 0
    assert written(records, file) == []
