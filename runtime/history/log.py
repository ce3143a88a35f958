"""The log file: records one after the other, appended, never changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO
from zlib import crc32

from sglang_toolspec.runtime.history.records import HEADER, MAX_BODY, Unusable

MAGIC = b"toolspec history log 1\n"
_CHUNK = 1 << 20


def bodies(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The body of each record, and where in the file the record ends.

    Stops in front of one that was cut off, because a process was killed while it wrote it, and of
    zeros, which a crash of the machine may leave. Anything else that is no record is ``Unusable``.
    """
    if file.read(len(MAGIC)) != MAGIC:
        raise Unusable("its log does not begin like one")
    at = len(MAGIC)
    while len(header := file.read(HEADER.size)) == HEADER.size:
        length, body_check, check = HEADER.unpack(header)
        if not any(header) and _only_zeros(file):
            return
        if check != crc32(header[:-4]) or length > MAX_BODY:
            raise Unusable(f"its log is damaged at byte {at}")
        body = file.read(length)
        if len(body) < length:
            return
        if crc32(body) != body_check:
            raise Unusable(f"its log is damaged at byte {at}")
        at += HEADER.size + length
        yield body, at


def checksum(file: BinaryIO, size: int) -> int | None:
    """CRC-32 of the first ``size`` bytes; ``None`` where there are fewer."""
    file.seek(0)
    found = 0
    while size > 0:
        chunk = file.read(min(_CHUNK, size))
        if not chunk:
            return None
        found = crc32(chunk, found)
        size -= len(chunk)
    return found


class Log:
    """A log that is being written; ``file`` is unbuffered, and nobody else writes it."""

    def __init__(self, file: BinaryIO, end: int):
        self._file = file
        self._clean = False
        """Whether nothing stands after ``end``."""
        self.end = end
        """Where the last whole record ends."""

    def append(self, data: bytes) -> None:
        """Whole or not at all. Raises ``OSError``, and may be called again then."""
        if not self._clean:
            self._file.truncate(self.end)
        self._file.seek(self.end)
        self._clean = False
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._clean = True
        self.end += len(data)

    def sync(self) -> None:
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def _only_zeros(file: BinaryIO) -> bool:
    while chunk := file.read(_CHUNK):
        if any(chunk):
            return False
    return True
