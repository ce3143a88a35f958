"""Records finished requests into a file, from a thread of its own: serving never waits for a disk."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import Any, BinaryIO

from numpy.typing import NDArray

from sglang_toolspec.errors import UserError
from sglang_toolspec.runtime.assembly import DraftRequest
from sglang_toolspec.runtime.recording import MAX_LINE, Header, Recorded, vector_text
from sglang_toolspec.runtime.session import Faults
from sglang_toolspec.runtime.tree import DraftPath

MAX_WAITING = 256
"""Requests that wait to be written; while as many wait, others are left out."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK


def open_private(file: Path) -> BinaryIO:
    """``file`` for appending whole lines, made where it is missing; only its owner may read it.

    Raises ``UserError`` where that cannot be.
    """
    try:
        handle = os.open(file, _FLAGS, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise UserError(f"--toolspec-record {file} is not a regular file; name another")
            os.fchmod(handle, 0o600)
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":  # a server was stopped while it wrote
                os.write(handle, b"\n")
        except BaseException:
            os.close(handle)
            raise
    except OSError as error:
        raise UserError(f"--toolspec-record {file} cannot be written: {error.strerror}") from error
    return os.fdopen(handle, "ab")


@dataclass(frozen=True)
class Finished:
    request: DraftRequest
    reply: list[int]
    stopped: bool
    likely: list[tuple[NDArray[Any], NDArray[Any]]]


class RecordFile:
    """Appends to ``file``: ``header`` first, then what is ``put``. Shared by all requests.

    What cannot be written is left out, and a fault says so. After the disk's first error nothing more
    is written.
    """

    def __init__(self, file: Path, header: Header, faults: Faults):
        self._out = open_private(file)
        self._header = header
        self._faults = faults
        self._salt = secrets.token_bytes(16)
        self._waiting: Queue[Finished | None] = Queue(MAX_WAITING)
        self._writer = Thread(target=self._write, name="toolspec-record", daemon=True)
        self._writer.start()

    def put(self, finished: Finished) -> None:
        """Have a request written soon; never waits."""
        if not self._writer.is_alive():
            return
        try:
            self._waiting.put_nowait(finished)
        except Full:
            self._faults.note("record", Full("requests end faster than they are written; some are left out"))

    def close(self) -> None:
        """Write what waits, and end."""
        self._waiting.put(None)
        self._writer.join()

    def _write(self) -> None:
        try:
            with self._out:
                for line in self._lines():
                    self._out.write(line)
                    self._out.flush()
        except OSError as error:
            self._faults.note("record", error)

    def _lines(self) -> Iterator[bytes]:
        yield self._header.model_dump_json().encode() + b"\n"
        while (finished := self._waiting.get()) is not None:
            try:
                yield self._line(finished)
            except ValueError as error:
                self._faults.note("record", error)

    def _line(self, finished: Finished) -> bytes:
        """Raises ``ValueError`` for a request that no replay would read."""
        request = finished.request
        recorded = Recorded(
            prompt_ids=list(request.prompt),
            output_ids=finished.reply,
            stopped=finished.stopped,
            tools=request.tools,
            json_schema=request.json_schema,
            masked=request.masked,
            tenant=self._hash(request.tenant),
            candidates=_pairs(finished.likely) or None,
            vector=None if request.vector is None else vector_text(request.vector),
        )
        if not recorded.fits(self._header.vocab_size):
            raise ValueError("a prompt with ids outside the vocabulary (images?) is left out")
        line = recorded.model_dump_json(exclude_defaults=True).encode() + b"\n"
        if len(line) > MAX_LINE:
            raise ValueError(f"a request that takes more than {MAX_LINE >> 20} MiB is left out")
        return line

    def _hash(self, tenant: str) -> str:
        """Tells tenants apart without telling who they are."""
        data = tenant.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(data, key=self._salt, digest_size=8).hexdigest()


def _pairs(likely: list[tuple[NDArray[Any], NDArray[Any]]]) -> list[list[tuple[int, float]]]:
    """Ids with chances, these in the fewest digits that tell float32 apart."""
    return [
        list(zip(row, row_chances, strict=True))
        for ids, chances in likely
        for row, row_chances in zip(ids.tolist(), chances.astype(str).astype(float).tolist(), strict=True)
    ]


class Recorder:
    """Follows one reply as a drafter does, proposes nothing, and has the request recorded in the end.

    ``stopped`` tells then whether a stop token ended the reply, and ``None`` where nothing did: a
    request that was only put back into the queue comes again, whole.
    """

    name = "record"

    def __init__(self, request: DraftRequest, records: RecordFile, stopped: Callable[[], bool | None]):
        self._request = request
        self._records = records
        self._stopped = stopped
        self._reply: list[int] = []
        self._likely: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def note(self, ids: NDArray[Any], chances: NDArray[Any]) -> None:
        """What the target thought likely after the next of the reply's tokens, both ``[tokens, 8]``."""
        if self._likely or len(self._reply) == 1:  # else it is followed from its middle on
            self._likely.append((ids, chances))

    def commit(self, tokens: list[int]) -> None:
        self._reply += tokens

    def propose(self) -> list[DraftPath]:
        return []

    def close(self) -> None:
        stopped = self._stopped()
        if self._reply and stopped is not None:
            self._records.put(Finished(self._request, self._reply, stopped, self._likely))
        self._reply, self._likely = [], []  # they are the writer's now
